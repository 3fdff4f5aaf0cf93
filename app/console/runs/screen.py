"""The Runs room: what is wanted, the table of it, and the run under the cursor."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Final

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from app.console.latest import Latest
from app.console.runs.feed import RunFeed
from app.console.runs.loaders import read_run
from app.console.runs.marking import RunMarkingScreen
from app.console.runs.views import TableQuery
from app.console.session import Session
from app.console.troubles import UNREADABLE, nothing_to_show
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from storage.errors import StorageError
from storage.records import Action, RunWindow
from widgets.filter.bar import Extent, FilterBar
from widgets.frame.notice import Notice
from widgets.runs.columns import ColumnChoice
from widgets.runs.pane import RunPane
from widgets.runs.table import RunTable

WIDE: Final = 120
"""From this width on the run stands beside the table."""
TALL: Final = 32
"""From this height on it has room below."""


class RunsScreen(RunMarkingScreen):
    """Every run that is wanted, however many."""

    ROOM = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("C", "columns", "columns", show=False, tooltip="Which, in which order, how wide", id="runs.columns"),
        Binding("v", "raw", "raw JSON", show=False, tooltip="Facts, or the run as received", id="run.raw"),
        Binding("d", "pane", "detail on/off", show=False, id="runs.pane"),
        Binding("escape", "clear", "clear", show=False, tooltip="Marks, then the line, then the view", id="runs.clear"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._extent: Extent | None = None
        self._run_reader = Latest(self._read_run, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """The filters, the table and the run beside or below it."""
        self.recall()
        yield FilterBar(self.understand)
        with Container(id="runs"):
            yield RunTable(self.console.clock, self.memory.now.columns, self.app.batch_update)
            yield RunPane(self.console.clock)

    def on_mount(self) -> None:
        """Paints what was cached, then reads with the engine as soon as it is open."""
        self.table.focus()
        self._show_pane(self.memory.now.detail)
        self.bar.line.put(self.wanted.line, 0)
        self.say_wanted()
        first = self.console.first
        if first is not None:
            request = self.table.request(self.condition, self.wanted.sort)
            self.table.show(RunWindow(first.total, 0, first.rows), request)
            is_filtered = bool(self.condition)
            self._tell(Extent(first.total, first.held, first.coverage, is_filtered=is_filtered))
        self._explain()
        self.run_worker(self._begin())

    @property
    def pane(self) -> RunPane:
        """The run beside or below it."""
        return self.query_one(RunPane)

    @property
    def focused_run_id(self) -> str | None:
        """The run under the cursor."""
        row = self.table.row
        return row.run_id if row else None

    # What it hears

    def engine_changed(self, event: Event) -> None:
        """Reads again what changed."""
        if isinstance(event, RunsChanged | CacheChangedElsewhere) and self._feed is not None:
            self._feed.changed()
        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._run_reader.ask()

    def tick(self, now: datetime) -> None:
        """Moves the ages on show."""
        self.table.tick(now, self.as_of)
        # A frame of its own: in one with the header's age all that lies between the two lines would be painted.
        self.call_after_refresh(self.pane.tick, now, self.as_of)

    def show_trouble(self) -> None:
        """The banner, or the table while it has the room."""
        super().show_trouble()
        self._explain()

    def trouble(self) -> Notice | None:
        """What the banner says, unless the table has the room to say it."""
        return super().trouble() if self.table.total else None

    def on_resize(self, event: events.Resize) -> None:
        """Puts the run beside the table, below it, or on two lines."""
        wide, tall = event.size.width >= WIDE, event.size.height >= TALL
        self.pane.shape("column" if wide or tall else "strip")

    @on(RunTable.WindowRequested)
    def _on_window_wanted(self) -> None:
        if self._feed is not None:
            self._feed.look()

    @on(RunTable.Highlighted)
    def _on_highlighted(self) -> None:
        self._run_reader.ask()

    @on(RunTable.Chosen)
    def _on_chosen(self, message: RunTable.Chosen) -> None:
        self.open_run(message.run_id)

    @on(RunTable.Arranged)
    def _on_arranged(self, message: RunTable.Arranged) -> None:
        self.memory.change(lambda known: replace(known, columns=message.choice))

    # What its keys do

    def action_columns(self) -> None:
        """Asks for the columns."""
        from app.console.runs.columns_sheet import ColumnPicker

        table = self.table
        self.app.push_screen(
            ColumnPicker(table.choice, self.wanted.sort, table.width_of, table.take_columns), self._columns_picked
        )

    def action_raw(self) -> None:
        """Facts, or the JSON as received."""
        self.pane.toggle_raw()

    def action_pane(self) -> None:
        """Shows or hides the run beside the table."""
        shown = not self.memory.now.detail
        self._show_pane(shown)
        self.memory.change(lambda known: replace(known, detail=shown))

    def action_clear(self) -> None:
        """Takes the marks away; once there are none what was changed in the line; then the view."""
        wanted = self.wanted
        if self.table.marks:
            self.table.unmark()
        elif wanted.is_changed:
            self.set_line(wanted.view.query)
        else:
            self.bar.line.put("", 0)
            self.want(TableQuery(sort=wanted.sort))

    def acted(self, action: Action | None) -> None:
        """The run that a form made is looked for, and the cursor goes to it."""
        if action is not None and action.result_id is not None and action.kind == "run.start":
            self.table.seek(action.result_id)
            if self._feed is not None:
                self._feed.changed()
        super().acted(action)

    # How it does that

    def _show_pane(self, shown: bool) -> None:  # noqa: FBT001 — one thing to say
        # A class, not `display`: that would bring it back while there is no run at all.
        self.query_one("#runs").set_class(not shown, "-no-detail")

    async def _begin(self) -> None:
        engine = await self.console.opened()
        self._feed = RunFeed(
            engine.cache,
            self.table,
            self.console.clock,
            self.run_worker,
            wanted=self.wanted,
            tell=self._tell,
            count=self._count,
            failed=self.storage_failed,
        )
        self._feed.changed()
        self._run_reader.ask()

    def _columns_picked(self, choice: ColumnChoice | None) -> None:
        if choice is not None:
            self.memory.change(lambda known: replace(known, columns=choice))

    async def _read_run(self) -> None:
        engine, row = self.console.engine, self.table.row
        if engine is None or row is None:
            self.pane.show(None)
            return
        try:
            view = await read_run(engine.cache, engine.ledger, row.run_id, stuck=self.table.is_stuck(row.run_id))
        except StorageError as error:
            self.storage_failed(error)
            return
        self.pane.show(view)

    def _tell(self, extent: Extent) -> None:
        self._extent = extent
        self.bar.show(extent, self.console.clock())
        self._explain()

    def _count(self, counts: Mapping[str, int], shown: frozenset[str]) -> None:
        self.bar.count(counts, shown)

    def _explain(self) -> None:
        """Says why there are no rows, while there are none."""
        link = self.console.vitals.runs_link
        # Not before it is known: the pane would come later, and push the table aside.
        has_none = self._extent is not None and not self._extent.held
        self.query_one("#runs").set_class(has_none and not self.table.total, "-empty")
        read_only = self.console.profile.read_only
        empty = None if self.wanted.is_changed else self.wanted.view.empty
        nothing = nothing_to_show(empty, self._extent, link, self.console.clock(), read_only=read_only)
        self.table.say(UNREADABLE if self.console.storage_trouble else nothing)
