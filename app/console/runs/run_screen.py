"""One run on the whole screen."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from app.console.latest import Latest
from app.console.runs.acting import RunActingScreen
from app.console.runs.loaders import read_run
from app.console.session import Session
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from app.text import safe_text
from storage.errors import StorageError
from widgets.runs.facts import Branch
from widgets.runs.pane import RunPane


class RunScreen(RunActingScreen):
    """Everything known of one run, on the whole screen."""

    ROOM = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back", key_display="esc", tooltip="To the runs", id="run.back"),
        Binding("v", "raw", "raw JSON", tooltip="Facts, or the run as received", id="run.raw"),
        Binding("right_square_bracket", "beside(1)", "older", key_display="]", tooltip="On the branch", id="run.older"),
        Binding("left_square_bracket", "beside(-1)", "newer", key_display="[", tooltip="On the branch", id="run.newer"),
    ]

    def __init__(self, session: Session, run_id: str) -> None:
        super().__init__(session)
        self._run_id = run_id
        self._branch = Branch(0)
        self._reader = Latest(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """The run."""
        yield RunPane(self.console.clock, "page")

    def on_mount(self) -> None:
        """Reads the run."""
        self.query_one(RunPane).focus()
        self._reader.ask()

    @property
    def focused_run_id(self) -> str | None:
        """The run."""
        return self._run_id

    def engine_changed(self, event: Event) -> None:
        """Reads the run again when it may have changed."""
        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Moves the ages."""
        self.query_one(RunPane).tick(now, self.as_of)

    def action_back(self) -> None:
        """To the runs."""
        self.dismiss()

    def action_raw(self) -> None:
        """Facts, or the JSON as received."""
        self.query_one(RunPane).toggle_raw()

    def action_beside(self, step: int) -> None:
        """The next older, or newer, run on the same branch."""
        there = self._branch.beside(self._run_id, step)
        if there is None:
            self.console.say(f"There is no {'older' if step > 0 else 'newer'} run on this branch.")
            return
        self._run_id = there
        self._reader.ask()

    async def _read(self) -> None:
        engine = self.console.engine
        if engine is None:
            return
        try:
            stuck = self._run_id in await engine.cache.stuck()
            view = await read_run(engine.cache, engine.ledger, self._run_id, stuck=stuck)
        except StorageError as error:
            self.storage_failed(error)
            return
        self._branch = view.branch if view is not None else Branch(0)
        gone = f"{safe_text(self._run_id)} is not in the cache any more."
        self.query_one(RunPane).show(view, otherwise=gone)
