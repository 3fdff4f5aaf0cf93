"""The Activity tab: every write, with what became of it; what a person still has to find out comes first."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from app.console.activity.entry_actions import EntryActions
from app.console.activity.loaders import Activity, read_activity, with_batches, with_candidates
from app.console.activity.query import VIEWS, ActivityQuery, filters, kind_badge, nothing, views
from app.console.base_screen import BaseScreen
from app.console.coalesced_task import CoalescedTask
from app.console.messages import UNKNOWN_PLACE
from app.console.session import Session
from app.console.troubles import UNREADABLE
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from widgets.activity.bar import ActivityBar, ChipBar
from widgets.activity.formatting import Entry, outcome_badge
from widgets.activity.table import ActivityPane, ActivityTable
from widgets.badges import Badge
from widgets.batch import BatchView
from widgets.frame.notice import Notice
from widgets.line_table import LineTable
from widgets.list_search import ListSearch

if TYPE_CHECKING:
    from textual.timer import Timer

    from app.engine import Engine

PAGE: Final = 300
"""Entries read at first, and again each time that the last one is reached."""
SEARCH_PAUSE_S: Final = 0.08
WIDE: Final = 110
"""Narrower lines name only the filters that are set; the keys for the others stand below."""
READING: Final = Notice("◌", "Reading the ledger…", tone="busy")


class ActivityScreen(BaseScreen):
    """What was written: what is unknown first, then the newest."""

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
        Binding("v", "resolve", "resolve", tooltip="Say what became of an unknown outcome", id="activity.resolve"),
        Binding("u", "undo", "undo", tooltip="Take back what was said of an outcome", id="activity.undo"),
        Binding("E", "resend", "edit and resend", tooltip="What was rejected or not sent", id="activity.resend"),
        Binding(
            "slash", "search", "search", key_display="/", tooltip="What was asked, sent or said", id="activity.find"
        ),
        Binding("W", "kinds", "what", tooltip="Show only some kinds", id="activity.kinds"),
        Binding("s", "outcomes", "outcome", tooltip="Show only some outcomes", id="activity.outcomes"),
        Binding("t", "since", "since", tooltip="The last hour, day, week, month, or any time", id="activity.since"),
        Binding("right_square_bracket", "view(1)", "next view", show=False, key_display="]", id="activity.next_view"),
        Binding(
            "left_square_bracket", "view(-1)", "previous view", show=False, key_display="[", id="activity.prev_view"
        ),
        Binding("y", "copy_id", "copy id", show=False, id="activity.copy_id"),
        Binding("d", "pane", "detail on/off", show=False, id="activity.pane"),
        Binding("escape", "clear", "clear filters", show=False, id="activity.clear"),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._table = ActivityTable(engine.clock())
        self._query = ActivityQuery()
        self._limit = PAGE
        self._sought = ""
        """The write that the cursor goes to at the next reading; empty: it stays."""
        self._activity: Activity | None = None
        self._search_pause: Timer | None = None
        self._reader = CoalescedTask(self._read, self.run_worker)
        self._actions = EntryActions(session, engine, self._push, self.post_message, self._reader.ask)

    def compose_body(self) -> Iterable[Widget]:
        """The filters, the table, the facts."""
        yield ActivityBar()
        with Container(id="activity", classes="-empty"):
            yield self._table
            yield ActivityPane()

    def on_mount(self) -> None:
        """Read what happened."""
        self.session.batches.changed.subscribe(self, lambda _: self._show())
        self._table.focus()
        self._explain()
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read again what changed."""
        may_explain = isinstance(event, RunsChanged) and self._first_unknown is not None
        if may_explain or isinstance(event, ActionChanged | CacheChangedElsewhere):
            self._reader.ask()

    def go_to(self, place: str) -> None:
        """Show what is unknown, or the write of this id, whatever was filtered for."""
        if place:
            self.return_to((ActivityQuery(), place))

    @property
    def place(self) -> tuple[ActivityQuery, str]:
        """The query and the entry under the cursor."""
        return self._query, "" if self._table.item is None else self._table.item.key

    def return_to(self, place: tuple[ActivityQuery, str]) -> None:
        """Show that query, with the cursor on that entry."""
        self._query, self._sought = place
        self._limit = max(PAGE, self._limit)
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = self._query.search
        self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Move the ages."""
        self._table.tick(now)
        self.query_one(ActivityPane).tick(now)

    def show_trouble(self) -> None:
        """The banner, and why there are no rows, which may be the same trouble."""
        super().show_trouble()
        self._table.say(self._nothing)

    def on_resize(self) -> None:
        """Names as many filters as fit."""
        self._explain()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have nothing to act on are shown as such."""
        entry = self._entry
        if action == "resolve":
            return self._first_unknown is not None
        if action in {"search", "kinds", "outcomes", "since"}:
            return self._activity is not None and self._activity.held > 0
        if action == "undo":
            return entry is not None and entry.source.resolution in {"created", "not_created"}
        if action == "resend":
            return entry is not None and entry.is_resendable and not self._engine.actions.read_only
        if action in {"open", "copy_id"}:
            return True if (self._table.item if action == "open" else entry) is not None else None
        return super().check_action(action, parameters)

    # What its keys do

    async def action_open(self) -> None:
        """Go to the run, the organization or the batch that it is about."""
        if (item := self._table.item) is not None:
            await self._actions.open(item)

    def action_resolve(self) -> None:
        """Let a person say what became of the write under the cursor; of the first unknown one, from elsewhere."""
        action = self._entry.unknown if self._entry is not None else None
        if action is None and (first := self._first_unknown) is not None:
            self._table.seek(first.key)
            action = first.unknown
        if action is not None:
            self._actions.resolve(action)

    async def action_undo(self) -> None:
        """Make the outcome unknown again: what a person said of it was a mistake."""
        if self._entry is not None:
            await self._actions.undo(self._entry)

    async def action_resend(self) -> None:
        """Open the form with what was sent: to put it right, and to send it as a new action."""
        if self._entry is not None and self._entry.is_resendable:
            await self._actions.resend(self._entry)

    def action_copy_id(self) -> None:
        """Copy the id of what it made; of the action, where it made nothing."""
        if self._entry is not None:
            self.session.copy(self._entry.source.result_id or self._entry.source.action_id)

    def action_search(self) -> None:
        """The keys go to the search."""
        self.query_one(ListSearch).focus()

    def action_view(self, step: int) -> None:
        """The next view, or the one before."""
        self._ask(replace(self._query, view=(self._query.view + step) % len(VIEWS)))

    def action_since(self) -> None:
        """Another stretch of time."""
        self._ask(self._query.later())

    def action_kinds(self) -> None:
        """Ask which kinds are wanted."""
        kinds = dict(sorted((self._activity or Activity()).kinds.items()))
        self._pick("Show what", kinds, self._query.kinds, kind_badge, lambda kinds: replace(self._query, kinds=kinds))

    def action_outcomes(self) -> None:
        """Ask which outcomes are wanted."""
        found = (self._activity or Activity()).outcomes
        query = self._query
        self._pick("Show outcome", found, query.outcomes, outcome_badge, lambda picked: replace(query, outcomes=picked))

    def action_pane(self) -> None:
        """Show or hide the facts."""
        self.query_one("#activity").toggle_class("-no-detail")

    def action_clear(self) -> None:
        """Take the filters away, then the view."""
        view = self._query.view if self._query.is_narrowed else 0
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = ""
        self._ask(ActivityQuery(view=view))

    # What it hears from its widgets

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        self.query_one(ActivityPane).show(self._table.item, self._engine.clock())
        self.refresh_bindings()

    @on(LineTable.Chosen)
    async def _chosen(self) -> None:
        await self.action_open()

    @on(LineTable.EndReached)
    def _end_reached(self) -> None:
        if self._activity is not None and self._activity.has_more:
            self._limit += PAGE
            self._reader.ask()

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
        if message.name.isdigit():
            self._ask(replace(self._query, view=int(message.name)))
        else:
            await self.run_action(message.name)

    # How it does that

    @property
    def _nothing(self) -> Notice:
        if self.session.storage_trouble:
            return UNREADABLE
        return READING if self._activity is None else nothing(self._query, self._activity.held)

    @property
    def _entry(self) -> Entry | None:
        item = self._table.item if self.is_mounted else None
        return item if isinstance(item, Entry) else None

    @property
    def _batches(self) -> tuple[BatchView, ...]:
        """Those of this console, while every write is on show."""
        return self.session.batches.views if self._query == ActivityQuery() else ()

    @property
    def _first_unknown(self) -> Entry | None:
        entries = self._activity.entries if self._activity is not None else ()
        return next((entry for entry in entries if entry.unknown is not None), None)

    def _push(self, screen: Screen[Any], callback: Callable[[Any], None]) -> None:
        self.app.push_screen(screen, callback)

    def _search_now(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self._ask(replace(self._query, search=" ".join(self.query_one(ListSearch).value.split())))

    def _ask(self, query: ActivityQuery) -> None:
        if query != self._query:
            self._query, self._limit = query, PAGE
            self._reader.ask()

    async def _read(self) -> None:
        query = self._query
        condition = query.condition(self._engine.clock())
        before = self._activity or Activity()
        found = await read_activity(self._engine.ledger, condition, limit=self._limit, before=before)
        found = await with_candidates(found, self._engine.reconciliation)
        if query != self._query:
            return  # The query changed: the next reading is already asked for.
        self._activity = found
        self._show()
        first = self._first_unknown
        self._table.seek(first.key if self._sought == UNKNOWN_PLACE and first is not None else self._sought)
        self._sought = ""
        self._explain()

    def _show(self) -> None:
        """The rows: what is unknown first, then batches and what else was written, the newest first."""
        if self._activity is None:
            return
        rows = with_batches(self._activity.entries, self._batches)
        self.query_one("#activity").set_class(not rows, "-empty")
        self._table.show(rows)
        self.refresh_bindings()

    def _pick(
        self,
        title: str,
        counts: Mapping[str, int],
        wanted: tuple[str, ...],
        badge_of: Callable[[str], Badge],
        then: Callable[[tuple[str, ...]], ActivityQuery],
    ) -> None:
        from app.console.mark_picker import MarkPicker, Picked

        if not counts:
            self.session.notify("Nothing happened yet: there is nothing to choose from.")
            return

        def picked(names: Picked | None) -> None:
            if names is not None:
                self._ask(then(names[0]))

        self.app.push_screen(MarkPicker(title, counts, wanted, badge_of=badge_of), picked)

    def _explain(self) -> None:
        """Say what is filtered by, how much is on show, and why there may be nothing."""
        query, found = self._query, self._activity
        extent = f"{found.matching:,} of {found.held:,}" if found is not None and found.held else ""
        chips = filters(query) if extent or query.is_narrowed else ()
        if self.size.width < WIDE:
            chips = tuple(chip for chip in chips if chip.is_set)
        self.query_one(ActivityBar).show(views(query), chips, extent)
        self._table.say(self._nothing)
