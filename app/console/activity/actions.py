"""The keys of Activity: those that change its query, and those that act on the entry under the cursor."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.binding import Binding

from app.actions import ActionRefusedError
from app.console.activity.loaders import Activity, ActivityLoader
from app.console.activity.query import VIEWS, ActivityQuery, kind_badge
from app.console.base.batch_screen import BatchScreen
from app.console.messages import GoToTab, OpenRun
from app.console.runs.screen_context import ScreenContext
from app.text import safe_text
from storage.ledger import LedgerRefusedError
from storage.records import Action
from widgets.activity.formatting import ActivityEntry, outcome_badge
from widgets.activity.table import ActivityTable
from widgets.badges import Badge
from widgets.batch import BatchView

if TYPE_CHECKING:
    from app.console.sheets.mark_picker import Picked
    from app.engine import Engine

ORGANIZATION: Final = "organization.create"
_hidden = partial(Binding, show=False)
_OLDER: Final = "The last hour, day, week, month, or any time"
QUERY_BINDINGS: Final = (
    Binding("W", "query('kinds')", "what", tooltip="Show only some kinds", id="activity.kinds"),
    Binding("s", "query('outcomes')", "outcome", tooltip="Show only some outcomes", id="activity.outcomes"),
    Binding("t", "query('since')", "since", tooltip=_OLDER, id="activity.since"),
    _hidden("right_square_bracket", "query('next_view')", "next view", key_display="]", id="activity.next_view"),
    _hidden("left_square_bracket", "query('view_before')", "previous view", key_display="[", id="activity.prev_view"),
)
ENTRY_BINDINGS: Final = (
    Binding(
        "v", "entry('resolve')", "resolve", tooltip="Record the result of an unknown outcome", id="activity.resolve"
    ),
    Binding("u", "entry('undo')", "undo", tooltip="Make the outcome unknown again", id="activity.undo"),
    Binding(
        "E",
        "entry('resend')",
        "edit and resend",
        tooltip="Edit a rejected or unsent request, and send it",
        id="activity.resend",
    ),
)


class QueryActions:
    """The actions that change the query of a loader, by name."""

    def __init__(self, context: ScreenContext, loader: ActivityLoader) -> None:
        self._context = context
        self._loader = loader
        self._actions: dict[str, Callable[[], None]] = {
            "kinds": self._ask_kinds,
            "outcomes": self._ask_outcomes,
            "since": lambda: loader.show(loader.query.with_next_since()),
            "next_view": lambda: self._step_view(1),
            "view_before": lambda: self._step_view(-1),
            **{str(view): partial(self._show_view, view) for view in range(len(VIEWS))},
        }

    def do(self, name: str) -> None:
        """Run the action of a key or a chip; a view's chip is named by its index."""
        self._actions[name]()

    def is_possible(self, name: str) -> bool:
        """Whether there is something to choose from."""
        return name not in {"kinds", "outcomes", "since"} or self._loader.total > 0

    def search(self, words: str) -> None:
        """Search for these words."""
        self._loader.show(replace(self._loader.query, search=" ".join(words.split())))

    def clear(self) -> None:
        """Clear the filters; if there are none, go back to the first view."""
        query = self._loader.query
        self._loader.show(ActivityQuery(view=query.view if query.is_narrowed else 0))

    def _show_view(self, view: int) -> None:
        self._loader.show(replace(self._loader.query, view=view))

    def _step_view(self, step: int) -> None:
        self._show_view((self._loader.query.view + step) % len(VIEWS))

    def _ask_kinds(self) -> None:
        kinds = dict(sorted((self._loader.found or Activity()).kinds.items()))
        self._ask("Show what", kinds, self._loader.query.kinds, kind_badge, lambda q, names: replace(q, kinds=names))

    def _ask_outcomes(self) -> None:
        found, before = (self._loader.found or Activity()).outcomes, self._loader.query.outcomes
        self._ask("Show outcome", found, before, outcome_badge, lambda q, names: replace(q, outcomes=names))

    def _ask(
        self,
        title: str,
        counts: Mapping[str, int],
        before: tuple[str, ...],
        badge_of: Callable[[str], Badge],
        narrowed: Callable[[ActivityQuery, tuple[str, ...]], ActivityQuery],
    ) -> None:
        from app.console.sheets.mark_picker import MarkPicker

        if not counts:
            self._context.session.notify("Nothing happened yet: there is nothing to choose from.")
            return

        def picked(names: "Picked | None") -> None:
            if names is not None:
                self._loader.show(narrowed(self._loader.query, names[0]))

        self._context.push_screen(MarkPicker(title, counts, before, badge_of=badge_of), picked)


