"""Preferences of the user for all profiles: theme, split and recent choices of the palette."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec.json
from msgspec import Struct
from msgspec.structs import replace

from app.engine.atomic_file import alone, replacing
from app.profiles import Settings, data_root

FILE: Final = "console.json"
VERSION: Final = 1
MOST_RECENT: Final = 12
"""Names kept for the palette."""


class UserPreferences(Struct, frozen=True):
    """All preferences."""

    theme: str = ""
    """Chosen in the palette. Empty: the configured one."""
    configured: str = ""
    """The configured theme at that time: a theme that is configured later replaces the choice."""
    recent: tuple[str, ...] = ()
    """Choices in the palette, newest first."""
    split: str = ""
    """The size of the pane next to the runs. Empty: the default."""
    version: int = VERSION

    def theme_over(self, configured: str) -> str:
        """The theme to begin with."""
        return self.theme if self.theme and self.configured == configured else configured

    def with_theme(self, theme: str, configured: str) -> "UserPreferences":
        """Remember a theme."""
        return replace(self, theme=theme, configured=configured)

    def with_recent(self, name: str) -> "UserPreferences":
        """Remember a choice."""
        others = (other for other in self.recent if other != name)
        return replace(self, recent=(str(name), *others)[:MOST_RECENT])  # Plain: safe text is not JSON.


def read(settings: Settings) -> UserPreferences:
    """Read the preferences; defaults if the file is missing, damaged, or of another version."""
    try:
        found = msgspec.json.decode((data_root(settings) / FILE).read_bytes(), type=UserPreferences)
    except (OSError, ValueError):
        return UserPreferences()
    return found if found.version == VERSION else UserPreferences()


async def keep(settings: Settings, change: Callable[[UserPreferences], UserPreferences]) -> None:
    """Update the file; if it cannot be written, the choice lasts until the console closes."""

    def write() -> None:
        path = data_root(settings) / FILE
        with suppress(OSError), alone(path.parent):
            before = read(settings)
            if (after := change(before)) != before:
                with replacing(path) as file:
                    file.write(msgspec.json.format(msgspec.json.encode(after), indent=1).decode())

    await asyncio.to_thread(write)
