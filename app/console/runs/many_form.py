"""The form for many runs: one confirmation, batches of `send_cap`, and a live line on how far all of them are."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.content import Content
from textual.widget import Widget

from app.actions import BlockedError, Problem
from app.api.requests import WriteRequest
from app.console.coalesced_task import CoalescedTask
from app.console.forms.action_form import ActionForm
from app.console.forms.drafts import Values
from app.console.forms.form_screen import Built
from app.console.runs.many import ManyTask, Sent, send_each
from app.engine import Engine
from app.events import Event, RunsChanged
from app.text import SafeText, safe_text
from storage.errors import StorageError
from storage.records import Action, Run
from widgets.badges import STYLES, action_badge, run_badge
from widgets.forms.dialog import FormButton, Phase
from widgets.forms.facts import FormFact
from widgets.forms.field import ParagraphField
from widgets.forms.pages import Outcome, OutcomePage, RequestPreview, Verdict, reason

if TYPE_CHECKING:
    from app.console.coalesced_task import Start

LISTED: Final = 200
"""Characters of a run's line."""


class ManyForm(ActionForm):
    """One request for each of many runs (spec 4.3)."""

    VERBS: ClassVar[tuple[FormButton, ...]] = (
        *ActionForm.VERBS,
        FormButton("stop", "Stop", "esc", "back", ("sending",)),
        FormButton("next", "Send the next", "^s", "forward", ("outcome",), is_primary=True),
    )

    def __init__(self, engine: Engine, task: ManyTask, *, cap: int) -> None:
        """Prepare for the task's runs, at most `cap` of them at a time."""
        self.TITLE_TEXT = task.title  # type: ignore[misc]  # the dialog reads it from here
        self._many = task
        self._cap = cap
        self._is_stopped = False
        self._sent: dict[str, Sent] = {}
        """What became of each run's request, by run."""
        super().__init__(engine, draft=task.draft)
        self._looking = CoalescedTask(self._look, cast("Start", self.run_worker))

    @property
    def confirmed(self) -> tuple[str, ...]:
        """Ids of the runs for which it took effect."""
        return tuple(run_id for run_id, sent in self._sent.items() if sent.is_done)

    @property
    def _rest(self) -> tuple[Run, ...]:
        """The runs for which nothing was sent yet, and those that may simply be tried again."""
        sent = self._sent
        return tuple(run for run in self._many.runs if run.run_id not in sent or sent[run.run_id].may_be_tried_again)

    def make_rows(self) -> Sequence[Widget]:
        """Which runs, in which batches, and with which words."""
        runs, task = self._many.runs, self._many
        places = len({run.repository.label for run in runs})
        which = f"{len(runs):,} on {places:,} {'repository' if places == 1 else 'repositories'}"
        rows: list[Widget] = [FormFact("runs", safe_text(which))]
        if len(runs) > self._cap:
            batches = f"first {self._cap:,}, then the next: at most {self._cap:,} at a time (send_cap)"
            rows.append(FormFact("batches", safe_text(batches)))
        if task.left_out:
            rows.append(FormFact("left out", safe_text(task.left_out)))
        return (*rows, ParagraphField("instructions", "instructions", task.hint, placeholder=task.placeholder))

    def build(self, values: Values) -> Built:
        """The first of the requests, or why there is none."""
        if not self._many.runs:
            return (Problem("instructions", self._many.nothing),)
        return self._many.request((self._rest or self._many.runs)[0], values["instructions"])

    def requests(self, values: Values) -> tuple[WriteRequest, ...]:
        """One for each run."""
        return tuple(self._many.request(run, values["instructions"]) for run in self._many.runs)

    def consequence(self, request: WriteRequest) -> str:
        """What sending does."""
        del request
        count = len(self._many.runs)
        batches = f" Sends the first {self._cap:,}, then waits for you." if count > self._cap else ""
        return self._many.consequence.format(f"{count:,}") + batches

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Sending can be stopped between two runs, and gone on with."""
        if action == "back" and self.phase == "sending":
            return not self._is_stopped
        if action == "forward" and self.phase == "outcome":
            return bool(self._rest) and self._open is None
        return super().check_action(action, parameters)

    def action_forward(self) -> None:
        """From the fields to the preview; from there, and from one batch to the next, send."""
        if self.phase == "outcome" and self.request is not None and not self.engine.actions.read_only:
            self.enter("sending")
            self.run_worker(self._send(self.request), group="send")
        else:
            super().action_forward()

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
        if phase == "outcome" and self._rest and self._open is None:
            self.query_one("#verb-next").focus()

    def verbs_without_meaning(self) -> frozenset[str]:
        """Buttons that would do nothing just now."""
        without = super().verbs_without_meaning() | {"copy"}
        return without if self._rest and self._open is None else without | {"next"}

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that were started or continued."""
        made = (sent.action.result_id for sent in self._sent.values() if sent.is_done and sent.action is not None)
        return tuple(run_id for run_id in made if run_id is not None)

    def _show_preview(self, request: WriteRequest) -> None:
        super()._show_preview(request)
        lines = [Content.assemble((self.consequence(request), "")), Content()]
        lines += [_listed(number, run) for number, run in enumerate(self._many.runs, 1)]
        quiet = "The first request; the others differ in run and address only:"
        lines += [Content(), Content.assemble((quiet, STYLES["quiet"]))]
        self.query_one(RequestPreview).explain(Content("\n").join(lines))

    async def _send(self, request: WriteRequest) -> None:
        del request
        await self.form_draft.sending()
        batch, words = self._rest[: self._cap], self.values["instructions"]
        trouble: SafeText | None = None
        count = 0
        try:
            self._say_progress(batch, 0)
            async for one in send_each(
                self.engine.actions, self._many, batch, words, is_wanted=lambda: not self._is_stopped
            ):
                self._sent[one.run.run_id] = one
                count += 1
                self._say_progress(batch, count)
        except StorageError as error:
            trouble = safe_text(str(error))
        await self._end(trouble)

    def _resolved(self, action: Action | None) -> None:
        """What is known now takes its place among the others, and the next batch may be sent."""
        if action is None or self._open is None:
            return
        open_id, all_sent = self._open.action_id, self._sent.values()
        sent = next((one for one in all_sent if one.action is not None and one.action.action_id == open_id), None)
        if sent is None:
            # It was an earlier attempt, which blocked this run.
            self._sent = {run_id: one for run_id, one in self._sent.items() if one.refusal is None}
        else:
            self._sent[sent.run.run_id] = Sent(sent.run, action)
        self.run_worker(self._end(None), group="send")

    async def _end(self, trouble: SafeText | None) -> None:
        sent = tuple(self._sent.values())
        unknown = next((one.action for one in sent if one.action is not None and one.action.state == "unknown"), None)
        blocked = next((one.refusal.existing for one in sent if isinstance(one.refusal, BlockedError)), None)
        self._open = unknown or (blocked if blocked is not None and blocked.state == "unknown" else None)
        self._result = unknown or next((one.action for one in sent if one.is_done), None)
        everything = len(self.confirmed) == len(self._many.runs)
        await (self.form_draft.done() if everything else self.form_draft.not_sent())
        self._show(outcome(self._many, sent, len(self._rest), self._cap, trouble))
        self._looking.ask()

    def _tick(self) -> None:
        """The count says more than the time."""

    def _say_progress(self, batch: Sequence[Run], count: int) -> None:
        run = batch[min(count, len(batch) - 1)]
        stopping = "Stopping after this one." if self._is_stopped else "esc stops after this one."
        done = len(self.confirmed)
        in_all = f" · {done:,} of {len(self._many.runs):,} in all" if len(batch) < len(self._many.runs) else ""
        self.dialog.sending(
            safe_text(f"{count:,} of {len(batch):,} sent{in_all} · now {run.run_id}   {stopping}", limit=LISTED)
        )

    # How the runs that were started go on

    def _engine_changed(self, event: Event) -> None:
        super()._engine_changed(event)
        if isinstance(event, RunsChanged):
            self._looking.ask()

    async def _look(self) -> None:
        if self.phase != "outcome" or not self.run_ids:
            return
        finals = await self.engine.cache.final_statuses()
        details = await self.engine.cache.details(self.run_ids)
        runs = [details[run_id].run for run_id in self.run_ids if run_id in details]
        self.dialog.note(safe_text(_progress(runs, len(self.run_ids), finals)))
        self.query_one(OutcomePage).list_below([_live(run, finals) for run in runs])


