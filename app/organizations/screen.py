"""The Organizations tab: Activity's list with the attempts to create an organization alone, and their invitations."""

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.content import Content

from app.actions.refusals import ActionRefusedError
from app.actions.screen import EVERYTHING, Activity, ActivityScreen, is_wanted
from app.actions.screen_writes import OnboardForm, OrganizationForm
from app.api.errors import ApiError
from app.api.requests import ResendInvitation
from app.console.feeds import CoalescedTask
from app.console.session import Session
from app.console.sheets import ConfirmSheet
from app.engine.events import Event, LinkChanged
from app.engine.text import safe_text
from app.organizations.facts import CLOSED, newest_invitation
from app.organizations.invitations import read_invitations
from app.organizations.screen_import import OrganizationImportScreen
from app.runs.document import as_received
from storage.records import ActionFilter
from widgets.forms.dialog import reason
from widgets.frame import Notice
from widgets.organizations import ATTEMPT_COLUMNS, OrganizationEntry

if TYPE_CHECKING:
    from storage.records.organization import Invitation

NOTHING_YET: Final = Notice(
    "○",
    "No organizations created from here yet",
    (
        "Each success creates an organization and invites its administrator, who has 30 days to accept.",
        "Every attempt is recorded here, so that none is lost or repeated by accident.",
        "",
        "Press n to create one, I to import many from a file.",
    ),
    "plain",
)
NEVER_HERE: Final = replace(
    NOTHING_YET, lines=(*NOTHING_YET.lines[:-1], "This profile is read-only: nothing can be created.")
)
NAMES: Final = ("organization_name", "organization_slug", "parent_organization_id")
"""The fields of a created organization that are shown (spec 2.2)."""


class OrganizationsScreen(ActivityScreen):
    """The ledger's attempts to create organizations, newest first."""

    TAB = "organizations"
    FILTERS = ("outcomes",)
    COLUMNS = ATTEMPT_COLUMNS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new_organization", "new organization", tooltip="Create one and invite its administrator"),
        Binding("R", "resend", "send again", tooltip="Invite again; the earlier code is void", id="org.resend"),
        Binding("E", "edit", "edit and resend", tooltip="Edit an ineffective request, and send it", id="org.edit"),
        Binding("escape", "clear", "show all", id="org.clear"),
        Binding("I", "import", "import", tooltip="Create many, from a CSV file", id="org.import"),
        Binding("p", "onboard", "onboard project", tooltip="Connect a GitLab project", id="gitlab.onboard"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.nothing_yet = NEVER_HERE if self._engine.actions.read_only else NOTHING_YET
        self._invitations: tuple[Invitation, ...] | None = ()
        """The invitations that the service last reported, or None if it reports none."""
        self._created = 0
        self._all: tuple[OrganizationEntry, ...] = ()
        self._asker = CoalescedTask(self._ask, self.run_worker)

    async def load(self, wanted: ActionFilter) -> Activity:
        """Read all attempts, and keep those that match, newest first."""
        known = {entry.source: entry for entry in self._all}
        entries = []
        for action in await self._engine.ledger.organizations():
            if (entry := known.get(action)) is None:
                request = as_received(action.body_json)
                created = as_received(action.response_json)
                email = safe_text(str(request.get("email")), limit=254)
                offer = str(request.get("offer_code") or "")
                name, slug, parent_id = (str(created.get(field) or "") for field in NAMES)
                entry = OrganizationEntry(action, email, None, offer, name, slug, parent_id)
            entries.append(
                replace(entry, invitation=newest_invitation(self._invitations or (), action.result_id, action.subject))
            )
        self._all = tuple(entries)
        before = self._created
        self._created = sum(entry.source.state == "confirmed" for entry in self._all)
        if self._created > before:
            self._ask_service()
        # Not the answer's own text, which may escape letters and holds more than is shown.
        matches = [entry for entry in self._all if is_wanted(entry.source, wanted, entry.name, entry.slug)]
        outcomes: Counter[str] = Counter(entry.source.state for entry in self._all)
        return Activity(tuple(matches), len(matches), {"organization.create": len(self._all)}, outcomes)

    def extent(self, activity: Activity) -> Content:
        count = ""
        if activity.matching < activity.total:
            count = f"{activity.matching:,} of {activity.total:,}"
        badges = Counter(entry.badge for entry in activity.entries).most_common()
        counts = [Content.assemble((badge.glyph, badge.style), f" {n:,} {badge.word}") for badge, n in badges]
        return Content("   ").join([Content(count)] * bool(count) + counts)

    def engine_changed(self, event: Event) -> None:
        super().engine_changed(event)
        if isinstance(event, LinkChanged) and event.state.subject == "health":
            self._ask_service()

    @on(events.ScreenResume)
    def _ask_service(self) -> None:
        can_ask = self._created and self._invitations is not None and self._engine.token_problem is None
        if self.app.screen is self and can_ask:
            self._asker.ask()

    async def _ask(self) -> None:
        try:
            self._invitations = await read_invitations(self._engine)
        except ApiError:
            return  # The header reports that the service does not answer, and the last states stay.
        self._reader.ask()

    def trouble(self) -> Notice | None:
        unknown = sum(entry.unknown is not None for entry in self._all)
        if (broken := super().trouble()) is not None or not unknown:
            return broken
        subject = "1 attempt has" if unknown == 1 else f"{unknown} attempts have"
        return Notice("?", f"{subject} no known outcome", ("Its address is blocked: press v to resolve.",), "warn")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        item, is_read_only = self._table.item, self._engine.actions.read_only
        match action:
            case "new_organization" | "onboard" if is_read_only:
                return None
            case "resend":
                invitation = item.invitation if isinstance(item, OrganizationEntry) else None
                return not is_read_only and invitation is not None and invitation.state not in CLOSED
            case "clear":
                return self.wanted != EVERYTHING
        return super().check_action(action, parameters)

    def action_new_organization(self) -> None:
        self.open_form(OrganizationForm(self._engine))

    def action_onboard(self) -> None:
        self.open_form(OnboardForm(self._engine))

    def action_import(self) -> None:
        self.app.push_screen(OrganizationImportScreen(self.session), lambda _: self._reader.ask())

    @work
    async def action_resend(self) -> None:
        item = self._table.item
        if not isinstance(item, OrganizationEntry) or (invitation := item.invitation) is None:
            return

        async def send() -> str:
            action = await self._engine.actions.submit(ResendInvitation(invitation.invitation_id))
            if action.state == "confirmed":
                return f"The invitation of {invitation.email} was sent again."
            explanation = f" {reason(action.error)}" if action.error is not None else ""
            raise ActionRefusedError(f"It is {action.state.replace('_', ' ')}.{explanation}")

        effect = f"{invitation.email} gets a new mail. The code of the earlier one no longer works."
        title = "Send the invitation again"
        facts = [Content(safe_text(effect))]
        sheet = ConfirmSheet(title, facts, send, verb="Send it again", leaving="Keep the earlier one")
        if (result := await self.app.push_screen_wait(sheet)) is not None:
            self.session.notify(result)
            self._ask_service()
