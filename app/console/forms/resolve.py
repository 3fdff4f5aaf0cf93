"""A person's word on an unknown outcome: it took effect, it did not, or it is knowingly sent again."""

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input

from app.actions import ActionRefusedError
from app.actions.reconcile import propose
from app.api.errors import ApiError
from app.console.session import guarded
from app.engine import Engine
from app.text import safe_text
from app.times import ago
from storage.errors import StorageError
from storage.ledger import LedgerRefusedError
from storage.records import Action, ActionKind
from widgets.forms.dialog import FormButton, FormDialog
from widgets.forms.facts import FormChoice, FormFact
from widgets.forms.field import ChoiceField
from widgets.forms.pages import reason

Word = Literal["created", "not_created", "send_again"]
_WORDS: Final[tuple[Word, ...]] = ("created", "not_created", "send_again")
_LABELS: Final = (
    "It took effect: I found what it made",
    "It did not take effect: I made sure",
    "Send it again, knowing that it may then exist twice",
)
_THINGS: Final[dict[ActionKind, str]] = {
    "run.start": "start of a run",
    "run.continue": "continuation of a run",
    "agent.start": "start of an agent",
    "organization.create": "creation of an organization",
    "gitlab.onboard": "onboarding of a GitLab project",
}
_ID_HINTS: Final[dict[ActionKind, str]] = {
    "run.start": "The run's id.",
    "run.continue": "The run's id.",
    "agent.start": "The execution's id.",
    "organization.create": "The organization's id, as the web application or the service's support gives it.",
    "gitlab.onboard": "The project's path.",
}


class ResolveForm(ModalScreen[Action | None]):
    """Ends with the action as resolved, or with the one that was sent in its place; None: nothing was decided."""

    # Not the default style sheet: the console's own says how screens look, and these lie over one.
    CSS = """
    ResolveForm {
        align: center middle;
        background: $background 60%;
        FormDialog { height: 19; }
    }
    """
    SCOPED_CSS = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,ctrl+enter", "apply", "Apply", priority=True),
        Binding("escape", "cancel", "Cancel", priority=True),
    ]
    VERBS: ClassVar[Sequence[FormButton]] = (
        FormButton("cancel", "Cancel", "esc", "cancel", ("editing",)),
        FormButton("apply", "Apply", "^s", "apply", ("editing",), is_primary=True),
    )

    def __init__(self, engine: Engine, action: Action) -> None:
        super().__init__()
        self._engine = engine
        self._action = action
        self._is_applying = False
        self._choice = FormChoice(_LABELS)
        self._evidence = ChoiceField("evidence", "", "")

    def compose(self) -> ComposeResult:
        """What is to be decided, the three words, and what each of them asks for."""
        action, now = self._action, self._engine.clock()
        error = reason(action.error) if action.error else "-"
        rows = (
            FormFact("what", safe_text(f"{_THINGS[action.kind]}, {ago(action.created_at, now)}")),
            FormFact("subject", safe_text(action.subject or action.path)),
            FormFact("reason", safe_text(error)),
            FormFact("action", safe_text(action.action_id)),
            self._choice,
            self._evidence,
        )
        yield FormDialog("Resolve an unknown outcome", rows, self.VERBS)

    async def _dispatch_message(self, message: Message) -> None:
        await guarded(super()._dispatch_message(message), self.app._handle_exception)  # noqa: SLF001 — the app reports

    def on_mount(self) -> None:
        """Nothing is chosen before a person does."""
        self.query_one(FormDialog).enter("editing")
        self.query_one(FormDialog).border_subtitle = ""
        self._evidence.display = False
        self._choice.focus()
        if self._action.kind == "run.start":
            self._look_for_candidates()

    @property
    def _word(self) -> Word | None:
        return None if self._choice.chosen is None else _WORDS[self._choice.chosen]

    @property
    def _pledge(self) -> str:
        """What has to be typed before it is sent again."""
        return self._action.subject or "send again"

    def action_cancel(self) -> None:
        """Leaves everything as it is, unless something is on its way."""
        if not self._is_applying:
            self.dismiss(None)

    def action_apply(self) -> None:
        """Carries the decision out, once it is complete."""
        word, evidence = self._word, self._evidence.value.strip()
        if self._is_applying:
            return
        if word is None:
            self._say_no("Choose one of the three.")
        elif word == "created" and not evidence:
            self._evidence.complain(safe_text("Give the id: it links this attempt to what it made."))
        elif word == "send_again" and evidence.casefold() != self._pledge.casefold():
            self._evidence.complain(safe_text(f"Type {self._pledge} to confirm."))
        else:
            self._is_applying = True
            self._apply(word, evidence)

    @work(group="apply")
    async def _apply(self, word: Word, evidence: str) -> None:
        try:
            action = await self._decide(word, evidence)
        except (ActionRefusedError, LedgerRefusedError, StorageError) as error:
            self._is_applying = False
            self._say_no(str(error))
        else:
            self.dismiss(action)

    async def _decide(self, word: Word, evidence: str) -> Action:
        actions, action_id = self._engine.actions, self._action.action_id
        if word == "created":
            return await actions.resolve_created(action_id, evidence)
        if word == "not_created":
            return await actions.resolve_not_created(action_id)
        self.query_one(FormDialog).note(safe_text("Sending…"))
        return await actions.send_again(action_id)

    @on(FormChoice.Changed)
    def _chosen(self) -> None:
        self.query_one(FormDialog).banner(None)
        word = self._word
        self._evidence.complain(None)
        self._evidence.display = word in {"created", "send_again"}
        if word == "created":
            self._evidence.rename("id")
            self._evidence.say(safe_text(_ID_HINTS[self._action.kind]))
        elif word == "send_again":
            self._evidence.rename("confirm")
            self._evidence.say(safe_text(f"Type {self._pledge} to confirm."), "warn")

    @on(Input.Changed)
    def _typed(self) -> None:
        self._evidence.complain(None)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_apply()

    def _say_no(self, why: str) -> None:
        self.query_one(FormDialog).note(safe_text(""))
        self.query_one(FormDialog).banner(safe_text(why))

    @work(group="candidates")
    async def _look_for_candidates(self) -> None:
        dialog = self.query_one(FormDialog)
        dialog.note(safe_text("Looking for runs it may have made…"))
        try:
            found = await propose(self._action, self._engine.client, self._engine.ledger)
        except (ApiError, ValueError, StorageError) as error:
            dialog.note(safe_text(f"Runs it may have made cannot be looked up: {error}"), "warn")
            return
        self._evidence.offer(tuple(run.run_id for run in found.candidates))
        dialog.note(safe_text(_found_in_words(len(found.candidates), is_certain=found.certain)))


def _found_in_words(count: int, *, is_certain: bool) -> str:
    if count == 0:
        return "No run fits: most likely it did not take effect."
    if is_certain:
        return "Exactly one run fits, on the branch that was named: it is offered as the id."
    return f"{count} fit by repository and time; they are offered as the id."
