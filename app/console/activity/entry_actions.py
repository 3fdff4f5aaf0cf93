"""What can be done with one entry of the activity: go to what it made, resolve it, undo that, send it again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from textual.message import Message
from textual.screen import Screen

from app.actions import ActionRefusedError
from app.console.batch_screen import BatchScreen
from app.console.messages import GoToTab, OpenRun
from app.console.session import Session
from app.text import safe_text
from storage.ledger import LedgerRefusedError
from storage.records import Action
from widgets.activity.formatting import Entry
from widgets.batch import BatchView

if TYPE_CHECKING:
    from app.engine import Engine

ORGANIZATION: Final = "organization.create"


class EntryActions:
    """The actions on an entry."""

    def __init__(
        self,
        session: Session,
        engine: "Engine",
        push_screen: Callable[[Screen[Any], Callable[[Any], None]], object],
        post: Callable[[Message], object],
        changed: Callable[[], object],
    ) -> None:
        """Prepare; `changed` is called where the ledger may have changed."""
        self._session = session
        self._engine = engine
        self._push_screen = push_screen
        self._post = post
        self._changed = changed

    async def open(self, entry: Entry | BatchView) -> None:
        """Go to the run, the organization or the batch that it is about."""
        if isinstance(entry, BatchView):
            self._push_screen(BatchScreen(self._session, entry.key), self._run_picked)
        elif entry.source.kind == ORGANIZATION:
            self._post(GoToTab("organizations", entry.key))
        elif (run_id := entry.run_id) is None:
            self._session.notify("It made no run: there is nothing to go to.")
        elif await self._engine.cache.detail(run_id) is None:
            self._session.notify(f"No listed run has the id {safe_text(run_id)}.", severity="warning")
        else:
            self._post(OpenRun(run_id))

    def resolve(self, action: Action) -> None:
        """Let a person say what became of a write."""
        from app.console.forms import ResolveForm

        self._push_screen(ResolveForm(self._engine, action), self._resolved)

    async def undo(self, entry: Entry) -> None:
        """Make the outcome unknown again: what a person said of it was a mistake."""
        try:
            await self._engine.actions.undo_resolution(entry.source.action_id)
        except (ActionRefusedError, LedgerRefusedError) as error:
            self._session.notify(str(error), severity="warning")
        else:
            self._session.notify("Its outcome is unknown again; v resolves it.")

    async def resend(self, entry: Entry) -> None:
        """Open the form with what was sent: to put it right, and to send it as a new action."""
        from app.console.forms.resend import UnfaithfulError, form_for

        try:
            form = await form_for(self._engine, entry.source)
        except UnfaithfulError as error:
            self._session.notify(str(error), severity="warning")
        else:
            self._push_screen(form, self._form_closed)

    def _resolved(self, _: Action | None) -> None:
        self._changed()

    def _form_closed(self, action: Action | None) -> None:
        self._changed()
        if action is not None and action.state == "confirmed":
            self._session.poll_soon()

    def _run_picked(self, run_id: str | None) -> None:
        if run_id is not None:
            self._post(OpenRun(run_id))
