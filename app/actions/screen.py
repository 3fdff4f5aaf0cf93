"""The Activity tab: every write with its outcome, unknown ones first."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import merge
from typing import ClassVar, Final, cast

from msgspec import Struct
from msgspec.structs import replace
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.reactive import var
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from app.actions.copies import UnfaithfulError
from app.actions.refusals import ActionRefusedError
from app.actions.screen_resolve import ResolveForm
from app.actions.screen_writes import form_for
from app.api.requests import about
from app.console.base import TABS_CSS, BaseScreen
from app.console.feeds import CoalescedTask
from app.console.session import FIRST_UNKNOWN, GoToTab, OpenRun, Session
from app.console.troubles import UNREADABLE
from app.engine.events import ActionChanged, Event, FilesChangedElsewhere, StateChangedElsewhere
from app.engine.text import safe_text
from app.runs.screen_pickers import ValuePicker
from storage.errors import LedgerRefusedError, StorageError
from storage.records import Action, ActionFailure, ActionFilter, ActionState
from storage.records.decision import OPEN_OUTCOMES, Decision
from widgets.actions import COLUMNS, ActivityBar, ActivityEntry, kind_label
from widgets.forms.facts import FactPane, TableAndFacts
from widgets.forms.inputs import ListSearch
from widgets.frame import Notice
from widgets.kit import hidden
from widgets.kit.badges import ACTION_BADGES, STYLES, Badge
from widgets.kit.cells import Column
from widgets.kit.choice_lists import PickItem
from widgets.kit.line_table import LineTable
from widgets.kit.line_text import Chip, ChipBar, SteadyText

EVERYTHING: Final = ActionFilter()


NOTHING_YET: Final = Notice(
    "○",
    "No writes from here yet",
    (
        "Every write is recorded here before it is sent, with its outcome: yours and those of automations.",
        "Press 1, then n, to start a run.",
    ),
    "plain",
)


class Activity(Struct, frozen=True):
    """The writes that match the query, up to a limit, and the counts of all writes by kind and by outcome."""

    entries: tuple[ActivityEntry, ...]
    """Unknown outcomes first, then the others; the newest first among each."""
    matching: int
    kinds: Mapping[str, int]
    outcomes: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.kinds.values())


def unsent_entry(decision: Decision) -> ActivityEntry:
    """The entry of a continuation that is waiting, or was cancelled or given up unsent."""
    request = json.loads(decision.request_json or "{}")
    waits = decision.outcome in OPEN_OUTCOMES
    action = Action(
        action_id=f"when-ended-{decision.decision_id}",
        kind="run.continue",
        subject=decision.occurrence.facts["run.id"],
        key=f"when-ended-{decision.decision_id}",
        path=str(request.get("path", "")),
        body_json=json.dumps(request.get("body", {}), ensure_ascii=False),
        actor=decision.occurrence.facts["actor"],
        state="prepared" if waits else "not_sent",
        created_at=decision.decided_at,
        settled_at=decision.settled_at,
        error=None if waits else ActionFailure("given_up", decision.reason),
    )
    return ActivityEntry(action, about(action), decision.decision_id if waits else None)


def is_wanted(action: Action, wanted: ActionFilter, *more: str) -> bool:
    """Whether the filter includes the write; words may also be in `more`."""
    words = action.kind, action.state, action.subject, action.actor, action.action_id, action.result_id or ""
    text = " ".join((*words, action.body_json, *more)).casefold()
    return (
        (not wanted.kinds or action.kind in wanted.kinds)
        and (not wanted.states or action.state in wanted.states)
        and all(word in text for word in wanted.words)
    )


PAGE: Final = 300
"""Entries read at first, and again whenever the last one is reached."""
WIDE: Final = 110
"""A narrower screen shows only the filters that are set; the bottom line has the keys of all."""
READING: Final = Notice("◌", "Reading the ledger…", tone="busy")


class ActivityScreen(BaseScreen):
    """A table of writes, unknown ones first, then the newest."""

    TAB = "activity"
    FILTERS: ClassVar[tuple[str, ...]] = ("kinds", "outcomes")
    CSS_PATH = TABS_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "resolve", "resolve", tooltip="Record the result of an unknown outcome", id="activity.resolve"),
        Binding("u", "undo", "undo", tooltip="Make the outcome unknown again", id="activity.undo"),
        Binding(
            "E",
            "edit",
            "edit and resend",
            tooltip="Edit a request that had no effect, and send it",
            id="activity.resend",
        ),
        Binding("X", "cancel_waiting", "cancel", tooltip="Do not send it when its run ends", id="activity.cancel"),
        Binding("slash", "search", "search", tooltip="Requests, answers and errors", id="activity.find"),
        Binding("W", "kinds", "what", tooltip="Filter by kind", id="activity.kinds"),
        Binding("s", "outcomes", "outcome", tooltip="Filter by outcome", id="activity.outcomes"),
        hidden("y", "copy_id", "copy id", id="activity.copy_id"),
        hidden("escape", "clear", "clear filters", id="activity.clear"),
    ]
    wanted: var[ActionFilter] = var(EVERYTHING, init=False)

    COLUMNS: ClassVar[tuple[Column, ...]] = COLUMNS
    nothing_yet: Notice = NOTHING_YET

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._engine = session.open_engine
        self._table = LineTable[ActivityEntry](session.clock(), self.COLUMNS)
        self._list = TableAndFacts(self._table, FactPane[ActivityEntry](), id=self.TAB)
        self.aging = (self._list,)
        self._found: Activity | None = None
        """The entries as read last, or None if they were not read yet."""
        self._sought = ""
        """The write that the next reading moves the cursor to, or empty if the cursor stays."""
        self._limit = PAGE
        self._reader = CoalescedTask(self._read, self.run_worker)

    # Hooks for lists of other writes

    async def load(self, wanted: ActionFilter) -> Activity:
        """Read the entries that match, up to the limit: all unknown ones, continuations that wait, then the others.

        Entries read before are used again, so that their requests are not parsed twice.
        """
        engine, limit = self._engine, self._limit
        follow_ups = () if isinstance(engine.state, StorageError) else await engine.follow_ups.list_unsent()
        known = {} if self._found is None else {entry.source: entry for entry in self._found.entries}
        unknown = await engine.ledger.actions(replace(wanted, is_unresolved=True), limit)
        newest = await engine.ledger.actions(wanted, limit)
        matching = await engine.ledger.count(wanted)
        pinned = {action.action_id for action in unknown}
        actions = (*unknown, *(action for action in newest if action.action_id not in pinned))
        kinds: Counter[str] = Counter()
        outcomes: Counter[str] = Counter()
        for (kind, outcome), count in (await engine.ledger.state_counts()).items():
            kinds[kind] += count
            outcomes[outcome] += count
        entries = [known.get(action) or ActivityEntry(action, about(action)) for action in actions]
        unsent = [entry for entry in map(unsent_entry, follow_ups) if is_wanted(entry.source, wanted)]
        kinds.update(entry.source.kind for entry in unsent)
        outcomes.update(entry.source.state for entry in unsent)

        def order_key(entry: ActivityEntry) -> tuple[bool, bool, float]:
            return entry.unknown is None, entry.waits is None, -entry.source.created_at.timestamp()

        # The ledger's own order stays, even if the clock was set back.
        entries = [*merge(sorted(unsent, key=order_key), entries, key=order_key)]
        return Activity(tuple(entries), matching + len(unsent), kinds, outcomes)

    def extent(self, activity: Activity) -> Content:
        return Content.styled(f"{activity.matching:,} of {activity.total:,}", STYLES["quiet"])

    def compose_body(self) -> Iterable[Widget]:
        yield ActivityBar()
        yield self._list

    def on_mount(self) -> None:
        self._table.focus()
        self._explain()
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        if isinstance(event, ActionChanged | FilesChangedElsewhere | StateChangedElsewhere):
            self._reader.ask()

    def watch_wanted(self) -> None:
        self._limit = PAGE
        self._reader.ask()

    async def _read(self) -> None:
        wanted, sought = self.wanted, self._sought
        activity = await self.load(wanted)
        if (wanted, sought) != (self.wanted, self._sought):
            return  # The query has changed, and the next reading uses the new one.
        self._found, self._sought = activity, ""
        self._list.show(activity.entries)
        self._explain()
        self.show_trouble()
        first = self.first_unknown
        self._table.seek(first.key if sought == FIRST_UNKNOWN and first is not None else sought)

    @on(events.Resize)
    def _explain(self) -> None:
        """Show the filters that fit the width, and the counts."""
        wanted, activity = self.wanted, self._found
        extent = self.extent(activity) if activity is not None and activity.total else Content()
        words = [kind_label(kind) for kind in wanted.kinds], [ACTION_BADGES[state].word for state in wanted.states]
        kinds, outcomes = (f"{names[0]} +{len(names) - 1}".removesuffix(" +0") if names else "any" for names in words)
        chips = (
            Chip("kinds", safe_text(f"what {kinds} ▾"), bool(wanted.kinds)),
            Chip("outcomes", safe_text(f"outcome {outcomes} ▾"), bool(wanted.states)),
        )
        shows_all = self.size.width >= WIDE and (bool(extent) or wanted != EVERYTHING)
        visible = tuple(chip for chip in chips if chip.action in self.FILTERS and (chip.is_set or shows_all))
        self.query_one(ChipBar).chips = visible
        self.query_one("#activity-extent", SteadyText).update(extent)

    def go_to(self, target: str) -> None:
        """Clear the filters and move the cursor to the write with this id, or to the first unknown one."""
        if target:
            self.return_to((EVERYTHING, target))

    @property
    def bookmark(self) -> tuple[ActionFilter, str]:
        return self.wanted, "" if self._table.item is None else self._table.item.key

    def return_to(self, bookmark: tuple[ActionFilter, str]) -> None:
        wanted, self._sought = bookmark
        with self.prevent(Input.Changed):
            self.query_one(ListSearch).value = wanted.search
        self.wanted = wanted
        self._reader.ask()

    def show_trouble(self) -> None:
        super().show_trouble()
        if self.session.vitals.storage_trouble:
            self._table.notice = UNREADABLE
        elif self._found is None:
            self._table.notice = READING
        elif self.wanted != EVERYTHING and self._found.total:
            hidden_rows = f"{self._found.total:,} in all; press esc to show them."
            self._table.notice = Notice("∅", "No write matches", (hidden_rows,))
        else:
            self._table.notice = self.nothing_yet

    @property
    def first_unknown(self) -> ActivityEntry | None:
        entries = () if self._found is None else self._found.entries
        return next((entry for entry in entries if entry.unknown is not None), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        entry = self._table.item
        match action:
            case "resolve":
                return self.first_unknown is not None
            case "undo":
                return entry is not None and entry.source.resolution in {"created", "not_created"}
            case "cancel_waiting":
                return entry is not None and entry.waits is not None and not self._engine.actions.read_only
            case "edit":
                return entry is not None and entry.is_resendable and not self._engine.actions.read_only
            case "copy_id":
                return True if entry is not None else None
            case "search" | "kinds" | "outcomes":
                is_filter = action == "search" or action in self.FILTERS
                return is_filter and self._found is not None and self._found.total > 0
        return super().check_action(action, parameters)

    @work
    async def action_kinds(self) -> None:
        if self._found is not None:
            kinds = sorted(self._found.kinds.items())
            items = [PickItem(kind, Badge("·", kind_label(kind), "plain"), f"{count:,}") for kind, count in kinds]
            sheet = ValuePicker("Filter by kind", items, tuple(self.wanted.kinds))
            if (picked := await self.app.push_screen_wait(sheet)) is not None:
                self.wanted = replace(self.wanted, kinds=picked[0])

    @work
    async def action_outcomes(self) -> None:
        if self._found is not None:
            counts: dict[str, int] = dict.fromkeys(self.wanted.states, 0) | dict(self._found.outcomes)
            items = [
                PickItem(state, ACTION_BADGES[cast("ActionState", state)], f"{n:,}") for state, n in counts.items()
            ]
            sheet = ValuePicker("Filter by outcome", items, tuple(self.wanted.states))
            if (picked := await self.app.push_screen_wait(sheet)) is not None:
                self.wanted = replace(self.wanted, states=picked[0])

    def action_search(self) -> None:
        self.query_one(ListSearch).focus()

    def action_clear(self) -> None:
        self.return_to((EVERYTHING, self._sought))

    @on(Input.Changed)
    @work(group="search", exclusive=True)
    async def search_soon(self) -> None:
        await asyncio.sleep(0.08)
        self._search_now()

    @on(ListSearch.Left)
    def end_search(self) -> None:
        self._search_now()
        self._table.focus()

    def _search_now(self) -> None:
        self.wanted = replace(self.wanted, search=" ".join(self.query_one(ListSearch).value.split()))

    def action_copy_id(self) -> None:
        if (entry := self._table.item) is not None:
            self.session.copy(entry.source.result_id or entry.source.action_id)

    def action_resolve(self) -> None:
        """Open the form that resolves the write under the cursor; from elsewhere, the first unknown one."""
        action = None if self._table.item is None else self._table.item.unknown
        if action is None and (first := self.first_unknown) is not None:
            self._table.seek(first.key)
            action = first.unknown
        if action is not None:
            self.open_form(ResolveForm(self._engine, action))

    async def action_undo(self) -> None:
        if (entry := self._table.item) is None:
            return
        try:
            await self._engine.actions.undo_resolution(entry.source.action_id)
        except (ActionRefusedError, LedgerRefusedError) as error:
            self.session.notify(str(error), severity="warning")
        else:
            self.session.notify("Its outcome is unknown again: press v to resolve it.")

    async def action_cancel_waiting(self) -> None:
        if (entry := self._table.item) is None or entry.waits is None:
            return
        is_cancelled = await self._engine.follow_ups.cancel(entry.waits)
        self.session.notify("Cancelled: it is not sent. Press E to send it anyway." if is_cancelled else "It was sent.")

    async def action_edit(self) -> None:
        if (entry := self._table.item) is None or not entry.is_resendable:
            return
        try:
            form = await form_for(self._engine, entry.source)
        except UnfaithfulError as error:
            self.session.notify(str(error), severity="warning")
        else:
            self.open_form(form)

    def open_form(self, form: ModalScreen[Action | None]) -> None:
        """Open a form; once it closes, the cursor moves to its write."""

        def take_result(action: Action | None) -> None:
            self._sought = action.action_id if action is not None else self._sought
            self._reader.ask()
            if action is not None and action.state == "confirmed":
                self.session.poll_soon()

        self.app.push_screen(form, take_result)

    @on(LineTable.EndReached)
    def read_more(self) -> None:
        if self._found is not None and self._found.matching > len(self._found.entries):
            self._limit += PAGE
            self._reader.ask()

    @on(LineTable.Chosen)
    @work
    async def open_entry(self) -> None:
        if (entry := self._table.item) is None:
            return
        if entry.source.kind == "organization.create":
            self.post_message(GoToTab("organizations" if self.TAB == "activity" else "activity", entry.key))
        elif (run_id := entry.run_id) is None:
            self.session.notify("It created no run to open.")
        elif await self._engine.cache.detail(run_id) is None:
            self.session.notify(f"No listed run has the id {safe_text(run_id)}.", severity="warning")
        else:
            self.post_message(OpenRun(run_id))
