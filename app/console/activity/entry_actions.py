"""The actions on one entry of Activity: open what it made, resolve it, undo that, send it again."""

from typing import TYPE_CHECKING, Final

from textual.binding import Binding

from app.actions import ActionRefusedError
from app.console.activity.loaders import ActivityLoader
from app.console.base.batch_screen import BatchScreen
from app.console.messages import GoToTab, OpenRun
from app.console.runs.screen_context import ScreenContext
from app.text import safe_text
from storage.ledger import LedgerRefusedError
from storage.records import Action
from widgets.activity.formatting import ActivityEntry
from widgets.activity.table import ActivityTable
from widgets.batch import BatchView

if TYPE_CHECKING:
    from app.engine import Engine

ORGANIZATION: Final = "organization.create"


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
        """Whether the action has something to act on; None: the cursor is on no write."""
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
            # A write that made nothing has its action to open.
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
        from app.console.forms.resend import UnfaithfulError, form_for

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
