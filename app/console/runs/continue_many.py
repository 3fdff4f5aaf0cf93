"""Continuing many runs with one instruction: one after the other, each through the ledger, no further than is safe."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.content import Content
from textual.widget import Widget

from app.actions import ActionRefusedError, Actions, BlockedError, Problem
from app.api.requests import ContinueRun, WriteRequest
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values
from app.console.forms.form_screen import Built
from app.console.forms.runs import continuation
from app.engine import Engine
from app.text import SafeText, safe_text
from storage.errors import StorageError
from storage.records import FINAL_STATUSES, Action, Run
from widgets.badges import STYLES, action_badge
from widgets.forms.dialog import FormButton, Phase
from widgets.forms.facts import FormFact
from widgets.forms.field import ParagraphField
from widgets.forms.pages import Outcome, RequestPreview, reason

HOPELESS: Final = frozenset({"rate_limited", "not_authorized", "forbidden", "token"})
"""Refusals that the next run would meet as well."""
LISTED: Final = 200
"""Characters of a run's line."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of one run's turn."""

    run: Run
    action: Action | None
    """None: it was refused before anything was prepared."""
    refusal: ActionRefusedError | None = None
    """Why it was refused."""

    @property
    def ends_all(self) -> bool:
        """Whether to stop here: the next run would be refused too, or the outcome of this one is unknown."""
        if self.action is None or self.action.state == "confirmed":
            return False
        if self.action.state == "rejected":
            return self.action.error is not None and self.action.error.kind in HOPELESS
        return True


async def continue_each(
    actions: Actions,
    runs: Sequence[Run],
    request: Callable[[Run], ContinueRun],
    *,
    is_wanted: Callable[[], bool],
) -> AsyncIterator[Sent]:
    """Send to one run after the other, until an answer stops the rest or `is_wanted` says no.

    Raises:
        StorageError: The ledger cannot be written; nothing more is sent.
    """
    for run in runs:
        if not is_wanted():
            return
        try:
            sent = Sent(run, await actions.submit(request(run)))
        except ActionRefusedError as refused:
            sent = Sent(run, None, refused)
        yield sent
        if sent.ends_all:
            return


class ContinueManyForm(ActionForm):
    """POST /external/runs with a run_id, once for each run (spec 4.3)."""

    TITLE_TEXT = "Continue many runs"
    VERBS: ClassVar[tuple[FormButton, ...]] = (
        *ActionForm.VERBS,
        FormButton("stop", "Stop", "esc", "back", ("sending",)),
    )

    def __init__(
        self, engine: Engine, runs: Sequence[Run], *, cap: int, final_statuses: Collection[str] = FINAL_STATUSES
    ) -> None:
        """Prepare for these runs, at most `cap`, without those that are still active."""
        self._runs = tuple(run for run in runs if run.status in final_statuses)
        self._active = len(runs) - len(self._runs)
        self._cap = cap
        self._is_stopped = False
        self.confirmed: tuple[str, ...] = ()
        """Ids of the runs that were continued."""
        super().__init__(engine, draft="run.continue.many")

    def make_rows(self) -> Sequence[Widget]:
        """Which runs, and what they should do next."""
        places = len({run.repository.label for run in self._runs})
        which = f"{len(self._runs):,} on {places:,} {'repository' if places == 1 else 'repositories'}"
        rows: list[Widget] = [FormFact("runs", safe_text(which))]
        if self._active:
            rows.append(FormFact("left out", safe_text(f"{self._active:,} still active: a turn has to end first")))
        field = ParagraphField(
            "instructions",
            "instructions",
            "Each agent remembers what was said to it before.",
            placeholder="What should each of them do next?",
        )
        return (*rows, field)

    async def on_mount(self) -> None:
        """What hinders sending is said before a word is typed."""
        if self._too_many is not None:
            self.dialog.banner(safe_text(self._too_many))

    @property
    def _too_many(self) -> str | None:
        excess = len(self._runs) - self._cap
        return f"At most {self._cap:,} at a time (send_cap): unmark {excess:,}." if excess > 0 else None

    def build(self, values: Values) -> Built:
        """The first of the requests, or why there is none."""
        count = len(self._runs)
        if not count:
            return (Problem("instructions", "None of the marked runs has ended: there is nothing to continue."),)
        if self._too_many is not None:
            return (Problem("instructions", self._too_many),)
        return continuation(self._runs[0], values["instructions"])

    def requests(self, values: Values) -> tuple[WriteRequest, ...]:
        """One for each run."""
        return tuple(continuation(run, values["instructions"]) for run in self._runs)

    def consequence(self, request: WriteRequest) -> str:
        """What sending does."""
        del request
        return f"Continues {len(self._runs):,} runs, one after the other, each with its own context."

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow sending to be stopped between two runs."""
        if action == "back" and self.phase == "sending":
            return not self._is_stopped
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        """Go one step back; while sending, stop after the current run."""
        if self.phase == "sending":
            self._is_stopped = True
            self.refresh_bindings()
        else:
            super().action_back()

    def enter(self, phase: Phase) -> None:
        """Go to another phase."""
        if phase == "sending":
            self._is_stopped = False
        super().enter(phase)

    def verbs_without_meaning(self) -> frozenset[str]:
        """Buttons that would do nothing just now."""
        return super().verbs_without_meaning() | {"copy"}

    def _show_preview(self, request: WriteRequest) -> None:
        super()._show_preview(request)
        lines = [Content.assemble((self.consequence(request), "")), Content()]
        lines += [_listed(number, run) for number, run in enumerate(self._runs, 1)]
        lines += [
            Content(),
            Content.assemble(("The first request; the others differ in run and address only:", STYLES["quiet"])),
        ]
        self.query_one(RequestPreview).explain(Content("\n").join(lines))

    async def _send(self, request: WriteRequest) -> None:
        del request
        await self.form_draft.sending()
        instructions = self.values["instructions"]
        sent: list[Sent] = []
        trouble: SafeText | None = None
        try:
            self._say_progress(0)
            async for one in continue_each(
                self.engine.actions,
                self._runs,
                lambda run: continuation(run, instructions),
                is_wanted=lambda: not self._is_stopped,
            ):
                sent.append(one)
                self._say_progress(len(sent))
        except StorageError as error:
            trouble = safe_text(str(error))
        await self._end(sent, trouble)

    async def _end(self, sent: Sequence[Sent], trouble: SafeText | None) -> None:
        actions = [one.action for one in sent if one.action is not None]
        done = [one.action for one in sent if one.action is not None and one.action.state == "confirmed"]
        self.confirmed = tuple(one.run.run_id for one in sent if one.action in done and one.action is not None)
        unknown = next((action for action in actions if action.state == "unknown"), None)
        blocked = next((one.refusal.existing for one in sent if isinstance(one.refusal, BlockedError)), None)
        self._open = unknown or (blocked if blocked is not None and blocked.state == "unknown" else None)
        self._result = unknown or next(iter(done), None)
        await (self.form_draft.done() if len(done) == len(self._runs) else self.form_draft.not_sent())
        self._show(outcome(self._runs, sent, trouble))

    def _tick(self) -> None:
        """The count says more than the time."""

    def _say_progress(self, count: int) -> None:
        run = self._runs[min(count, len(self._runs) - 1)]
        stopping = "Stopping after this one." if self._is_stopped else "esc stops after this one."
        self.dialog.sending(safe_text(f"{count:,} of {len(self._runs):,} sent · now {run.run_id}   {stopping}"))


