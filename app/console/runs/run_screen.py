"""One run on the whole screen."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from app.console.base_screen import BaseScreen
from app.console.coalesced_task import CoalescedTask
from app.console.runs.loaders import read_run
from app.console.runs.run_actions import RUN_BINDINGS, RunActions
from app.console.runs.screen_context import ScreenContext
from app.console.session import Session
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from app.text import safe_text
from widgets.runs.facts import Branch
from widgets.runs.pane import RunPane


class RunScreen(BaseScreen):
    """Everything known of one run."""

    TAB = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        *RUN_BINDINGS,
        Binding("escape,backspace", "back", "back", key_display="esc", tooltip="To the runs", id="run.back"),
        Binding("v", "raw", "raw JSON", tooltip="Facts, or the run as received", id="run.raw"),
        Binding("right_square_bracket", "beside(1)", "older", key_display="]", tooltip="On the branch", id="run.older"),
        Binding("left_square_bracket", "beside(-1)", "newer", key_display="[", tooltip="On the branch", id="run.newer"),
    ]

    def __init__(self, session: Session, run_id: str) -> None:
        super().__init__(session)
        self._run_id = run_id
        self._branch = Branch(0)
        self._pane = RunPane(session.run_now, "page")
        self._reader = CoalescedTask(self._read, self.run_worker)
        self._run_actions = RunActions(ScreenContext.of(self), lambda: self._run_id)

    def compose_body(self) -> Iterable[Widget]:
        """The run."""
        yield self._pane

    def on_mount(self) -> None:
        """Read the run."""
        self._pane.focus()
        self._reader.ask()

    @property
    def focused_run_id(self) -> str | None:
        """The run on show."""
        return self._run_id

    def engine_changed(self, event: Event) -> None:
        """Read the run again when it may have changed."""
        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._reader.ask()

    def tick(self, _: datetime) -> None:
        """Update the ages."""
        self._pane.tick(self.session.run_now(), self.as_of)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable what cannot be done."""
        if action == "run":
            return self._run_actions.is_possible(str(parameters[0]))
        return super().check_action(action, parameters)

    async def action_run(self, name: str) -> None:
        """Act on the run."""
        await self._run_actions.do(name)

    def action_back(self) -> None:
        """Go back to the runs."""
        self.dismiss()

    def action_raw(self) -> None:
        """Switch between the facts and the JSON as received."""
        self._pane.toggle_raw()

    def action_beside(self, step: int) -> None:
        """Show the next older, or newer, run on the same branch."""
        there = self._branch.beside(self._run_id, step)
        if there is None:
            self.session.notify(f"There is no {'older' if step > 0 else 'newer'} run on this branch.")
            return
        self._run_id = there
        self._reader.ask()

    async def _read(self) -> None:
        engine = self.session.engine
        if engine is None:
            return
        stuck = self._run_id in await engine.cache.stuck()
        view = await read_run(engine, self._run_id, stuck=stuck)
        self._branch = view.branch if view is not None else Branch(0)
        self._pane.show(view, otherwise=f"{safe_text(self._run_id)} is no longer in the cache.")
