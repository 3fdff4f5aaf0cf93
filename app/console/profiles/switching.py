"""From one profile to another, in the same console: rooms and engine go, and come again for the other one."""

import asyncio
from typing import TYPE_CHECKING, Final

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from app.console.runs.opening import first_picture
from app.console.tabs import OVERVIEW, TABS
from app.text import safe_text

if TYPE_CHECKING:
    from app.console.app import RunwardenApp
    from app.console.profiles.engines import ProfileEngines

BETWEEN: Final = "between"
"""The mode that is on show while there are no rooms."""


class BetweenScreen(Screen[None]):
    """Says where it goes."""

    CSS = "BetweenScreen { align: center middle; } BetweenScreen Static { width: auto; color: $foreground 70%; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_of_profile = safe_text(name, limit=60)

    def compose(self) -> ComposeResult:
        """One line."""
        yield Static(f"◌ Opening {self._name_of_profile} …", markup=False)


async def switch(app: "RunwardenApp", profile_engines: "ProfileEngines", name: str) -> None:
    """Shows another profile in place of the one on show, which is closed; a write under way is settled first."""
    before, profile = app.profile.name, profile_engines.profile(name)
    app.add_mode(BETWEEN, lambda: BetweenScreen(name))
    await app.switch_mode(BETWEEN)
    # Screens go before the engine they read with.
    for mode in (*(room.name for room in TABS), OVERVIEW):
        await app.remove_mode(mode)
    app.leave_engine()
    await profile_engines.let_go(before)
    first = await asyncio.to_thread(first_picture, app.settings, profile, app.clock())
    app.take_up(profile, first, lambda: profile_engines.at_work(name))
    await app.switch_mode("runs")
    await app.remove_mode(BETWEEN)
