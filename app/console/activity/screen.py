"""The Activity tab: every write with its outcome, unknown ones first."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from app.console.activity.actions import ENTRY_BINDINGS, QUERY_BINDINGS, EntryActions, QueryActions
from app.console.activity.loaders import ActivityLoader, with_batches
from app.console.activity.query import ActivityQuery, filters, nothing, views
from app.console.base.screen import BaseScreen
from app.console.runs.screen_context import ScreenContext
from app.console.session import Session
from app.console.session.troubles import UNREADABLE
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from widgets.activity.table import ActivityBar, ActivityPane, ActivityTable
from widgets.batch import BatchView
from widgets.clickable import ChipBar
from widgets.forms.inputs import ListSearch
from widgets.frame.notice import Notice
from widgets.line_table import LineTable

if TYPE_CHECKING:
    from textual.timer import Timer

    from app.engine import Engine

SEARCH_PAUSE_S: Final = 0.08
WIDE: Final = 110
"""A narrower screen shows only the filters that are set; the bottom line has the keys of all."""
READING: Final = Notice("◌", "Reading the ledger…", tone="busy")


class ActivityScreen(BaseScreen):
    """A table of writes, unknown ones first, then the newest."""

    TAB = "activity"
    CSS = """
    #activity { height: 1fr; layout: vertical; }
    ActivityScreen.-tall ActivityBar { margin-bottom: 1; }
    ActivityScreen.-wide #activity { layout: horizontal; }
    ActivityScreen.-wide ActivityPane {
        width: 38%; max-width: 76; height: 1fr; border-top: none; border-left: solid $panel;
    }
    ActivityScreen.-wide ActivityPane:focus { border-top: none; border-left: solid $accent; }
    ActivityScreen.-short ActivityPane { height: 8; }
    #activity.-empty ActivityPane, #activity.-no-detail ActivityPane { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *ENTRY_BINDINGS,
        Binding(
            "slash", "search", "search", key_display="/", tooltip="Requests, answers and errors", id="activity.find"
        ),
        *QUERY_BINDINGS,
        Binding("y", "entry('copy_id')", "copy id", show=False, id="activity.copy_id"),
        Binding("d", "pane", "detail on/off", show=False, id="activity.pane"),
        Binding("escape", "clear", "clear filters", show=False, id="activity.clear"),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._clock = engine.clock
        self._table = ActivityTable(engine.clock())
        self._loader = ActivityLoader(engine, self.run_worker, self._read)
        context = ScreenContext.of(self)
        self._query_actions = QueryActions(context, self._loader)
        self._entry_actions = EntryActions(context, engine, self._table, self._loader)
        self._search_pause: Timer | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Compose the filters, the table and the facts."""
        yield ActivityBar()
        with Container(id="activity", classes="-empty"):
            yield self._table
            yield ActivityPane()

    def on_mount(self) -> None:
        """Read the writes."""
        self.session.batches.changed.subscribe(self, lambda _: self._show())
        self._table.focus()
        self._explain()
        self._loader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read the writes again after a change of the ledger, or of runs that may explain an unknown outcome."""
        may_explain = isinstance(event, RunsChanged) and self._loader.first_unknown is not None
        if may_explain or isinstance(event, ActionChanged | CacheChangedElsewhere):
            self._loader.ask()

    def go_to(self, target: str) -> None:
        """Clear the filters and move the cursor to the write with this id, or to the first unknown one."""
        if target:
            self.return_to((ActivityQuery(), target))

    @property
    def bookmark(self) -> tuple[ActivityQuery, str]:
        """The query and the entry under the cursor."""
        return self._loader.query, "" if self._table.item is None else self._table.item.key

    def return_to(self, bookmark: tuple[ActivityQuery, str]) -> None:
        """Restore that query, with the cursor on that entry."""
        query, key = bookmark
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = query.search
        self._loader.go(query, key)

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        self._table.tick(now)
        self.query_one(ActivityPane).tick(now)

    def show_trouble(self) -> None:
        """Update the banner and the reason for an empty table, which may be the same trouble."""
        super().show_trouble()
        self._table.say(self._nothing)

    def on_resize(self) -> None:
        """Show the filters that fit the new width."""
        self._explain()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide or dim the keys that have no effect now."""
        if action == "entry":
            return self._entry_actions.is_possible(str(parameters[0]))
        if action == "query":
            return self._query_actions.is_possible(str(parameters[0]))
        if action == "search":
            return self._loader.total > 0
        return super().check_action(action, parameters)

    # Its keys

    async def action_entry(self, name: str) -> None:
        """Act on the write under the cursor."""
        await self._entry_actions.do(name)

    def action_query(self, name: str) -> None:
        """Change the query, or open the sheet that does."""
        self._query_actions.do(name)

    def action_search(self) -> None:
        """Focus the search."""
        self.query_one(ListSearch).focus()

    def action_pane(self) -> None:
        """Show or hide the facts."""
        self.query_one("#activity").toggle_class("-no-detail")

    def action_clear(self) -> None:
        """Clear the filters, then the view."""
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = ""
        self._query_actions.clear()

    # Its widgets' messages

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        self.query_one(ActivityPane).show(self._table.item, self._clock())
        self.refresh_bindings()

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        self.run_worker(self._entry_actions.open)

    @on(LineTable.EndReached)
    def _end_reached(self) -> None:
        self._loader.read_more()

    @on(Input.Changed)
    def _search_changed(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self._search_pause = self.set_timer(SEARCH_PAUSE_S, self._search_now)

    @on(ListSearch.Left)
    def _search_left(self) -> None:
        self._search_now()
        self._table.focus()

    @on(ChipBar.Clicked)
    async def _chip_clicked(self, message: ChipBar.Clicked) -> None:
        await self.run_action(f"query('{message.name}')")

    # Internals

    @property
    def _nothing(self) -> Notice:
        if self.session.vitals.storage_trouble:
            return UNREADABLE
        return READING if self._loader.found is None else nothing(self._loader.query, self._loader.total)

    @property
    def _batches(self) -> tuple[BatchView, ...]:
        """The batches of this console, if all writes are shown."""
        return self.session.batches.views if self._loader.query == ActivityQuery() else ()

    def _search_now(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self._query_actions.search(self.query_one(ListSearch).value)

    def _read(self, key: str) -> None:
        """Show the entries, with the cursor on the write with this key, if any."""
        self._show()
        self._table.seek(key)
        self._explain()

    def _show(self) -> None:
        """Show the rows: unknown ones first, then batches and other writes, newest first."""
        if (found := self._loader.found) is None:
            return
        rows = with_batches(found.entries, self._batches)
        self.query_one("#activity").set_class(not rows, "-empty")
        self._table.show(rows)
        self.refresh_bindings()

    def _explain(self) -> None:
        """Show the filters, the counts and the reason for an empty list."""
        query, found = self._loader.query, self._loader.found
        extent = f"{found.matching:,} of {found.total:,}" if found is not None and found.total else ""
        chips = filters(query) if extent or query.is_narrowed else ()
        if self.size.width < WIDE:
            chips = tuple(chip for chip in chips if chip.is_set)
        self.query_one(ActivityBar).show(views(query), chips, extent)
        self._table.say(self._nothing)
