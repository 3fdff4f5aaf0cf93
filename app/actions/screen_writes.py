"""The forms of all writes: fields, texts, and forms filled from a request that was sent."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

from msgspec.structs import replace
from textual import work
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from app.actions.asked import continuation
from app.actions.copies import UnfaithfulError
from app.actions.drafts import Values
from app.actions.refusals import FieldProblem
from app.actions.screen_fields import Field, editable_text
from app.actions.screen_form import ActionForm, Built
from app.actions.screen_start import NewRunForm
from app.api.errors import ApiError
from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    SayToRun,
    StartAgent,
    StartRun,
    When,
    WriteRequest,
    asked_of,
)
from app.engine.engine import Engine
from app.engine.text import safe_text
from app.engine.times import ago
from app.runs.document import instructions_of
from app.runs.screen_loader import turn_of
from storage import RunwardenError
from storage.errors import StorageError
from storage.records import FINAL_STATUSES, Action, Run
from storage.records.results import RunTurns, Unavailable
from widgets.forms.dialog import FormButton, FormPhase, bindings_of
from widgets.forms.facts import FormFact
from widgets.forms.field import LineField, ParagraphField
from widgets.forms.inputs import printable
from widgets.kit import after_refresh
from widgets.kit.badges import run_badge
from widgets.runs.conversation import ASKING, Conversation

_WAYS: Final = (
    FormButton("now", "Now", "n", "choose('now')", ("preview",)),
    FormButton("later", "Later", "w", "choose('end')", ("preview",)),
    FormButton("stop", "Stop", "x", "choose('stop')", ("preview",)),
)
"""How a message reaches the agent of an active run."""
_MESSAGES: Final[Mapping[str, When]] = {"now": "now", "stop": "stop"}
"""The ways that send a message. The others continue the run: the empty one at once, `end` after it has ended."""
_EFFECTS: Final = {
    "": "Continues {} with its context.",
    "now": "Reaches the agent of {} at work; if its program takes no messages, starts the next turn.",
    "end": "Kept on this machine, and sent when {} ends; a console or bot must be running then.",
    "stop": "Stops the turn of {}, and starts the next one with this.",
}
_REMEMBERS: Final = "The agent remembers the conversation so far."


class ContinueRunForm(ActionForm):
    """POST /external/runs with a run_id: the next turn of a conversation (spec 4.3)."""

    TITLE_TEXT = "Continue a run"
    BUTTONS = (*_WAYS, *ActionForm.BUTTONS)
    BINDINGS: ClassVar = bindings_of(_WAYS)

    def __init__(
        self,
        engine: Engine,
        run: Run,
        *,
        final_statuses: Collection[str] = FINAL_STATUSES,
        sent: ContinueRun | None = None,
        instructions: str = "",
        question: str = "",
        may_wait: bool = True,
    ) -> None:
        """Prepare for this run; `sent` is an earlier request whose values are kept, all but the instructions.

        With `instructions` the form begins with the preview. `question`: its agent's question. A reply or an
        answer that was sent closes the form. `may_wait`: whether this process sends what waits for the run's end.
        """
        self._run = run
        self._has_ended = run.status in final_statuses
        self._may_wait, self._sent = may_wait, sent
        self._hears = True
        """Whether the service accepts messages, as far as known."""
        self._way = self._default
        """The way of sending, a key of `_EFFECTS`."""
        self._conversation = Conversation()
        self._reported: RunTurns | Unavailable = Unavailable(ASKING)
        self._previous = ""
        self._question = question
        self.is_waiting = False
        later = " w at the end," if may_wait else ""
        hint = _REMEMBERS if self._has_ended else f"Active: preview, then n now,{later} x stops."
        label = "answer" if question else "instructions"
        self.FIELDS = (Field("instructions", label, hint, ParagraphField, "What should it do next?"),)
        super().__init__(engine, draft=f"run.continue:{run.run_id}", is_ready=bool(instructions))
        self.beginning = {"instructions": instructions} if instructions else None
        self.closes_when_done = bool(instructions or question)

    @property
    def _default(self) -> str:
        if self._hears and not self._has_ended and self._sent is None:
            return "now"
        return ""

    def make_rows(self) -> Sequence[Widget]:
        run = self._run
        self._fact = FormFact("run", run.run_id, run_badge(run.status, is_final=self._has_ended))
        place = FormFact("on", f"{run.repository.label}  {run.branch_name}")
        question = Content(safe_text(self._question, limit=2_000))
        asked = [Static(question, classes="form-notice")] if self._question else []
        return (self._fact, place, self._conversation, *asked, *super().make_rows())

    async def on_mount(self) -> None:
        """Read the conversation once the layout has room for it."""
        after_refresh(self, self._read_conversation)
        self._ask_service()

    def actions_changed(self) -> None:
        super().actions_changed()
        self._read_conversation()

    @work(group="conversation", exclusive=True)
    async def _read_conversation(self) -> None:
        sent = await self.engine.ledger.for_run(self._run.run_id)
        instructions = [instructions_of(turn) for turn in sent]
        if isinstance(reported := self._reported, RunTurns):
            instructions = [turn.instructions or "" for turn in reported.turns] or instructions
        self._previous = next((text for text in reversed(instructions) if text), "")
        now = self.engine.clock()
        messages = tuple(map(turn_of, sent))
        self._conversation.show(messages, reported, now, now + (await self.engine.cache.budget()).clock_ahead)
        detail = await self.engine.cache.detail(self._run.run_id)
        finals = await self.engine.cache.final_statuses()
        states = [] if detail is None else [detail.run.status]
        states += [turn.state for turn in reported.turns[-1:]] if isinstance(reported, RunTurns) else []
        if not self._has_ended and (final := [state for state in states if state in finals]):
            # The run ended while the user wrote the message, so it becomes a continuation.
            self._has_ended = True
            self._fact.badge = run_badge(final[0], is_final=True)
            self.fields["instructions"].say(_REMEMBERS)
            self.action_choose("")
            self.note("The run has ended: this continues it.", "warn")

    async def back_to_fields(self, reason: str) -> None:
        await super().back_to_fields(reason)
        self._ask_service()

    @work(group="turns")
    async def _ask_service(self) -> None:
        try:
            self._reported = await self.engine.extension.turns(self._run.run_id)
        except ApiError as error:
            self._reported = Unavailable(f"The service could not be asked: {error.message}")
        if self._hears and isinstance(self._reported, Unavailable):
            self._hears = False
            if self._way in _MESSAGES:
                self.action_choose("")
        self._read_conversation()

    def placeholders(self) -> dict[str, str]:
        run, previous = self._run, self._previous
        return {"repository": run.repository.label, "branch": run.branch_name, "previous_instructions": previous}

    @property
    def values(self) -> Values:
        """The values and the chosen way of sending, if any, so that a draft keeps both."""
        return super().values | ({} if self._way == self._default else {"when": self._way})

    def fill(self, values: Values) -> None:
        super().fill(values)
        self._way = self._default if self._has_ended else values.get("when", self._default)

    def build(self, values: Values) -> Built:
        words = values["instructions"]
        if (when := _MESSAGES.get(values.get("when", self._default))) is not None:
            return SayToRun(self._run.run_id, words, when), ()
        return (continuation(self._run, words) if self._sent is None else replace(self._sent, instructions=words)), ()

    def problems(self) -> tuple[FieldProblem, ...]:
        """The problems, all of them shown at the only field."""
        return tuple(replace(problem, field="instructions") for problem in super().problems())

    def consequence(self, _request: WriteRequest) -> str:
        early = " It is still active, so that the service may refuse."
        if self._has_ended or self._way:
            early = ""
        return _EFFECTS[self._way].format(self._run.run_id) + early

    def is_possible(self, action: str) -> bool:
        match action:
            case "choose('end')":
                return self._may_wait and not self._has_ended and self._way != "end"
            case "choose('now')" | "choose('stop')":
                return self._hears and not self._has_ended and action != f"choose('{self._way}')"
        return super().is_possible(action)

    def action_choose(self, way: str) -> None:
        """Preview the request for this way of sending."""
        self._way = way
        self.form_draft.set_values(self.values)
        if self.phase == "preview":
            self.enter("editing")
            self.action_forward()

    async def send(self, request: WriteRequest) -> None:
        if self._way != "end" or not isinstance(request, ContinueRun):
            await super().send(request)
            return
        try:
            await self.engine.follow_ups.wait(request)
        except RunwardenError as error:
            await self.back_to_fields(str(error))
            return
        await self.form_draft.delete()
        self.is_waiting = True
        self.app.notify("Will be sent when the run finishes. Activity lists and cancels it.", markup=False)
        self.dismiss(None)


class OnboardForm(ActionForm):
    """POST /external/gitlab/projects (spec 4.6 names it; its shape is our decision)."""

    TITLE_TEXT = "Onboard a GitLab project"
    DRAFT = "gitlab.onboard"
    FIELDS = (
        Field("project_path", "project", "Its path with all groups.", placeholder="group/project"),
        Field("project_id", "project id", "A number; it is used if both are given.", placeholder="optional"),
    )

    def build(self, values: Values) -> Built:
        path = values["project_path"].strip() or None
        number = values["project_id"].strip()
        if number and not (number.isascii() and number.isdigit()):
            wrong = FieldProblem("project_id", "A project id is a number; or leave it empty.")
            return OnboardProject(project_id=1, project_path=path), (wrong,)
        return OnboardProject(project_id=int(number) if number else None, project_path=path), ()

    def consequence(self, _request: WriteRequest) -> str:
        return "Connects the project and sets up its webhook. Onboarding twice is harmless."


AGAIN_FIELD: Final = "again"
"""The field for the repeated address, which is part of neither the request nor the draft."""
_EMAIL_HINT: Final = "Receives the invitation, valid for 30 days."
_NOTICE: Final = (
    "Each success creates another organization, even for an address that already has one. "
    "While the outcome of an attempt is unknown, its address is blocked until you resolve it."
)
_CREATE_ANOTHER: Final = FormButton("another", "Create another", "n", "another", ("outcome",))


class OrganizationForm(ActionForm):
    """POST /external/organizations (spec 4.1): the one write that must never happen twice by accident."""

    TITLE_TEXT = "New organization"
    DRAFT = "organization.create"
    BUTTONS = (*ActionForm.BUTTONS, _CREATE_ANOTHER)
    BINDINGS: ClassVar = bindings_of((_CREATE_ANOTHER,))
    FIELDS = (
        Field("email", "email", _EMAIL_HINT, placeholder="admin@customer.example"),
        Field("offer_code", "offer code", "A partner offer. Empty: the standard trial.", placeholder="standard trial"),
    )

    _attempts: tuple[Action, ...] = ()

    def build(self, values: Values) -> Built:
        return CreateOrganization(values["email"].strip(), values["offer_code"].strip() or None), ()

    def make_rows(self) -> Sequence[Widget]:
        again = LineField(AGAIN_FIELD, "once more", "Type the address again to create another organization for it.")
        again.display = False  # Shown once the ledger has an organization for the address.
        return (Static(Content(_NOTICE), classes="form-notice"), *super().make_rows(), again)

    def actions_changed(self) -> None:
        super().actions_changed()
        self._read_attempts()

    def is_possible(self, action: str) -> bool:
        if action == "another":
            return self._result is not None and self._result.state == "confirmed"
        return super().is_possible(action)

    def action_another(self) -> None:
        form = OrganizationForm(self.engine)
        code = self.values["offer_code"]
        form.beginning = form.form_draft.fresh = {"email": "", "offer_code": code}
        app = self.app
        self.dismiss(self._result)
        app.push_screen(form)

    @property
    def again(self) -> bool:
        """Whether the address already has an organization and was retyped to confirm."""
        return bool(self._made_before)

    def enter(self, phase: FormPhase) -> None:
        """Enter another phase; before the fields return, the ledger is read again."""
        super().enter(phase)
        if phase == "editing":
            self._read_attempts()

    def problems(self) -> tuple[FieldProblem, ...]:
        """The problems; an address that has an organization must be typed again."""
        problems = super().problems()
        email = self.values["email"].strip()
        if self._made_before and self.fields[AGAIN_FIELD].value.strip().casefold() != email.casefold():
            return (*problems, FieldProblem(AGAIN_FIELD, f"Type {email} again to create one more."))
        return problems

    def consequence(self, _request: WriteRequest) -> str:
        made = len(self._made_before)
        another = f" It has {made} from here already; this creates one more." if made else ""
        return f"Creates one organization and invites {self.values['email'].strip()} to administer it.{another}"

    @work(group="attempts")
    async def _read_attempts(self) -> None:
        try:
            self._attempts = await self.engine.ledger.organizations()
        except StorageError as error:
            self.dialog.note(str(error), "warn")
        self._show_attempts()

    def field_changed(self, key: str) -> bool:
        if key == "email":
            self._show_attempts()
        return super().field_changed(key)

    def _show_attempts(self) -> None:
        now = self.engine.clock()
        made = self._made_before
        subject = CreateOrganization(self.values["email"].strip()).subject
        unknown = next((attempt for attempt in self._attempts if attempt.subject == subject and attempt.is_open), None)
        warning = ""
        if unknown is not None:
            warning = f"Blocked: the attempt {ago(unknown.created_at, now)} is unresolved."
        elif made:
            warning = f"Has one already ({ago(made[0].settled_at or made[0].created_at, now)}); this adds another."
        self.fields["email"].say(warning or _EMAIL_HINT, "warn" if warning else "quiet")
        self.fields[AGAIN_FIELD].display = bool(made)

    @property
    def _made_before(self) -> tuple[Action, ...]:
        subject = CreateOrganization(self.values["email"].strip()).subject
        return tuple(made for made in self._attempts if made.subject == subject and made.state == "confirmed")


async def form_for(engine: Engine, action: Action) -> ActionForm:
    """The form with the action's request filled in; raises `UnfaithfulError` if none shows it as it was sent."""
    if (request := asked_of(action)) is None:
        raise UnfaithfulError("Another version of Runwarden wrote it; send it again from the command line.")
    form: ActionForm
    match request:
        case ContinueRun():
            if (detail := await engine.cache.detail(request.run_id)) is None:
                raise UnfaithfulError("Its run is not listed here: fetch older runs first, in the last line of Runs.")
            finals = await engine.cache.final_statuses()
            form = ContinueRunForm(engine, detail.run, final_statuses=finals, sent=request)
            values = {"instructions": request.instructions}
        case StartRun() | StartAgent():
            form = start = NewRunForm(engine)
            values = start.values_of(request)
        case CreateOrganization():
            form = OrganizationForm(engine)
            values = {"email": request.email, "offer_code": request.offer_code or ""}
        case OnboardProject():
            form = OnboardForm(engine)
            number = "" if request.project_id is None else str(request.project_id)
            values = {"project_path": request.project_path or "", "project_id": number}
        case SayToRun():
            raise UnfaithfulError("Press c on its run to say something again.")
        case _:
            raise UnfaithfulError("Cancel the run again instead: cancelling twice is harmless.")
    lines = [values[field.key] for field in form.FIELDS if not issubclass(field.control, ParagraphField)]
    is_shown = all(printable(text) == text for text in values.values())
    if not is_shown or any(editable_text(line) != line for line in lines) or form.build(values) != (request, ()):
        raise UnfaithfulError("No form can show it exactly as it was sent; send it again from the command line.")
    form.beginning = form.form_draft.fresh = values
    form.form_draft.name = f"resend:{action.action_id}"
    return form
