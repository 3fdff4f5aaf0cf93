"""Describes the outcome of a write, and resolves an unknown one in a form."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar, Final, Literal

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList

from app.actions.candidates import Proposal
from app.actions.reconciliation import LISTED
from app.actions.refusals import ActionRefusedError, DoubtfulIdError
from app.api.errors import ApiError, NotOfferedError
from app.api.requests import CancelRun, ResendInvitation, about, request_sent
from app.console.guard import guarded_event
from app.console.session import mark_of
from app.console.sheets import OVER_CSS
from app.engine.engine import Engine
from app.engine.events import ActionChanged, Event, FilesChangedElsewhere
from app.engine.text import plural, safe_text
from app.engine.times import ago, stamp
from app.organizations.facts import invited_until
from app.runs.document import when_heard
from storage.errors import LedgerRefusedError, StorageError
from storage.records import WRITE_KINDS, Action, ActionFailure
from storage.records.error_kinds import error_kind
from widgets.actions import kind_label
from widgets.forms.dialog import FormButton, FormDialog, OutcomeText, bindings_of, reason
from widgets.forms.facts import FormChoice, FormFact
from widgets.forms.field import LineField
from widgets.kit import hidden
from widgets.kit.badges import ACTION_BADGES, STYLES, Tone
from widgets.kit.cells import shorten
from widgets.kit.choice_lists import Options

DraftOutcome = Literal["not_sent", "open", "done"]
Resolution = Literal["created", "not_created", "send_again"]
RESOLUTIONS: Final[tuple[Resolution, ...]] = ("created", "not_created", "send_again")
"""The answers, in the order of `WriteKind.answers`."""
_LETTERS: Final = "yna"
"""The keys of the three choices; digits pick candidates."""
_NUMBERED: Final = 9
HEIGHTS: Final = [(0, "-short"), (34, "-tall")]
_MAY_NOT_CREATE: Final = (
    "The token needs the scope organizations:create or admin, the organization the entitlement CreateOrganizations, "
    "and it must be active."
)


class ResolveForm(ModalScreen[Action | None]):
    """Closes with the resolved action, or with the one sent instead, or None if nothing was decided."""

    CSS_PATH = OVER_CSS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BUTTONS: ClassVar[Sequence[FormButton]] = (
        FormButton("cancel", "Leave it unknown", "esc", "cancel", ("editing",)),
        FormButton("force", "Record it anyway", "^y", "force", ("editing",)),
        FormButton("apply", "Resolve it", "^s", "apply", ("editing",), is_primary=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of(BUTTONS),
        *(hidden(str(n), f"pick({n})", f"candidate {n}") for n in range(1, _NUMBERED + 1)),
    ]

    def __init__(self, engine: Engine, action: Action) -> None:
        super().__init__()
        self._engine = engine
        self._action = action
        self._is_applying = False
        self._resolved: Action | None = None
        """The action if it was resolved elsewhere, which leaves nothing to decide."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._doubted: str | None = None
        """The id that looks wrong, and that the user may record anyway."""
        self._best = ""
        """The id of the candidate that was picked, or of the only one that fits in all that is known."""
        self._is_picked = False
        self._ids: tuple[str, ...] = ()
        """The ids of all candidates, the likeliest first."""
        self._found = Options(id="found", compact=True)
        self._kind = WRITE_KINDS[action.kind]
        self._pledge = action.subject or self._kind.confirmation
        """The text to type before the action is sent again."""
        self._choice = FormChoice(self._kind.answers, _LETTERS)
        self._evidence = LineField("evidence", "", "")

    def compose(self) -> ComposeResult:
        action = self._action
        now = self._engine.clock()
        match request_sent(action):
            case CancelRun(run_id=own) | ResendInvitation(invitation_id=own):
                self._best = own
        if action.kind in LISTED:
            candidates = FormFact("candidates", self._found)
        else:
            candidates = FormFact("check", self._kind.id_source)
        candidates.add_class("-found")
        rows = (
            FormFact("what", f"{kind_label(action.kind)}, {ago(action.created_at, now)}"),
            FormFact("about", about(action)),
            FormFact("reason", reason(action.error) if action.error else "-"),
            FormFact("action", action.action_id),
            candidates,
            self._choice,
            self._evidence,
        )
        self._dialog = FormDialog("Resolve an unknown outcome", rows, self.BUTTONS, mark=mark_of(self._engine))
        yield self._dialog

    on_event = guarded_event

    def on_mount(self) -> None:
        self._unsubscribe = self._engine.events.subscribe(self._engine_changed)
        self._doubt(None)
        self._evidence.display = False
        self._choice.focus()
        if self._action.kind in LISTED:
            self._find_candidates()

    def on_unmount(self) -> None:
        self._unsubscribe()

    def _engine_changed(self, event: Event) -> None:
        if isinstance(event, ActionChanged | FilesChangedElsewhere) and not self._is_applying:
            self._check_whether_resolved()

    @work(group="resolved", exclusive=True)
    async def _check_whether_resolved(self) -> None:
        action = await self._engine.ledger.action(self._action.action_id)
        if self.is_running and action is not None and not action.is_open and not self._is_applying:
            self._resolved = action
            self._doubt(None)
            if action.state == "confirmed":
                result = f"it took effect and created {action.result_id}"
            elif action.superseded_by is not None:
                result = f"it was sent again as {action.superseded_by}"
            else:
                result = "it did not take effect"
            self._refuse(f"Already resolved elsewhere: {result}.")

    @property
    def _resolution(self) -> Resolution | None:
        if self._choice.chosen is None:
            return None
        return RESOLUTIONS[self._choice.chosen]

    def action_cancel(self) -> None:
        if not self._is_applying:
            self.dismiss(self._resolved)

    def action_force(self) -> None:
        evidence = self._evidence.value.strip()
        if self._doubted is not None and self._resolution == "created" and evidence == self._doubted:
            self._is_applying = True
            self._apply("created", evidence, is_checked=True)

    @on(Input.Submitted)
    def explain_enter(self) -> None:
        self._evidence.complain("Press ^s to resolve it.")

    def action_apply(self) -> None:
        resolution = self._resolution
        evidence = self._evidence.value.strip()
        problem = ""
        if self._is_applying or self._resolved is not None:
            return
        if resolution is None:
            self._refuse("Choose one of the three.")
            self._choice.focus()
            return
        if resolution == "created" and not evidence:
            problem = "Enter the id of the result."
        elif resolution == "send_again" and evidence.casefold() != self._pledge.casefold():
            problem = f"Type {self._pledge} to confirm."
        if problem:
            self._evidence.complain(problem)
            self._evidence.take_focus()
        else:
            self._is_applying = True
            self._apply(resolution, evidence)

    @work(group="send")
    async def _apply(self, resolution: Resolution, evidence: str, *, is_checked: bool = False) -> None:
        actions = self._engine.actions
        action_id = self._action.action_id
        try:
            if resolution == "created":
                if not is_checked:
                    self._dialog.note("Checking the id…")
                    await self._engine.reconciliation.check(self._action, evidence)
                action = await actions.resolve(action_id, evidence)
            elif resolution == "not_created":
                action = await actions.resolve(action_id, None)
            else:
                self._dialog.note("Sending…")
                action = await actions.send_again(action_id)
        except (DoubtfulIdError, ActionRefusedError, LedgerRefusedError, StorageError) as error:
            self._is_applying = False
            self._doubt(evidence if isinstance(error, DoubtfulIdError) else None)
            self._refuse(str(error))
            if isinstance(error, DoubtfulIdError):
                self._evidence.take_focus()
        else:
            self.dismiss(action)

    @on(OptionList.OptionSelected, "#found")
    def pick_candidate(self, event: OptionList.OptionSelected) -> None:
        self.action_pick(event.option_index + 1)

    def action_pick(self, number: int) -> None:
        if number <= len(self._ids):
            self._best = self._ids[number - 1]
            self._is_picked = True
            self._choice.chosen = 0
            self._evidence.fill(self._best)

    @on(FormChoice.Changed)
    def show_resolution(self) -> None:
        self._doubt(None)
        self._evidence.complain(None)
        self._evidence.display = self._resolution in {"created", "send_again"}
        if self._resolution == "created":
            self._evidence.say(f"{self._kind.id_name.capitalize()}.", label="id")
            self._evidence.fill(self._best)
        elif self._resolution == "send_again":
            self._evidence.say(f"Type {self._pledge} to confirm.", "warn", label="confirm")
            self._evidence.fill("")

    @on(Input.Changed)
    def check_evidence(self) -> None:
        self._evidence.complain(None)
        if self._doubted is not None and self._evidence.value.strip() != self._doubted:
            self._doubt(None)

    def _doubt(self, result_id: str | None) -> None:
        """Offer to record an id that looks wrong, or with None withdraw the offer and clear its message."""
        self._doubted = result_id
        without: set[str] = set()
        if self._resolved is not None:
            without = {"force", "apply"}
        elif result_id is None:
            without = {"force"}
        self._dialog.enter("editing", without=frozenset(without))
        self._dialog.border_subtitle = ""
        self._dialog.banner(None)

    def _refuse(self, reason: str) -> None:
        self._dialog.note("")
        self._dialog.banner(reason)

    @work(group="candidates")
    async def _find_candidates(self) -> None:
        dialog, reconciliation = self._dialog, self._engine.reconciliation
        thing = "organizations" if self._action.kind == "organization.create" else "runs"
        dialog.note(f"Asking the service for {thing} that it may have created…")
        try:
            self._offer(await reconciliation.cached_proposal(self._action))
            proposal = await reconciliation.ask(self._action)
        except NotOfferedError:
            dialog.note(self._kind.id_source)
            return
        except (ApiError, StorageError) as error:
            text = f"The service could not be asked for {thing} that it may have created: {error}"
            dialog.note(text, "warn")
            return
        self._offer(proposal)
        if self._action.kind == "organization.create":
            text = "The service knows no such organization: most likely it did not take effect."
            if count := len(proposal.ids):
                text = f"The service invited {self._action.subject} to {plural(count, 'organization')} since then."
            dialog.note(text)
            return
        count = len(proposal.candidates)
        if proposal.is_certain:
            result = "Found: the first run has this action's id."
        elif count == 0 and proposal.is_whole:
            result = "No run matches: most likely it did not take effect."
        elif count == 0:
            result = "No known run matches, but not all runs from that time could be read."
        else:
            runs, them = ("One run matches", "it") if count == 1 else (f"{count} runs match", "them")
            result = f"{runs} in place and time. A colleague may have started {them}."
            if proposal.likely:
                result = f"{runs} in place and time, and one asks the same."
        dialog.note(result)

    def _offer(self, proposal: Proposal) -> None:
        """Show the candidates; fill in the one that fits best, unless one was picked or an id was typed."""
        before = self._best
        self._ids = proposal.ids
        if not self._is_picked:
            self._best = proposal.likely
        lines = []
        for candidate in proposal.candidates:
            run_id = shorten(safe_text(candidate.run.run_id, limit=100), 16, "middle")
            facts = (
                candidate.when,
                f"by {candidate.caller}" if candidate.caller else "",
                "carries this action's id" if candidate.is_marked else "",
                f"{candidate.run.status}  {candidate.run.branch_name}",
            )
            line = Content.assemble((run_id, "bold"), safe_text("  ".join(("", *filter(None, facts))), limit=300))
            if candidate.asked is not None:
                words = ("same words", STYLES["good"]) if candidate.is_same else ("other words", STYLES["warn"])
                first = safe_text(candidate.asked.strip().partition("\n")[0], limit=200)
                line = Content.assemble(line, "\n    ", words, f": “{first}”")
            lines.append(line)
        for invitation in proposal.organizations:
            text = safe_text(f"  invitation to {invitation.email}  {invitation.state}", limit=300)
            lines.append(Content.assemble((safe_text(invitation.organization_id, limit=100), "bold"), text))
        self._found.set_options(
            Content.assemble((f"{n if n <= _NUMBERED else ' '} ", "bold $primary"), line)
            for n, line in enumerate(lines, 1)
        )
        if self._resolution == "created" and self._evidence.value in {"", before}:
            self._evidence.fill(self._best)


