"""Switching profiles in one console: screens and engine are closed and opened for the other profile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker

from app.config import Profile
from app.console.base.screen import OVERVIEW, TABS
from app.console.profiles.engines import ProfileEngines
from app.console.runs.views import first_picture
from app.console.session import Session
from app.text import safe_text
from storage.errors import StorageError

if TYPE_CHECKING:
    from app.engine import Engine
    from storage.cache.first_paint import FirstPaint

PROFILE_BINDINGS: Final = (
    Binding("ctrl+o", "profiles", "switch profile", show=False, tooltip="To another service", id="app.profiles"),
    Binding("0", f"tab('{OVERVIEW}')", "all profiles", show=False, tooltip="Each at a glance", id="room.profiles"),
)
BETWEEN: Final = "between"
"""The mode while there are no tabs."""
WRITING: Final = frozenset({"send", "import"})
"""Groups of workers that write to the service: one that is cancelled leaves its outcome unknown."""
OpenEngine = Callable[[], Awaitable["Engine"]]
TakeUp = Callable[[Profile, "FirstPaint | None", OpenEngine], None]


class Modes(Protocol):
    """The app's modes and workers, as far as switching needs them."""

    @property
    def workers(self) -> Iterable[Worker[Any]]:
        """All workers of the app."""

    def run_worker(self, work: Callable[[], Awaitable[None]], *, group: str) -> object:
        """Run a coroutine function in the background."""

    def add_mode(self, mode: str, base_screen: Callable[[], Screen[Any]]) -> None:
        """Add a mode."""

    def switch_mode(self, mode: str) -> Awaitable[None]:
        """Show a mode."""

    def remove_mode(self, mode: str) -> Awaitable[None]:
        """Remove a mode and its screens."""

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None]) -> object:
        """Show a screen over the others, and call back with its result."""


class BetweenScreen(Screen[None]):
    """Names the profile that is being opened."""

    CSS = "BetweenScreen { align: center middle; } BetweenScreen Static { width: auto; color: $foreground 70%; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_of_profile = safe_text(name, limit=60)

    def compose(self) -> ComposeResult:
        """Compose the line."""
        yield Static(f"◌ Opening {self._name_of_profile} …", markup=False)


class ProfileSwitching:
    """Replaces the profile on show by another."""

    engines: ProfileEngines | None
    """None: only the profile on show can be opened."""

    def __init__(
        self, engines: ProfileEngines | None, modes: Modes, leave: Callable[[], None], take_up: TakeUp
    ) -> None:
        """Prepare; `leave` stops listening to the engine, `take_up` shows another profile."""
        self.engines = engines
        self._modes = modes
        self._leave = leave
        self._take_up = take_up
        self._is_under_way = False

    @property
    def is_possible(self) -> bool:
        """Whether there is another profile."""
        return self.engines is not None and len(self.engines.profiles) > 1

    def adopt(self, engine: "Engine") -> None:
        """Keep the engine that the console was started with."""
        if self.engines is not None:
            self.engines.adopt(engine)

    async def close(self) -> None:
        """Close every engine."""
        if self.engines is not None:
            await self.engines.close()

    def ask(self, session: Session) -> None:
        """Ask which profile to show."""
        from app.console.profiles.switcher import ProfileSwitcher

        if self.engines is None or not self.is_possible:
            session.notify("There is one profile. Another one is a [profiles.NAME] in the configuration.")
        else:
            self._modes.push_screen(ProfileSwitcher(session, self.engines), partial(self.begin, session))

    def begin(self, session: Session, name: str | None) -> None:
        """Switch to another profile; None, or the profile on show: do nothing."""
        if name is None or name == session.profile.name or self.engines is None:
            return
        if any(worker.group in WRITING and not worker.is_finished for worker in self._modes.workers):
            session.notify("Something is being sent. Switch when its outcome is known.", severity="warning")
        elif self._is_under_way or not session.is_settled:
            session.notify(session.not_open)
        else:
            self._is_under_way = True
            self._modes.run_worker(partial(self._switch, self.engines, session, name), group="switch")

    async def _switch(self, engines: ProfileEngines, session: Session, name: str) -> None:
        try:
            await self._replace(engines, session, name)
        finally:
            self._is_under_way = False

    async def _replace(self, engines: ProfileEngines, session: Session, name: str) -> None:
        profile = engines.profile(name)
        self._modes.add_mode(BETWEEN, lambda: BetweenScreen(name))
        await self._modes.switch_mode(BETWEEN)
        # Close screens before the engine they read from.
        for mode in (*(tab.name for tab in TABS), OVERVIEW):
            await self._modes.remove_mode(mode)
        self._leave()
        try:
            await engines.let_go(session.profile.name)
        except StorageError as error:
            # A toast outlives the screens; the banner would blame the other profile's files.
            session.notify(f"{session.profile.name} was not closed properly: {error}", severity="error")
        first = await asyncio.to_thread(first_picture, session.settings, profile, session.clock())
        self._take_up(profile, first, lambda: engines.at_work(name))
        await self._modes.switch_mode("runs")
        await self._modes.remove_mode(BETWEEN)
