"""Navigation between tabs and runs, and back to an earlier tab with its cursor and filters."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from textual.app import App
from textual.binding import Binding

from app.console.base.screen import TABS, BaseScreen
from app.console.messages import FIRST_UNKNOWN
from app.console.profiles.between import BETWEEN
from app.console.session import Session

NAVIGATION_BINDINGS: Final = (
    *(Binding(tab.key, f"tab('{tab.name}')", tab.title, show=False, id=f"room.{tab.name}") for tab in TABS),
    Binding(
        "U",
        f"tab('activity', '{FIRST_UNKNOWN}')",
        "unknown outcome",
        tooltip="A write that a person has to resolve",
        id="app.unknown",
    ),
    Binding("backspace", "back", "back", show=False, tooltip="To what you came from", id="app.back"),
)
MOST_VISITED: Final = 100
NOWHERE: Final = "There is nothing to go back to."
_RETURNS: Final = frozenset(tab.name for tab in TABS)


@dataclass(frozen=True, slots=True)
class VisitedScreen:
    """A tab that was left."""

    tab: str
    bookmark: Any
    """Its filters and the key under its cursor."""
    run_ids: tuple[str, ...] = ()
    """The runs open over it, the topmost last."""


class Navigation:
    """Shows tabs, targets in them and runs, and remembers the way back."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._visited: deque[VisitedScreen] = deque(maxlen=MOST_VISITED)

    def forget(self) -> None:
        """Forget the way back, after a switch of profiles."""
        self._visited.clear()

    async def go(self, session: Session, tab: str, target: str | None = None) -> None:
        """Show a tab and a target in it; without a target, the tab as it was left."""
        before = self._here()
        if self._app.current_mode == BETWEEN or (session.engine is None and tab != "runs"):
            session.notify(session.not_open)
            return
        if tab == self._app.current_mode and target is None:
            return
        if before is not None:
            self._visited.append(before)
        await self._app.switch_mode(tab)
        if target is not None:
            await self._uncover()
            if isinstance(self._app.screen, BaseScreen):
                self._app.screen.go_to(target)

    async def back(self, session: Session) -> None:
        """Return to the tab or run that was left last."""
        if self._app.current_mode == BETWEEN:
            return
        if not self._visited:
            session.notify(NOWHERE)
            return
        visited = self._visited.pop()
        await self._app.switch_mode(visited.tab)
        if self._covering() != visited.run_ids:
            await self._uncover()
        base = self._app.screen_stack[0]
        if isinstance(base, BaseScreen):
            base.return_to(visited.bookmark)
        for run_id in visited.run_ids[len(self._covering()) :]:
            self.open_run(session, run_id)

    def open_run(self, session: Session, run_id: str | None) -> None:
        """Show a run on the full screen, unless it is shown already."""
        from app.console.run.screen import RunScreen

        screen = self._app.screen
        is_here = isinstance(screen, RunScreen) and screen.focused_run_id == run_id
        if run_id is not None and session.engine is not None and not is_here:
            self._app.push_screen(RunScreen(session, run_id))

    def _here(self) -> VisitedScreen | None:
        """The current tab; None: it cannot be returned to."""
        base, tab = self._app.screen_stack[0], self._app.current_mode
        if tab not in _RETURNS or not isinstance(base, BaseScreen):
            return None
        return VisitedScreen(tab, base.bookmark, self._covering())

    def _covering(self) -> tuple[str, ...]:
        """The runs open over the current tab."""
        above = self._app.screen_stack[1:]
        return tuple(run_id for each in above if isinstance(each, BaseScreen) and (run_id := each.focused_run_id))

    async def _uncover(self) -> None:
        """Close the runs open over the current tab; forms and sheets stay."""
        while len(self._app.screen_stack) > 1 and isinstance(self._app.screen, BaseScreen):
            await self._app.pop_screen()
