"""The form that creates a partner organization: the one write that must never happen twice by accident."""

from collections.abc import Sequence
from typing import Final

from textual import work
from textual.widget import Widget

from app.actions import FieldProblem
from app.api.requests import CreateOrganization, WriteRequest
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values
from app.console.forms.form_screen import RequestOrProblems
from app.engine import Engine
from app.text import safe_text
from app.times import ago
from storage.errors import StorageError
from storage.records import Action
from widgets.badges import Tone
from widgets.forms.dialog import FormPhase
from widgets.forms.facts import FormNotice
from widgets.forms.field import FormField, LineField

_NOTICE: Final = (
    "Every success makes another organization, also for an address that has one. "
    "Where the outcome of an attempt is unknown, its address is blocked until you resolve it."
)
AGAIN: Final = "again"
"""The field for the repeated address."""
_EMAIL_HINT: Final = "Gets the invitation, which is good for 30 days."


class OrganizationForm(ActionForm):
    """POST /external/organizations (spec 4.1)."""

    TITLE_TEXT = "New organization"
    DEFAULT_CSS = "OrganizationForm FormDialog { height: 20; }"

    def __init__(self, engine: Engine) -> None:
        """Prepare for this engine's profile."""
        super().__init__(engine, draft="organization.create")
        self._attempts: tuple[Action, ...] = ()

    def make_rows(self) -> Sequence[Widget]:
        """The address and the offer code."""
        return (
            FormNotice(safe_text(_NOTICE)),
            LineField("email", "email", _EMAIL_HINT, placeholder="admin@customer.example"),
            LineField(
                "offer_code",
                "offer code",
                "A partner offer. Empty: the standard trial.",
                placeholder="standard trial",
            ),
            LineField(AGAIN, "once more", "Type the address again to make another organization for it."),
        )

    @property
    def values(self) -> Values:
        """The values; the repeated address is part of no draft."""
        return {key: value for key, value in super().values.items() if key != AGAIN}

    async def on_mount(self) -> None:
        """Read earlier attempts, so that the form can report what the address already has."""
        self.fields[AGAIN].display = False
        self._look_back()

    def actions_changed(self) -> None:
        """Update what the address already has."""
        super().actions_changed()
        self._look_back()

    def build(self, values: Values) -> RequestOrProblems:
        """The request as typed."""
        return CreateOrganization(values["email"].strip(), values["offer_code"].strip() or None)

    async def submit(self, request: WriteRequest) -> Action:
        """Send the request; for an address that has an organization, only after it was typed again."""
        return await self.engine.actions.submit(request, again=self._has_one)

    def enter(self, phase: FormPhase) -> None:
        """Enter another phase; before the fields return, the ledger is read again."""
        super().enter(phase)
        if phase == "editing":
            self._look_back()

    def problems(self) -> tuple[FieldProblem, ...]:
        """The problems; an address that has an organization must be typed again."""
        found, email = super().problems(), self.values["email"].strip()
        if self._has_one and self.fields[AGAIN].value.strip().casefold() != email.casefold():
            return (*found, FieldProblem(AGAIN, f"Type {email} again to make one more."))
        return found

    @property
    def _has_one(self) -> bool:
        request = CreateOrganization(self.values["email"].strip())
        return any(attempt.state == "confirmed" for attempt in self._attempts_for(request))

    def consequence(self, request: WriteRequest) -> str:
        """The effect of sending, with earlier successes."""
        if not isinstance(request, CreateOrganization):
            return ""
        made = sum(1 for attempt in self._attempts_for(request) if attempt.state == "confirmed")
        another = f" It has {made} from here already; this makes one more." if made else ""
        return f"Creates one organization and invites {request.email} to administer it.{another}"

    @work(group="attempts")
    async def _look_back(self) -> None:
        try:
            self._attempts = await self.engine.ledger.organizations()
        except StorageError as error:
            self.dialog.note(safe_text(str(error)), "warn")
        self._say_history()

    def on_form_field_changed(self, event: FormField.Changed) -> None:
        """Update the line under the address."""
        if event.field == "email":
            self._say_history()

    def _say_history(self) -> None:
        text, tone = self._history()
        self.fields["email"].say(safe_text(text), tone)
        self.fields[AGAIN].display = self._has_one

    def _history(self) -> tuple[str, Tone]:
        request = CreateOrganization(self.values["email"].strip())
        attempts = self._attempts_for(request)
        now = self.engine.clock()
        unknown = next((attempt for attempt in attempts if attempt.is_open), None)
        if unknown is not None:
            when = ago(unknown.created_at, now)
            return (
                f"Blocked: the attempt {when} is unresolved.",
                "warn",
            )
        made = next((attempt for attempt in attempts if attempt.state == "confirmed"), None)
        if made is not None:
            return (
                f"Has one already, made {ago(made.settled_at or made.created_at, now)}; this adds one.",
                "warn",
            )
        return _EMAIL_HINT, "quiet"

    def _attempts_for(self, request: CreateOrganization) -> tuple[Action, ...]:
        return tuple(attempt for attempt in self._attempts if attempt.subject == request.subject)