def outcome(runs: Sequence[Run], sent: Sequence[Sent], trouble: SafeText | None) -> Outcome:
    """What became of all of them."""
    states = [one.action.state if one.action is not None else "refused" for one in sent]
    done, unknown, left = states.count("confirmed"), states.count("unknown"), len(runs) - len(sent)
    facts = tuple(_fact(one) for one in sent if one.action is None or one.action.state != "confirmed")
    meaning = [trouble] if trouble else []
    if left:
        them = "was not sent to; it stays marked" if left == 1 else "were not sent to; they stay marked"
        meaning.append(safe_text(f"{left:,} {them}."))
    if unknown:
        meaning.append(
            safe_text("Whether that turn began is unknown: v resolves it. Until then its run is not continued again.")
        )
    verdict = "unknown" if unknown else "done" if done == len(runs) else "failed" if not done else "blocked"
    headline = safe_text(f"{done:,} of {len(runs):,} runs {'goes' if done == 1 else 'go'} on")
    return Outcome(verdict, headline, facts, tuple(meaning))  # type: ignore[arg-type]  # each is a verdict


def _fact(one: Sent) -> tuple[str, SafeText]:
    if one.action is None:
        why = one.refusal.message if one.refusal is not None else ""
        return "⊘ not sent", safe_text(f"{one.run.run_id}: {why}", limit=LISTED)
    badge = action_badge(one.action.state)
    why = reason(one.action.error) if one.action.error is not None else ""
    return badge.text, safe_text(f"{one.run.run_id}: {why}", limit=LISTED)


def _listed(number: int, run: Run) -> Content:
    text = safe_text(f"{run.repository.label}  {run.branch_name}", limit=LISTED)
    return Content.assemble(
        (f"{number:>4}  ", STYLES["quiet"]), (safe_text(run.run_id, limit=60), "bold"), (f"  {text}", STYLES["quiet"])
    )
