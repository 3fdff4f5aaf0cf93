"""The sending half of every form: it sends once and shows the outcome."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from app.actions import ActionRefusedError, BlockedError
from app.api.requests import WriteRequest
from app.console.forms import outcomes
from app.console.forms.copies import UnfaithfulError, as_command, as_curl
from app.console.forms.drafts import Values
from app.console.forms.form_screen import FormScreen
from app.console.forms.second_press import SecondPress
from app.console.messages import FollowRun, OpenRun
from app.engine import Engine
from app.text import safe_text
from app.times import span
from storage.errors import StorageError
from storage.records import Action
from widgets.after_refresh import after_refresh
from widgets.forms.dialog import FormButton, FormPhase
from widgets.forms.pages import OutcomePage, OutcomeText

if TYPE_CHECKING:
    from textual.timer import Timer


class ActionForm(FormScreen):
    """One write, from the first key to its outcome; closes with the action if it was confirmed or is unknown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "resolve", "Resolve"),
        Binding("y", "copy_id", "Copy id"),
        Binding("y", "copy_curl", "Copy as curl"),
        Binding("Y", "copy_command", "Copy as a command"),
        Binding("enter", "open_run", "Open the run"),
        Binding("f", "follow", "Follow the run"),
    ]
    VERBS: ClassVar[tuple[FormButton, ...]] = (
        *FormScreen.VERBS,
        FormButton("send", "Send", "^s", "forward", ("preview",), is_primary=True),
        FormButton("resolve", "Resolve", "v", "resolve", ("outcome",)),
        FormButton("copy", "Copy id", "y", "copy_id", ("outcome",)),
        FormButton("follow", "Follow", "f", "follow", ("outcome",)),
        FormButton("curl", "Copy as curl", "y", "copy_curl", ("preview",)),
        FormButton("command", "Copy command", "Y", "copy_command", ("preview",)),
        FormButton("open", "Open run", "enter", "open_run", ("outcome",), is_primary=True),
        FormButton("done", "Close", "esc", "back", ("outcome",), is_primary=True),
    )

    def __init__(self, engine: Engine, *, draft: str, fresh_wins: bool = False) -> None:
        """Prepare; see `FormScreen`."""
        super().__init__(engine, draft=draft, fresh_wins=fresh_wins)
        self._result: Action | None = None
        self._open: Action | None = None
        """The action of unknown outcome, if any."""
        self._sending_timer: Timer | None = None
        self._second_press = SecondPress()
        self._began = engine.clock()

    def begin_with(self, values: Values, draft: str) -> None:
        """Use these initial values, and the draft of this name; called before the form is shown."""
        self.beginning = values
        self.form_draft.belong_to(draft, values)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Each key works in its own phases only; none while sending."""
        at_end = self.phase == "outcome"
        if action == "resolve":
            return at_end and self._open is not None
        if action == "copy_id":
            return at_end and self._result is not None
        if action == "open_run":
            return at_end and len(self.run_ids) == 1
        if action == "follow":
            return at_end and bool(self.run_ids)
        if action in {"copy_curl", "copy_command"}:
            return self.phase == "preview"
        return super().check_action(action, parameters)

    def action_forward(self) -> None:
        """Preview, then send."""
        if self.phase == "editing":
            super().action_forward()
        elif self.phase == "preview" and self.request is not None and self.may_send():
            # The phase changes before the first await: a second key finds nothing to send.
            self.enter("sending")
            self.run_worker(self._send(self.request), group="send")

    def may_send(self) -> bool:
        """Whether the preview was seen before the key was pressed, and the profile may write."""
        if self.engine.actions.read_only:
            return False
        if not (is_meant := self._second_press.press()):
            self.dialog.did(safe_text("Look at it first; ^s again sends it."), "warn")
        return is_meant

    def action_back(self) -> None:
        """Go back one step; from an outcome, close, unless nothing was sent."""
        if self.phase == "outcome" and self._result is not None:
            self.dismiss(self._result)
        else:
            super().action_back()

    def action_resolve(self) -> None:
        """Open the form that resolves the open action."""
        from app.console.forms.resolve import ResolveForm

        if self._open is not None:
            self.app.push_screen(ResolveForm(self.engine, self._open), self._resolved)

    def action_copy_id(self) -> None:
        """Copy the id of the result."""
        if self._result is not None:
            self.app.copy_to_clipboard(safe_text(self._result.result_id or self._result.action_id))
            self.dialog.did(safe_text("Copied."))

    def action_copy_curl(self) -> None:
        """Copy the request for curl."""
        self._copy("as curl; it takes the token from RUNWARDEN_TOKEN", partial(as_curl, self.engine.profile.base_url))

    def action_copy_command(self) -> None:
        """Copy the request as runwarden commands."""
        self._copy(
            "as a runwarden command",
            partial(as_command, self._command_line, self.engine.profile.name),
        )

    def _copy(self, how: str, text_of: Callable[[WriteRequest], str]) -> None:
        try:
            text = "\n".join(map(text_of, self.requests(self.values)))
        except UnfaithfulError as error:
            self.notify(str(error), severity="warning", markup=False)
        else:
            self.app.copy_to_clipboard(text)
            self.dialog.did(safe_text(f"Copied {how}."))

    @property
    def _command_line(self) -> str:
        return self.engine.settings.command_line

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that were started or continued; none if the outcome is unknown."""
        action = self._result
        if action is None or action.state != "confirmed" or action.kind not in {"run.start", "run.continue"}:
            return ()
        return (action.result_id,) if action.result_id is not None else ()

    def action_open_run(self) -> None:
        """Close the form and show the run in full."""
        app, run_ids = self.app, self.run_ids
        if run_ids:
            self.dismiss(self._result)
            app.post_message(OpenRun(run_ids[0]))

    def action_follow(self) -> None:
        """Follow the runs."""
        if self.run_ids:
            self.app.post_message(FollowRun(self.run_ids))

    def enter(self, phase: FormPhase) -> None:
        """Enter another phase; time is counted while sending."""
        super().enter(phase)
        if self._sending_timer is not None:
            self._sending_timer.stop()
        if phase in {"preview", "outcome"}:
            self._second_press.forget()
            after_refresh(self, self._second_press.painted)
        if phase == "sending":
            self.set_focus(None)
            self._began = self.engine.clock()
            self._sending_timer = self.set_interval(1, self._tick)
            self._tick()
        elif phase == "outcome":
            main = "back" if self._result is None else "open" if len(self.run_ids) == 1 else "done"
            self.query_one(f"#verb-{main}").focus()

    def verbs_without_meaning(self) -> frozenset[str]:
        """Buttons that have no effect now."""
        without = {
            "back": self.phase == "outcome" and self._result is not None,
            "done": self._result is None,
            "send": self.engine.actions.read_only,
            "resolve": self._open is None,
            "copy": self._result is None or self._open is not None,
            "open": len(self.run_ids) != 1,
            "follow": not self.run_ids,
        }
        return super().verbs_without_meaning() | {name for name, missing in without.items() if missing}

    def _tick(self) -> None:
        waited = span((self.engine.clock() - self._began).total_seconds())
        limit = span(self.engine.profile.poll.deadline_s)
        self.dialog.sending(safe_text(f"Sending…  {waited} of at most {limit}"))

    async def submit(self, request: WriteRequest) -> Action:
        """Send the request through the ledger.

        Raises:
            ActionRefusedError: Nothing was sent.
            StorageError: The ledger cannot be written.
        """
        return await self.engine.actions.submit(request)

    async def _send(self, request: WriteRequest) -> None:
        await self.form_draft.sending()
        try:
            action = await self.submit(request)
        except BlockedError as refused:
            await self.form_draft.not_sent()
            self._open = refused.existing if refused.existing.state == "unknown" else None
            self._show(outcomes.blocked(refused.existing, self.engine.clock(), self._command_line))
        except ActionRefusedError as refused:
            await self._back_to_fields(refused.message)
        except StorageError as error:
            self._show(outcomes.broken(str(error), self._command_line))
        else:
            await self._settled(action)

    async def _settled(self, action: Action) -> None:
        if action.state == "confirmed":
            await self.form_draft.done()
            self._result = action
            self._show(outcomes.confirmed(action))
        elif action.state == "unknown":
            self._result = self._open = action
            self._show(outcomes.unknown(action, self._command_line))
        else:
            await self._back_to_fields(outcomes.not_done(action))

    async def _back_to_fields(self, why: str) -> None:
        await self.form_draft.not_sent()
        self.enter("editing")
        self.dialog.banner(safe_text(why))

    def _show(self, outcome: OutcomeText) -> None:
        self.query_one(OutcomePage).show(outcome)
        self.enter("outcome")

    def _resolved(self, action: Action | None) -> None:
        """Handle that the open action was resolved: it blocks the form no more, or the form's own write is settled."""
        if action is None:
            return
        self._open = None
        if self._result is None:
            self.enter("editing")
        else:
            self.dismiss(action)