def about_draft(outcome: DraftOutcome, sent: Action | None, when: str) -> tuple[str, Tone]:
    """Describe where the text comes from, and its outcome if it was sent."""
    if outcome == "open":
        return f"Sent {when}; the outcome is unknown: check before you send it again.", "warn"
    if outcome == "done":
        result = f": {sent.result_id}" if sent is not None and sent.result_id else ""
        return f"Your request from {when} took effect{result}", "good"
    return f"Your draft from {when}.", "quiet"


def settled_outcome(action: Action, command_line: str) -> OutcomeText:
    """The outcome of a write that is confirmed or unknown."""
    text = WRITE_KINDS[action.kind]
    if action.state == "confirmed":
        facts = [(text.made, action.result_id or "-"), ("action", action.action_id)]
        if (until := invited_until(action)) is not None:
            facts.insert(1, ("invited", f"{action.subject}, until {stamp(until)}"))
        return OutcomeText("done", text.done, tuple(facts), (when_heard(action) or text.after,))
    cause = () if action.error is None else (("reason", reason(action.error)),)
    sent = "It was sent, but no usable answer came back: it may have taken effect, or not."
    resolve = f"Press v to resolve it, or run: {command_line} actions resolve {action.action_id}"
    meaning = f"{sent} It is never sent again automatically.", text.check, resolve
    return OutcomeText("unknown", "The outcome is unknown", (*cause, ("action", action.action_id)), meaning)


def blocked_outcome(existing: Action, now: datetime, command_line: str) -> OutcomeText:
    facts = (
        ("for", existing.subject),
        ("earlier", f"{ACTION_BADGES[existing.state].word}, {ago(existing.created_at, now)}"),
        *(() if existing.error is None else (("reason", reason(existing.error)),)),
        ("by", existing.actor),
        ("action", existing.action_id),
    )
    meaning = "It is being sent.", "Wait until it is done, then try again."
    if existing.state == "unknown":
        resolve = f"Press v to resolve it, or run: {command_line} actions resolve {existing.action_id}"
        meaning = WRITE_KINDS[existing.kind].check, resolve
    return OutcomeText("blocked", "Not sent: an earlier attempt is still open", facts, meaning)


def why_not_done(action: Action) -> str:
    """Describe why a rejected or unsent action had no effect, and what to change."""
    error = action.error or ActionFailure("unknown", "The reason is unknown.")
    if action.state == "not_sent":
        return f"Not sent: {error.message} Nothing left this machine; you can send it again."
    fix = error_kind(error.kind).write_fix
    if error.kind == "forbidden" and action.kind == "organization.create":
        fix = _MAY_NOT_CREATE
    return f"Rejected: {reason(error)} Nothing was done. {fix}"
