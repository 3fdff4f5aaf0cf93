"""The Runs room: what is wanted, the table of it, and the run under the cursor."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from app.console.latest import Latest
from app.console.run_feed import RunFeed
from app.console.run_reading import read_run
from app.console.screens.run_acting import RunActingScreen
from app.console.troubles import nothing_to_show
from app.console.views import VIEWS, Wanted
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from storage.errors import StorageError
from storage.records import Action, RunSort
from widgets.filter_bar import Extent, FilterBar, SearchInput, ViewBar
from widgets.notice import Notice
from widgets.run_pane import RunPane
from widgets.run_table import RunTable
from widgets.run_window import RunWindow

if TYPE_CHECKING:
    from textual.timer import Timer

SEARCH_PAUSE_S: Final = 0.08
"""A pause in typing after which the search begins."""
WIDE: Final = 120
"""From this width on the run stands beside the table."""
TALL: Final = 32
"""From this height on it has room below."""


class RunsScreen(RunActingScreen):
    """Every run that is wanted, however many."""

    ROOM = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/", tooltip="Run id, repository, branch", id="runs.search"),
        Binding("s", "statuses", "status", tooltip="Show only some statuses", id="runs.statuses"),
        Binding("right_square_bracket", "view(1)", "next view", show=False, key_display="]", id="runs.next_view"),
        Binding("left_square_bracket", "view(-1)", "previous view", show=False, key_display="[", id="runs.prev_view"),
        Binding("v", "raw", "raw JSON", show=False, tooltip="Facts, or the run as received", id="run.raw"),
        Binding("d", "pane", "detail on/off", show=False, id="runs.pane"),
        Binding("escape", "clear", "clear filters", show=False, id="runs.clear"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._feed: RunFeed | None = None
        self._extent: Extent | None = None
        self._search_pause: Timer | None = None
        self._run_reader = Latest(self._read_run, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """The filters, the table and the run beside or below it."""
        yield FilterBar(tuple(view.title for view in VIEWS))
        with Container(id="runs"):
            yield RunTable(self.console.clock)
            yield RunPane(self.console.clock)

    def on_mount(self) -> None:
        """Paints what was cached, then reads with the engine as soon as it is open."""
        self.table.focus()
        first = self.console.first
        if first is not None and first.rows:
            self.table.show(RunWindow(first.total, 0, first.rows, 0, None), self.table.here)
            self._tell(Extent(first.total, first.total, first.coverage, is_filtered=False))
        self._explain()
        self.run_worker(self._begin())

    @property
    def table(self) -> RunTable:
        """The table."""
        return self.query_one(RunTable)

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

    def rang(self, event: Event) -> None:
        """Reads again what changed."""
        if isinstance(event, RunsChanged | CacheChangedElsewhere) and self._feed is not None:
            self._feed.changed()
        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._run_reader.ask()

    def tick(self, now: datetime) -> None:
        """Moves the ages on show."""
        self.table.tick(now, self.as_of)
        self.pane.tick(now, self.as_of)

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

    @on(RunTable.WindowWanted)
    def _on_window_wanted(self) -> None:
        if self._feed is not None:
            self._feed.look()

    @on(RunTable.Highlighted)
    def _on_highlighted(self) -> None:
        self._run_reader.ask()

    @on(RunTable.Chosen)
    def _on_chosen(self, message: RunTable.Chosen) -> None:
        from app.console.screens.run import RunScreen

        if self.console.engine is not None:
            self.app.push_screen(RunScreen(message.run_id))

    @on(RunTable.SortWanted)
    def _on_sort_wanted(self, message: RunTable.SortWanted) -> None:
        if self._feed is None:
            return
        sort = self._feed.sort
        same = sort.column == message.column
        self._want(
            sort=RunSort(message.column, not sort.descending if same else message.column in {"started", "updated"})
        )

    @on(Input.Changed)
    def _on_search_changed(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self._search_pause = self.set_timer(SEARCH_PAUSE_S, self._search_now)

    @on(SearchInput.Left)
    def _on_search_left(self) -> None:
        self._search_now()
        self.table.focus()

    @on(ViewBar.Picked)
    def _on_view_picked(self, message: ViewBar.Picked) -> None:
        self._want(replace(self._wanted, view=message.index))

    @on(ViewBar.StatusClicked)
    def _on_status_clicked(self) -> None:
        self.action_statuses()

    # What its keys do

    def action_search(self) -> None:
        """The keys go to the search."""
        self.query_one(SearchInput).focus()

    def action_view(self, step: int) -> None:
        """The next view, or the one before."""
        self._want(replace(self._wanted, view=(self._wanted.view + step) % len(VIEWS)))

    def action_statuses(self) -> None:
        """Asks which statuses are wanted."""
        self.run_worker(self._pick_statuses(), exclusive=True, group="statuses")

    def action_raw(self) -> None:
        """Facts, or the JSON as received."""
        self.pane.toggle_raw()

    def action_pane(self) -> None:
        """Shows or hides the run beside the table."""
        self.pane.display = not self.pane.display

    def action_clear(self) -> None:
        """Takes the search and the status filter away, then the view."""
        wanted = self._wanted
        self.query_one(SearchInput).value = ""
        self._want(Wanted(view=wanted.view if wanted.is_narrowed else 0))

    def acted(self, action: Action | None) -> None:
        """The run that a form made is looked for, and the cursor goes to it."""
        if action is not None and action.result_id is not None and action.kind == "run.start":
            self.table.seek(action.result_id)
            if self._feed is not None:
                self._feed.changed()
        super().acted(action)

    # How it does that

    @property
    def _wanted(self) -> Wanted:
        return self._feed.wanted if self._feed is not None else Wanted()

    async def _begin(self) -> None:
        engine = await self.console.opened()
        self._feed = RunFeed(
            engine.cache,
            self.table,
            self.console.clock,
            self.run_worker,
            as_of=lambda: self.as_of or self.console.clock(),
            tell=self._tell,
            failed=self.storage_failed,
        )
        self._feed.changed()
        self._run_reader.ask()

    def _want(self, wanted: Wanted | None = None, sort: RunSort | None = None) -> None:
        feed = self._feed
        if feed is None:
            return
        wanted, sort = wanted or feed.wanted, sort or feed.sort
        if (wanted, sort) == (feed.wanted, feed.sort):
            return
        feed.want(wanted, sort)
        self.table.highlight(wanted.search)
        self.table.sorted_by(sort)
        self.query_one(ViewBar).show(wanted.view, wanted.statuses)

    def _search_now(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self._want(replace(self._wanted, search=" ".join(self.query_one(SearchInput).value.split())))

    async def _pick_statuses(self) -> None:
        from app.console.screens.status_picker import StatusPicker

        engine = self.console.engine
        if engine is None:
            return
        counts = await engine.cache.status_counts(replace(self._wanted, statuses=()).condition(self.console.clock()))
        self.app.push_screen(StatusPicker(counts, self._wanted.statuses), self._statuses_picked)

    def _statuses_picked(self, picked: tuple[str, ...] | None) -> None:
        if picked is not None:
            self._want(replace(self._wanted, statuses=picked))

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
        self.query_one(FilterBar).show(extent, self.console.clock())
        self._explain()

    def _explain(self) -> None:
        """Says why there are no rows, while there are none."""
        link = self.console.vitals.runs_link
        self.query_one("#runs").set_class(not self.table.total, "-empty")
        self.table.say(nothing_to_show(self._wanted, self._extent, link, self.console.clock()))
