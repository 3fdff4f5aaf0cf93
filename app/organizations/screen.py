"""The Organizations tab: all attempts, unknown outcomes marked."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from app.actions.refusals import ActionRefusedError
from app.actions.screen_resolve import ResolveForm
from app.actions.screen_writes import OnboardForm, OrganizationForm
from app.api.errors import ApiError, ForbiddenError, NotOfferedError
from app.api.requests import CreateOrganization, ResendInvitation, request_of
from app.api.wire import answer
from app.console.base.screen import BaseScreen
from app.console.messages import GoToTab
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import UNREADABLE
from app.console.sheets import ConfirmSheet
from app.engine.events import ActionChanged, CacheChangedElsewhere, Event, LinkChanged
from app.engine.text import safe_text
from app.organizations.facts import CLOSED, newest
from app.organizations.screen_import import OrganizationImportScreen
from storage.records import Action
from widgets.forms.inputs import ListSearch
from widgets.forms.pages import reason
from widgets.frame.notice import Notice
from widgets.kit.line_table import LineTable
from widgets.kit.table_and_facts import FactPane, TableAndFacts
from widgets.organizations.table import ATTEMPT_COLUMNS, CreationAttempt, attempt_badge

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from storage.records.results import Invitation
    from widgets.kit.badges import Badge

READING: Final = Notice("◌", "Reading the ledger…", tone="busy")
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
NO_MATCH: Final = Notice("∅", "No attempt matches", ("Press esc to show all.",))
SEARCHED: Final = ("/ search address, name, slug, id", "/ search")
NEVER_HERE: Final = replace(
    NOTHING_YET, lines=(*NOTHING_YET.lines[:-1], "This profile is read-only: nothing can be created.")
)


class OrganizationsScreen(BaseScreen):
    """The ledger's attempts to create organizations."""

    TAB = "organizations"
    CSS = """
    #organizations-bar { height: 1; padding: 0 1; }
    #organizations-bar ListSearch {
        width: 18; height: 1; margin: 0 2 0 0; padding: 0 1; border: none; background: $surface;
    }
    OrganizationsScreen.-wide #organizations-bar ListSearch { width: 38; }
    #organizations-bar ListSearch:focus { border: none; background: $panel; }
    #organizations-summary { width: 1fr; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    OrganizationsScreen.-tall #organizations-bar { margin-bottom: 1; }
    #organizations.-alone LineTable { display: none; }
    OrganizationsScreen #organizations.-alone FactPane { width: 1fr; max-width: 100%; height: 1fr; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "show all", key_display="esc", id="org.clear"),
        Binding("n", "new_organization", "new organization", tooltip="Create one and invite its administrator"),
        Binding("v", "resolve", "resolve", tooltip="Record the result of an unknown outcome", id="org.resolve"),
        Binding("E", "resend", "send again", tooltip="Invite again; the earlier code is void", id="org.resend"),
        Binding(
            "enter",
            "its_action",
            "its action",
            key_display="enter",
            tooltip="Show its action in Activity",
            id="org.action",
        ),
        Binding("escape,backspace", "close", "back to the list", key_display="esc", id="org.close"),
        Binding("y", "copy_id", "copy id", show=False, id="org.copy_id"),
        Binding(
            "slash", "search", "search", key_display="/", tooltip="Search by address, name, slug or id", id="org.find"
        ),
        Binding("I", "import", "import", tooltip="Create many, from a CSV file", id="org.import"),
        Binding("p", "onboard", "onboard project", tooltip="Connect a GitLab project", id="gitlab.onboard"),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._table = LineTable[CreationAttempt](engine.clock(), ATTEMPT_COLUMNS)
        self._list = TableAndFacts(self._table, FactPane[CreationAttempt](), id="organizations")
        self._attempts: tuple[CreationAttempt, ...] | None = None
        self._known: dict[str, CreationAttempt] = {}
        self._sought: str | None = None
        """The action that the next reading puts the cursor on; None: the cursor stays."""
        self._reader = CoalescedTask(self._read, self.run_worker)
        self._told: tuple[Invitation, ...] | None = ()
        """The invitations, as the service told them last; None: it does not."""
        self._created = 0
        """How many attempts have created an organization."""
        self._asker = CoalescedTask(self._ask, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """Compose the search and the counts; the table and the facts."""
        with Horizontal(id="organizations-bar"):
            yield ListSearch(SEARCHED)
            yield Static(id="organizations-summary")
        yield self._list

    def on_mount(self) -> None:
        """Read the ledger."""
        self._table.focus()
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read again what changed."""
        if isinstance(event, ActionChanged | CacheChangedElsewhere):
            self._reader.ask()
        elif isinstance(event, LinkChanged) and event.state.subject == "health":
            self._ask_service()

    def on_screen_resume(self) -> None:
        """Ask what became of the invitations."""
        self._ask_service()

    def _ask_service(self) -> None:
        if self.app.screen is self and self._created and self._told is not None and self._engine.token_problem is None:
            self._asker.ask()

    async def _ask(self) -> None:
        try:
            self._told = await self._engine.client.invitations()
        except (ForbiddenError, NotOfferedError):
            self._told = None
        except ApiError:
            return  # The header tells that the service cannot be asked; what it told last stays.
        self._known = {key: self._attempt(attempt.action) for key, attempt in self._known.items()}
        self._attempts = tuple(self._known.values())
        self._show()

    def tick(self, now: datetime) -> None:
        """Move the countdowns."""
        self._list.tick(now)

    def show_trouble(self) -> None:
        """Update the banner and the reason for an empty table, which may be the same trouble."""
        super().show_trouble()
        self._table.say(self._nothing)

    def trouble(self) -> Notice | None:
        """The banner's notice: failures first, then unknown outcomes."""
        unknown = self._unknown
        if (broken := super().trouble()) is not None or not unknown:
            return broken
        what = "1 attempt has" if len(unknown) == 1 else f"{len(unknown)} attempts have"
        return Notice("?", f"{what} no known outcome", ("Its address is blocked: press v to resolve.",), "warn")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim or hide the keys that have no effect now."""
        selected = self._selected
        if action in {"new_organization", "onboard"} and self._engine.actions.read_only:
            return None
        if action == "resend":
            invitation = selected.invitation if selected is not None else None
            can_write = not self._engine.actions.read_only
            return can_write and invitation is not None and invitation.state not in CLOSED
        if action in {"resolve", "search"}:
            return bool(self._unknown if action == "resolve" else self._attempts)
        if action == "clear":
            return self.is_mounted and bool(self._words)
        if action in {"open", "close", "its_action"}:
            is_alone = self.is_mounted and self._list.has_class("-alone")
            return selected is not None and not is_alone if action == "open" else is_alone
        if action == "copy_id":
            return True if selected is not None else None
        return super().check_action(action, parameters)

    def action_new_organization(self) -> None:
        """Open the form."""
        self._open_form(OrganizationForm(self._engine))

    def action_onboard(self) -> None:
        """Open the form for a GitLab project."""
        self._open_form(OnboardForm(self._engine))

    def action_import(self) -> None:
        """Open the import of a file."""
        self.app.push_screen(OrganizationImportScreen(self.session, self._engine), lambda _: self._reader.ask())

    def action_resolve(self) -> None:
        """Open the form that resolves the attempt under the cursor; from elsewhere, the newest unknown one."""
        selected, unknown = self._selected, self._unknown
        if unknown and (selected is None or not selected.is_unknown):
            selected = unknown[0]
            self._table.seek(selected.key)
        if selected is not None and selected.is_unknown:
            self._open_form(ResolveForm(self._engine, selected.action))

    def action_resend(self) -> None:
        """Invite the administrator under the cursor again."""
        if self._selected is None or (invitation := self._selected.invitation) is None:
            return

        async def send(_: Path) -> str:
            action = await self._engine.actions.submit(ResendInvitation(invitation.invitation_id))
            if action.state == "confirmed":
                return f"The invitation of {invitation.email} was sent again."
            why = f" {reason(action.error)}" if action.error is not None else ""
            raise ActionRefusedError(f"It is {action.state.replace('_', ' ')}.{why}")

        said = f"{invitation.email} gets a new mail. The code of the earlier one no longer works."
        sheet = ConfirmSheet(
            "Send the invitation again",
            [Content(safe_text(said))],
            None,
            send,
            verb="Send it again",
            leaving="Keep the earlier one",
            is_final=True,
        )

        def closed(said: str | None) -> None:
            if said is not None:
                self.session.notify(said)
                self._ask_service()

        self.app.push_screen(sheet, closed)

    def go_to(self, target: str) -> None:
        """Put the cursor on the attempt with this action, whatever the search."""
        self.return_to(("", target))

    @property
    def bookmark(self) -> tuple[str, str]:
        """The search, and the attempt under the cursor."""
        return self.query_one(ListSearch).value, "" if self._selected is None else self._selected.key

    def return_to(self, bookmark: tuple[str, str]) -> None:
        """Restore that search, with the cursor on that attempt."""
        self.query_one(ListSearch).value, self._sought = bookmark
        self._reader.ask()

    @on(LineTable.Chosen)
    def action_open(self) -> None:
        """Show only the facts."""
        if self._selected is not None:
            self._list.add_class("-alone")
            self._list.query_one(FactPane).focus()
            self.refresh_bindings()

    def action_its_action(self) -> None:
        """Show the write that created it or tried to."""
        if self._selected is not None:
            self.post_message(GoToTab("activity", self._selected.key))

    def action_close(self) -> None:
        """Show the table again."""
        self._list.remove_class("-alone")
        self._table.focus()
        self.refresh_bindings()

    def action_search(self) -> None:
        """Focus the search."""
        self.action_close()
        self.query_one(ListSearch).focus()

    def action_clear(self) -> None:
        """Show all attempts again."""
        self.query_one(ListSearch).value = ""

    def action_copy_id(self) -> None:
        """Copy the organization's id, or else the action's."""
        if self._selected is not None:
            action = self._selected.action
            self.session.copy(action.result_id or action.action_id)

    @property
    def _selected(self) -> CreationAttempt | None:
        return self._table.item

    @property
    def _unknown(self) -> tuple[CreationAttempt, ...]:
        return tuple(attempt for attempt in self._attempts or () if attempt.is_unknown)

    @property
    def _nothing(self) -> Notice:
        if self.session.vitals.storage_trouble:
            return UNREADABLE
        if self._attempts is None:
            return READING
        if self._attempts:
            return NO_MATCH
        return NEVER_HERE if self._engine.actions.read_only else NOTHING_YET

    @on(Input.Changed)
    def _search_changed(self) -> None:
        self._show()

    @on(ListSearch.Left)
    def _search_left(self) -> None:
        self._table.focus()

    def _open_form(self, form: ModalScreen[Action | None]) -> None:
        def closed(action: Action | None) -> None:
            self._sought = action.action_id if action is not None else self._sought
            self._reader.ask()

        self.app.push_screen(form, closed)

    async def _read(self) -> None:
        actions = await self._engine.ledger.organizations()
        self._known = {action.action_id: self._attempt(action) for action in actions}
        self._attempts = tuple(self._known.values())
        self._show()
        before, self._created = self._created, sum(action.state == "confirmed" for action in actions)
        if self._created > before:
            self._ask_service()

    def _show(self) -> None:
        """Show the matching attempts, newest first; a cursor whose attempt is gone moves to a neighbour."""
        attempts, words = self._attempts or (), self._words
        shown = [attempt for attempt in attempts if attempt.matches(words)]
        self._list.show(shown)
        if self._sought is not None and self._attempts is not None:
            self._table.seek(self._sought)
            self._sought = None
        extent = Content(f"{len(shown):,} of {len(attempts):,}   " if words else "")
        badges: Counter[Badge] = Counter(attempt_badge(attempt) for attempt in shown)
        counts = [
            Content.assemble((badge.glyph, badge.style), f" {n} {badge.word}") for badge, n in badges.most_common()
        ]
        self.query_one("#organizations-summary", Static).update(extent + Content("  ").join(counts))
        self.show_trouble()

    @property
    def _words(self) -> tuple[str, ...]:
        return tuple(self.query_one(ListSearch).value.casefold().split())

    def _attempt(self, action: Action) -> CreationAttempt:
        """Parse the action's request and answer, unless the attempt is known and unchanged."""
        known = self._known.get(action.action_id)
        if known is not None and known.action == action:
            return replace(known, invitation=newest(self._told or (), action.result_id, known.email))
        request = request_of(action)
        if not isinstance(request, CreateOrganization):
            raise TypeError(f"{action.action_id} is not an attempt to create an organization.")
        organization = None
        if action.response_json is not None and action.state == "confirmed":
            organization = answer(request, 201, action.response_json.encode()).organization
        invitation = newest(self._told or (), action.result_id, request.email)
        return CreationAttempt(action, request.email, request.offer_code, organization, invitation)
