"""The form that resolves an unknown outcome: it took effect, it did not, or it is sent again."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal

from rich.cells import cell_len
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Input

from app.actions import ActionRefusedError, DoubtfulIdError
from app.api.errors import ApiError
from app.api.requests import StartRun
from app.console.session import guarded_dispatch
from app.console.sheets import OVER_CSS
from app.engine import Engine
from app.events import ActionChanged, CacheChangedElsewhere, Event
from app.reconcile.candidates import FINDABLE, Candidate, Proposal, request_sent
from app.reconcile.result_ids import WHERE_TO_LOOK, check_result_id
from app.text import SafeText, safe_text
from app.times import ago
from storage.errors import StorageError
from storage.ledger import LedgerRefusedError
from storage.records import Action, ActionKind
from widgets.after_refresh import after_refresh
from widgets.cells import shorten
from widgets.forms.dialog import FormButton, FormDialog
from widgets.forms.facts import FormChoice, FormFact
from widgets.forms.field import ChoiceField
from widgets.forms.pages import reason
from widgets.frame.styled_once import keep_first_styles

ResolutionWord = Literal["created", "not_created", "send_again"]
_WORDS: Final[tuple[ResolutionWord, ...]] = ("created", "not_created", "send_again")
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
    "run.cancel": "cancelling of a run",
}
_SHORTEST_ID: Final = 12
_LINES: Final = 3
"""The most lines of candidates, or of advice on where to look."""
_ID_HINTS: Final[dict[ActionKind, str]] = {
    "run.start": "The run's id.",
    "run.continue": "The run's id.",
    "agent.start": "The execution's id.",
    "organization.create": "The organization's id.",
    "gitlab.onboard": "The project's path.",
    "run.cancel": "The run's id.",
}


class ResolveForm(ModalScreen[Action | None]):
    """Closes with the resolved action, or with the one sent in its place; None: nothing was decided."""

    CSS_PATH = OVER_CSS
    # Not the default style sheet: the console's own styles screens, and forms lie over one.
    CSS = """
    ResolveForm {
        align: center middle;
        background: $background 60%;
        FormDialog { height: 22; }
        #found { height: 3; max-height: 3; }
        .-listed .form-fact--value { text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """
    SCOPED_CSS = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,ctrl+enter", "apply", "Apply", priority=True),
        Binding("ctrl+o", "force", "Record it anyway", priority=True),
        Binding("escape", "cancel", "Cancel", priority=True),
    ]
    VERBS: ClassVar[Sequence[FormButton]] = (
        FormButton("cancel", "Cancel", "esc", "cancel", ("editing",)),
        FormButton("force", "Record it anyway", "^o", "force", ("editing",)),
        FormButton("apply", "Apply", "^s", "apply", ("editing",), is_primary=True),
    )

    def __init__(self, engine: Engine, action: Action) -> None:
        super().__init__()
        self._engine = engine
        self._action = action
        self._is_applying = False
        self._settled: Action | None = None
        """The action, once it was settled elsewhere; nothing is left to decide."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._doubted: str | None = None
        """The id that looks wrong, and that the user may record anyway."""
        self._best = ""
        """The id of the likeliest candidate, or of the one that was clicked."""
        self._is_picked = False
        self._ids: tuple[str, ...] = ()
        """The ids of all candidates."""
        self._candidates: tuple[Candidate, ...] = ()
        """The candidates on show, one a line."""
        self._found = FormFact("candidates" if action.kind in FINDABLE else "find out", SafeText())
        self._found.id = "found"
        self._found.set_class(action.kind in FINDABLE, "-listed")
        self._choice = FormChoice(_LABELS)
        self._evidence = ChoiceField("evidence", "", "")

    def compose(self) -> ComposeResult:
        """Compose the action, the three choices and their fields."""
        action, now = self._action, self._engine.clock()
        error = reason(action.error) if action.error else "-"
        rows = (
            FormFact("what", safe_text(f"{_THINGS[action.kind]}, {ago(action.created_at, now)}")),
            FormFact("about", safe_text(_about(action))),
            FormFact("reason", safe_text(error)),
            FormFact("action", safe_text(action.action_id)),
            self._found,
            self._choice,
            self._evidence,
        )
        yield FormDialog("Resolve an unknown outcome", rows, self.VERBS)

    _dispatch_message = guarded_dispatch

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Keep the styles that the form was mounted with."""
        keep_first_styles(self, event)

    def on_mount(self) -> None:
        """Look for candidates or show where to look, with no choice made."""
        self._unsubscribe = self._engine.subscribe(self._engine_changed)
        self._doubt(None)
        self._evidence.display = False
        self._choice.focus()
        if self._action.kind in FINDABLE:
            self._look_for_candidates()
        else:
            self._found.show([safe_text(WHERE_TO_LOOK[self._action.kind])])

    def on_unmount(self) -> None:
        """Stop listening."""
        self._unsubscribe()

    def on_resize(self) -> None:
        """Draw the candidates for the new width."""
        after_refresh(self, self._draw_candidates)

    def _engine_changed(self, event: Event) -> None:
        if isinstance(event, ActionChanged | CacheChangedElsewhere) and not self._is_applying:
            self._look_whether_settled()

    @work(group="settled", exclusive=True)
    async def _look_whether_settled(self) -> None:
        action = await self._engine.ledger.action(self._action.action_id)
        if not self.is_running or action is None or self._is_applying or action.is_open == (self._settled is None):
            return
        self._settled = None if action.is_open else action
        self._doubt(None)
        if self._settled is not None:
            self._refuse(_settled_in_words(self._settled))

    @property
    def _word(self) -> ResolutionWord | None:
        return None if self._choice.chosen is None else _WORDS[self._choice.chosen]

    @property
    def _pledge(self) -> str:
        """The text to type before it is sent again."""
        return self._action.subject or "send again"

    def action_cancel(self) -> None:
        """Close without a change, unless a write is on its way."""
        if not self._is_applying:
            self.dismiss(self._settled)

    def action_force(self) -> None:
        """Record the id although it looks wrong."""
        if self._doubted is not None and self._word == "created" and self._evidence.value.strip() == self._doubted:
            self._is_applying = True
            self._apply("created", self._doubted, is_checked=True)

    def action_apply(self) -> None:
        """Carry out the decision, once it is complete."""
        word, evidence = self._word, self._evidence.value.strip()
        if self._is_applying or self._settled is not None:
            return
        if word is None:
            self._refuse("Choose one of the three.")
        elif word == "created" and not evidence:
            self._evidence.complain(safe_text("Give the id: it links this attempt to its result."))
        elif word == "send_again" and evidence.casefold() != self._pledge.casefold():
            self._evidence.complain(safe_text(f"Type {self._pledge} to confirm."))
        else:
            self._is_applying = True
            self._apply(word, evidence)

    @work(group="apply")
    async def _apply(self, word: ResolutionWord, evidence: str, *, is_checked: bool = False) -> None:
        try:
            if word == "created" and not is_checked:
                self.query_one(FormDialog).note(safe_text("Checking the id…"))
                await check_result_id(self._action, evidence, self._engine.reconciliation)
            action = await self._decide(word, evidence)
        except DoubtfulIdError as error:
            self._is_applying = False
            self._doubt(evidence)
            self._refuse(str(error))
        except (ActionRefusedError, LedgerRefusedError, StorageError) as error:
            self._is_applying = False
            self._doubt(None)
            self._refuse(str(error))
        else:
            self.dismiss(action)

    async def _decide(self, word: ResolutionWord, evidence: str) -> Action:
        actions, action_id = self._engine.actions, self._action.action_id
        if word == "created":
            return await actions.resolve_created(action_id, evidence)
        if word == "not_created":
            return await actions.resolve_not_created(action_id)
        self.query_one(FormDialog).note(safe_text("Sending…"))
        return await actions.send_again(action_id)

    def on_click(self, event: events.Click) -> None:
        """Take the clicked candidate."""
        if event.widget is None or self._found not in event.widget.ancestors_with_self:
            return
        row = event.screen_y - self._found.region.y
        if row < min(len(self._candidates), _LINES):
            self._best, self._is_picked = self._candidates[row].run.run_id, True
            self._choice.chosen = 0
            self._evidence.fill(self._best)

    @on(FormChoice.Changed)
    def _chosen(self) -> None:
        self._doubt(None)
        word = self._word
        self._evidence.complain(None)
        self._evidence.display = word in {"created", "send_again"}
        if word == "created":
            self._evidence.rename("id")
            self._evidence.offer(self._ids)
            self._evidence.rest(safe_text(_ID_HINTS[self._action.kind]))
            self._evidence.fill(self._best)
        elif word == "send_again":
            self._evidence.rename("confirm")
            self._evidence.offer(())
            self._evidence.rest(safe_text(f"Type {self._pledge} to confirm."), "warn")
            self._evidence.fill("")

    @on(Input.Changed)
    def _typed(self) -> None:
        self._evidence.complain(None)
        if self._doubted is not None and self._evidence.value.strip() != self._doubted:
            self._doubt(None)

    def _doubt(self, result_id: str | None) -> None:
        """Offer to record this id although it looks wrong; None: remove the offer and its refusal."""
        self._doubted = result_id
        dialog = self.query_one(FormDialog)
        without = {"force"} if result_id is None else set()
        dialog.enter("editing", without=frozenset(without if self._settled is None else {"force", "apply"}))
        dialog.border_subtitle = ""
        dialog.banner(None)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_apply()

    def _refuse(self, why: str) -> None:
        self.query_one(FormDialog).note(safe_text(""))
        self.query_one(FormDialog).banner(safe_text(why))

    @work(group="candidates")
    async def _look_for_candidates(self) -> None:
        dialog, reconciliation = self.query_one(FormDialog), self._engine.reconciliation
        dialog.note(safe_text("Asking the service for runs that it may have made…"))
        try:
            self._offer(await reconciliation.cached(self._action))
            found = await reconciliation.ask(self._action)
        except (ApiError, StorageError) as error:
            dialog.note(safe_text(f"The service could not be asked for runs that it may have made: {error}"), "warn")
            return
        self._offer(found)
        dialog.note(_found_in_words(found))

    def _offer(self, found: Proposal) -> None:
        """Show the candidates and fill in the likeliest, unless an id was typed."""
        ids = tuple(candidate.run.run_id for candidate in found.candidates)
        before = self._best
        if not self._is_picked:
            self._best = ids[0] if ids else ""
        self._candidates = found.candidates if len(ids) <= _LINES else found.candidates[: _LINES - 1]
        self._ids = ids
        self._draw_candidates()
        if self._word == "created":
            self._evidence.offer(ids)
            if self._evidence.value in {"", before}:
                self._evidence.fill(self._best)

    def _draw_candidates(self) -> None:
        if self._action.kind not in FINDABLE:
            return
        width = self._found.query_one(".form-fact--value").content_size.width
        lines = [candidate_line(candidate, width) for candidate in self._candidates]
        if len(lines) < len(self._ids):
            lines.append(safe_text(f"and {len(self._ids) - len(lines)} more: ↓ in the field of the id"))
        self._found.show(lines or [safe_text("none so far")])


def _about(action: Action) -> str:
    request = request_sent(action)
    if isinstance(request, StartRun):
        return "  ".join(filter(None, (request.repository.label, request.branch_name)))
    return action.subject or action.path


def candidate_line(candidate: Candidate, width: int) -> SafeText:
    """Format a candidate for a width; its id and branch are cut, its reasons are not."""
    run_id, branch = safe_text(candidate.run.run_id, limit=100), safe_text(candidate.run.branch_name, limit=200)
    why = safe_text(f"{candidate.evidence}  {candidate.run.status}")
    room = max(0, width - cell_len(why) - 4)
    id_cells = min(cell_len(run_id), max(_SHORTEST_ID, room - min(cell_len(branch), room // 2)))
    return safe_text(f"{shorten(run_id, id_cells, 'middle')}  {why}  {shorten(branch, room - id_cells, 'middle')}")


def _settled_in_words(action: Action) -> str:
    if action.state == "confirmed":
        return f"Settled elsewhere: it took effect, and made {action.result_id}. Nothing is left to decide."
    if action.superseded_by is not None:
        return f"Settled elsewhere: it was sent again, as {action.superseded_by}. Nothing is left to decide."
    return "Settled elsewhere: it did not take effect. Nothing is left to decide."


def _found_in_words(found: Proposal) -> SafeText:
    count = len(found.candidates)
    if found.is_certain:
        return safe_text("Found: the first run carries this action's own id.")
    if count == 0 and found.is_whole:
        return safe_text("No run fits: most likely it did not take effect.")
    if count == 0:
        return safe_text("No known run fits, but not all runs around the send could be read.")
    runs = "One run fits" if count == 1 else f"{count} runs fit"
    return safe_text(f"{runs} by place and time. A colleague may have started {'it' if count == 1 else 'them'}.")
