"""The Activity tab: every write with its outcome, unknown ones first."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import Input

from app.actions import ActionRefusedError
from app.console.activity.query import (
    SINCE,
    VIEWS,
    Activity,
    ActivityQuery,
    filters,
    kind_badge,
    nothing,
    read_activity,
    views,
    with_batches,
    with_candidates,
)
from app.console.base.batch_screen import BatchScreen
from app.console.base.screen import BaseScreen
from app.console.messages import FIRST_UNKNOWN, GoToTab, OpenRun
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import UNREADABLE
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from app.text import safe_text
from storage.ledger import LedgerRefusedError
from storage.records import Action
from widgets.activity import ActivityBar, ActivityEntry, ActivityPane, ActivityTable, outcome_badge
from widgets.badges import Badge
from widgets.batch import BatchView
from widgets.clickable import ChipBar
from widgets.forms.inputs import ListSearch
from widgets.frame.notice import Notice
from widgets.line_table import LineTable

if TYPE_CHECKING:
    from textual.timer import Timer

    from app.console.sheets.mark_picker import Picked
    from app.engine import Engine

PAGE: Final = 300
"""Entries read at first, and again whenever the last one is reached."""
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
        Binding("v", "resolve", "resolve", tooltip="Record the result of an unknown outcome", id="activity.resolve"),
        Binding("u", "undo", "undo", tooltip="Make the outcome unknown again", id="activity.undo"),
        Binding(
            "E",
            "resend",
            "edit and resend",
            tooltip="Edit a rejected or unsent request, and send it",
            id="activity.resend",
        ),
        Binding(
            "slash", "search", "search", key_display="/", tooltip="Requests, answers and errors", id="activity.find"
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
    wanted: var[ActivityQuery] = var(ActivityQuery, init=False)
    """The view and the filters."""

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._table = ActivityTable(engine.clock())
        self._found: Activity | None = None
        """The entries as read last; None: they were not read yet."""
        self._sought = ""
        """The write that the next reading moves the cursor to; empty: the cursor stays."""
        self._limit = PAGE
        self._reader = CoalescedTask(self._read, self.run_worker)
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
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read the writes again after a change of the ledger, or of runs that may explain an unknown outcome."""
        may_explain = isinstance(event, RunsChanged) and self._first_unknown is not None
        if may_explain or isinstance(event, ActionChanged | CacheChangedElsewhere):
            self._reader.ask()

    def watch_wanted(self) -> None:
        """Read the writes of another query."""
        self._limit = PAGE
        self._reader.ask()

    async def _read(self) -> None:
        wanted, sought, engine = self.wanted, self._sought, self._engine
        condition = wanted.condition(engine.clock())
        found = await read_activity(engine.ledger, condition, limit=self._limit, before=self._found or Activity())
        found = await with_candidates(found, engine.reconciliation)
        if (wanted, sought) != (self.wanted, self._sought):
            return  # Something else was asked for in between: it is read next.
        self._found, self._sought = found, ""
        self._show()
        first = self._first_unknown
        self._table.seek(first.key if sought == FIRST_UNKNOWN and first is not None else sought)
        self._explain()

    def _show(self) -> None:
        """Show the rows: unknown ones first, then batches and other writes, newest first."""
        if self._found is not None:
            # The batches of this console, if all writes are shown.
            batches = self.session.batches.views if self.wanted == ActivityQuery() else ()
            rows = with_batches(self._found.entries, batches)
            self.query_one("#activity").set_class(not rows, "-empty")
            self._table.show(rows)
            self.refresh_bindings()

    def _explain(self) -> None:
        """Show the filters, the counts and the reason for an empty list."""
        query, found = self.wanted, self._found
        extent = f"{found.matching:,} of {found.total:,}" if found is not None and found.total else ""
        chips = filters(query) if extent or query.is_narrowed else ()
        if self.size.width < WIDE:
            chips = tuple(chip for chip in chips if chip.is_set)
        self.query_one(ActivityBar).show(views(query), chips, extent)
        self._table.say(self._nothing)

    @property
    def _nothing(self) -> Notice:
        if self.session.vitals.storage_trouble:
            return UNREADABLE
        return READING if self._found is None else nothing(self.wanted, self._found.total)

    def go_to(self, target: str) -> None:
        """Clear the filters and move the cursor to the write with this id, or to the first unknown one."""
        if target:
            self.return_to((ActivityQuery(), target))

    @property
    def bookmark(self) -> tuple[ActivityQuery, str]:
        """The query and the entry under the cursor."""
        return self.wanted, "" if self._table.item is None else self._table.item.key

    def return_to(self, bookmark: tuple[ActivityQuery, str]) -> None:
        """Restore that query, with the cursor on that entry."""
        query, self._sought = bookmark
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = query.search
        self.wanted = query
        self._reader.ask()

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

    @property
    def _entry(self) -> ActivityEntry | None:
        """The write under the cursor; None: the cursor is on a batch, or on nothing."""
        return self._table.item if isinstance(self._table.item, ActivityEntry) else None

    @property
    def _first_unknown(self) -> ActivityEntry | None:
        return None if self._found is None else self._found.first_unknown

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide or dim the keys that have no effect now."""
        entry = self._entry
        match action:
            case "resolve":
                return self._first_unknown is not None
            case "undo":
                return entry is not None and entry.source.resolution in {"created", "not_created"}
            case "resend":
                return entry is not None and entry.is_resendable and not self._engine.actions.read_only
            case "copy_id":
                return True if entry is not None else None
            case "search" | "kinds" | "outcomes" | "since":
                return self._found is not None and self._found.total > 0
        return super().check_action(action, parameters)

    # Keys that change the query

    def action_view(self, step: int) -> None:
        """Show the next view, or the one before."""
        self.action_show_view((self.wanted.view + step) % len(VIEWS))

    def action_show_view(self, view: int) -> None:
        """Show a view."""
        self.wanted = replace(self.wanted, view=view)

    def action_since(self) -> None:
        """Show the next stretch of time."""
        names = tuple(SINCE)
        self.wanted = replace(self.wanted, since=names[(names.index(self.wanted.since) + 1) % len(names)])

    def action_kinds(self) -> None:
        """Choose the kinds to show."""
        if self._found is not None:
            kinds = dict(sorted(self._found.kinds.items()))
            self._choose("Show what", kinds, self.wanted.kinds, kind_badge, lambda q, names: replace(q, kinds=names))

    def action_outcomes(self) -> None:
        """Choose the outcomes to show."""
        if self._found is not None:
            outcomes, before = self._found.outcomes, self.wanted.outcomes
            self._choose("Show outcome", outcomes, before, outcome_badge, lambda q, names: replace(q, outcomes=names))

    def _choose(
        self,
        title: str,
        counts: Mapping[str, int],
        before: tuple[str, ...],
        badge_of: Callable[[str], Badge],
        narrowed: Callable[[ActivityQuery, tuple[str, ...]], ActivityQuery],
    ) -> None:
        from app.console.sheets.mark_picker import MarkPicker

        def picked(names: "Picked | None") -> None:
            if names is not None:
                self.wanted = narrowed(self.wanted, names[0])

        self.app.push_screen(MarkPicker(title, counts, before, badge_of=badge_of), picked)

    def action_search(self) -> None:
        """Focus the search."""
        self.query_one(ListSearch).focus()

    def action_clear(self) -> None:
        """Clear the filters; if there are none, go back to the first view."""
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = ""
        self.wanted = ActivityQuery(view=self.wanted.view if self.wanted.is_narrowed else 0)

    @on(Input.Changed)
    def _search_changed(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self._search_pause = self.set_timer(SEARCH_PAUSE_S, self._search_now)

    @on(ListSearch.Left)
    def _search_left(self) -> None:
        self._search_now()
        self._table.focus()

    def _search_now(self) -> None:
        if self._search_pause is not None:
            self._search_pause.stop()
        self.wanted = replace(self.wanted, search=" ".join(self.query_one(ListSearch).value.split()))

    @on(ChipBar.Clicked)
    async def _chip_clicked(self, message: ChipBar.Clicked) -> None:
        await self.run_action(message.name)

    # Keys that act on the write under the cursor

    def action_pane(self) -> None:
        """Show or hide the facts."""
        self.query_one("#activity").toggle_class("-no-detail")

    def action_copy_id(self) -> None:
        """Copy the id of the result, or of the action if there is none."""
        if (entry := self._entry) is not None:
            self.session.copy(entry.source.result_id or entry.source.action_id)

    def action_resolve(self) -> None:
        """Open the form that resolves the write under the cursor; from elsewhere, the first unknown one."""
        from app.console.forms import ResolveForm

        action = None if self._entry is None else self._entry.unknown
        if action is None and (first := self._first_unknown) is not None:
            self._table.seek(first.key)
            action = first.unknown
        if action is not None:
            self.app.push_screen(ResolveForm(self._engine, action), lambda _: self._reader.ask())

    async def action_undo(self) -> None:
        """Make the outcome unknown again: the resolution was a mistake."""
        if (entry := self._entry) is None:
            return
        try:
            await self._engine.actions.undo_resolution(entry.source.action_id)
        except (ActionRefusedError, LedgerRefusedError) as error:
            self.session.notify(str(error), severity="warning")
        else:
            self.session.notify("Its outcome is unknown again; v resolves it.")

    async def action_resend(self) -> None:
        """Open the form with the request that was sent, to correct it and send it as a new action."""
        from app.console.forms.copies import UnfaithfulError
        from app.console.forms.writes import form_for

        if (entry := self._entry) is None or not entry.is_resendable:
            return
        try:
            form = await form_for(self._engine, entry.source)
        except UnfaithfulError as error:
            self.session.notify(str(error), severity="warning")
        else:
            self.app.push_screen(form, self._form_closed)

    def _form_closed(self, action: Action | None) -> None:
        self._reader.ask()
        if action is not None and action.state == "confirmed":
            self.session.poll_soon()

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        self.query_one(ActivityPane).show(self._table.item, self._engine.clock())
        self.refresh_bindings()

    @on(LineTable.EndReached)
    def _end_reached(self) -> None:
        if self._found is not None and self._found.has_more:
            self._limit += PAGE
            self._reader.ask()

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        if isinstance(self._table.item, BatchView):
            self.app.push_screen(BatchScreen(self.session, self._table.item.key), self._run_picked)
        elif self._entry is not None:
            self.run_worker(partial(self._open, self._entry))

    def _run_picked(self, run_id: str | None) -> None:
        if run_id is not None:
            self.post_message(OpenRun(run_id))

    async def _open(self, entry: ActivityEntry) -> None:
        """Open the run or the organization of a write."""
        if entry.source.kind == "organization.create":
            self.post_message(GoToTab("organizations", entry.key))
        elif (run_id := entry.run_id) is None:
            self.session.notify("It made no run: there is nothing to go to.")
        elif await self._engine.cache.detail(run_id) is None:
            self.session.notify(f"No listed run has the id {safe_text(run_id)}.", severity="warning")
        else:
            self.post_message(OpenRun(run_id))
