"""Preferences of the user for all profiles: theme, split and recent choices of the palette."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

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

    def theme_over(self, configured: str) -> str:
        """The theme to begin with."""
        return self.theme if self.theme and self.configured == configured else configured

    def with_theme(self, theme: str, configured: str) -> "UserPreferences":
        """Remember a theme."""
        return replace(self, theme=theme, configured=configured)

    def with_recent(self, name: str) -> "UserPreferences":
        """Remember a choice."""
        return replace(self, recent=(name, *(other for other in self.recent if other != name))[:MOST_RECENT])


def read(settings: Settings) -> UserPreferences:
    """Read the preferences; defaults if the file is missing or damaged."""
    return _read(data_root(settings) / FILE)


async def keep(settings: Settings, change: Callable[[UserPreferences], UserPreferences]) -> None:
    """Update the file; if it cannot be written, the choice lasts until the console closes."""
    await asyncio.to_thread(_change, data_root(settings) / FILE, change)


def _change(path: Path, change: Callable[[UserPreferences], UserPreferences]) -> None:
    try:
        with alone(path.parent):
            before = _read(path)
            if (after := change(before)) != before:
                document = {
                    "version": VERSION,
                    "theme": after.theme,
                    "configured": after.configured,
                    "recent": after.recent,
                    "split": after.split,
                }
                with replacing(path) as file:
                    json.dump(document, file, indent=1)
    except OSError:
        return  # The choice lasts until the console closes.


def _read(path: Path) -> UserPreferences:
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if document["version"] != VERSION:
            return UserPreferences()
        recent = tuple(str(name) for name in document["recent"])
        return UserPreferences(
            str(document["theme"]),
            str(document["configured"]),
            recent,
            str(document.get("split", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return UserPreferences()