class EntryActions:
    """The actions on the entry under a table's cursor, by name."""

    def __init__(self, context: ScreenContext, engine: "Engine", table: ActivityTable, loader: ActivityLoader) -> None:
        self._context = context
        self._session = context.session
        self._engine = engine
        self._table = table
        self._loader = loader

    @property
    def _entry(self) -> ActivityEntry | None:
        item = self._table.item
        return item if isinstance(item, ActivityEntry) else None

    def is_possible(self, name: str) -> bool | None:
        """Whether the action has something to act on; None: its key is dimmed, as the cursor is on no write."""
        entry = self._entry
        if name == "resolve":
            return self._loader.first_unknown is not None
        if name == "undo":
            return entry is not None and entry.source.resolution in {"created", "not_created"}
        if name == "resend":
            return entry is not None and entry.is_resendable and not self._engine.actions.read_only
        return True if entry is not None else None

    async def do(self, name: str) -> None:
        """Run one action."""
        entry = self._entry
        if name == "resolve":
            self._resolve(entry)
        elif entry is None:
            return
        elif name == "undo":
            await self._undo(entry)
        elif name == "resend" and entry.is_resendable:
            await self._resend(entry)
        elif name == "copy_id":
            # A write without a result is identified by its action.
            self._session.copy(entry.source.result_id or entry.source.action_id)

    async def open(self) -> None:
        """Open the run, the organization or the batch of the entry."""
        entry = self._table.item
        if entry is None:
            return
        if isinstance(entry, BatchView):
            self._context.push_screen(BatchScreen(self._session, entry.key), self._run_picked)
        elif entry.source.kind == ORGANIZATION:
            self._context.post(GoToTab("organizations", entry.key))
        elif (run_id := entry.run_id) is None:
            self._session.notify("It made no run: there is nothing to go to.")
        elif await self._engine.cache.detail(run_id) is None:
            self._session.notify(f"No listed run has the id {safe_text(run_id)}.", severity="warning")
        else:
            self._context.post(OpenRun(run_id))

    def _resolve(self, entry: ActivityEntry | None) -> None:
        """Open the form that resolves the write under the cursor; from elsewhere, the first unknown one."""
        from app.console.forms import ResolveForm

        action = None if entry is None else entry.unknown
        if action is None and (first := self._loader.first_unknown) is not None:
            self._table.seek(first.key)
            action = first.unknown
        if action is not None:
            self._context.push_screen(ResolveForm(self._engine, action), lambda _: self._loader.ask())

    async def _undo(self, entry: ActivityEntry) -> None:
        """Make the outcome unknown again: the resolution was a mistake."""
        try:
            await self._engine.actions.undo_resolution(entry.source.action_id)
        except (ActionRefusedError, LedgerRefusedError) as error:
            self._session.notify(str(error), severity="warning")
        else:
            self._session.notify("Its outcome is unknown again; v resolves it.")

    async def _resend(self, entry: ActivityEntry) -> None:
        """Open the form with the request that was sent, to correct it and send it as a new action."""
        from app.console.forms.copies import UnfaithfulError
        from app.console.forms.writes import form_for

        try:
            form = await form_for(self._engine, entry.source)
        except UnfaithfulError as error:
            self._session.notify(str(error), severity="warning")
        else:
            self._context.push_screen(form, self._form_closed)

    def _form_closed(self, action: Action | None) -> None:
        self._loader.ask()
        if action is not None and action.state == "confirmed":
            self._session.poll_soon()

    def _run_picked(self, run_id: str | None) -> None:
        if run_id is not None:
            self._context.post(OpenRun(run_id))