def outcome(task: ManyTask, sent: Sequence[Sent], rest: int, cap: int, trouble: SafeText | None) -> Outcome:
    """What became of all of them so far."""
    states = [one.action.state if one.action is not None else "refused" for one in sent]
    done = sum(one.is_done for one in sent)
    facts = tuple(_fact(one) for one in sent if not one.is_done)
    meaning = [trouble] if trouble else []
    if rest:
        them = "is left, and stays marked" if rest == 1 else "are left, and stay marked"
        more = f" ^s sends the next {min(rest, cap):,}." if "unknown" not in states else ""
        meaning.append(safe_text(f"{rest:,} {them}.{more}"))
    if "unknown" in states:
        meaning.append(safe_text("Whether that one took effect is unknown: v resolves it. Nothing is sent before."))
    total = len(task.runs)
    verdict: Verdict = "unknown" if "unknown" in states else "done" if done == total else "blocked"
    if not done and verdict == "blocked":
        verdict = "failed"
    said = task.done.format(f"{done:,}", f"{total:,}")
    return Outcome(verdict, safe_text(said), facts, tuple(meaning))


def _progress(runs: Sequence[Run], started: int, finals: frozenset[str]) -> str:
    statuses = Counter(run.status for run in runs if run.status in finals)
    failed = f", {statuses['failed']:,} failed" if statuses["failed"] else ""
    return f"{statuses.total():,} of {started:,} done{failed}"


def _live(run: Run, finals: frozenset[str]) -> tuple[str, Content]:
    badge = run_badge(run.status, is_final=run.status in finals)
    where = safe_text(f"{run.repository.label}  {run.branch_name}", limit=LISTED)
    line = Content.assemble((safe_text(run.run_id, limit=60), "bold"), (f"  {where}", STYLES["quiet"]))
    return badge.text, line


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
