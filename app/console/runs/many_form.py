"""The form for many runs: one confirmation, batches of `send_cap`, and a live line of progress."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, cast

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from app.actions import BlockedError, problems
from app.api.requests import WriteRequest
from app.console.forms.action_form import ActionForm, RequestOrProblems
from app.console.forms.drafts import Values
from app.console.forms.fields import TEXT, Field
from app.console.forms.instructions import NAMES
from app.console.runs.batch import ManyTask, RunBatch, send_each
from app.console.session.coalesced_task import CoalescedTask
from app.engine import Engine
from app.events import ActionChanged, CacheChangedElsewhere, Event, RunsChanged
from app.text import SafeText, safe_text
from storage.errors import StorageError
from storage.records import Action, Run
from widgets.badges import STYLES
from widgets.batch import BatchView
from widgets.cells import shorten
from widgets.forms.dialog import FormButton, FormPhase
from widgets.forms.facts import FormFact
from widgets.forms.pages import OutcomePage, OutcomeText, OutcomeVerdict, RequestPreview

if TYPE_CHECKING:
    from app.console.session.coalesced_task import Start

LISTED: Final = 200
"""Characters of a run's line."""
_NUMBER, _STATUS, _PADDING = 6, 14, 5
"""Cells of a run's number in the preview, of its status in the outcome, and of the padding beside both."""


class ManyForm(ActionForm):
    """One request for each of many runs (spec 4.3)."""

    BUTTONS: ClassVar[tuple[FormButton, ...]] = (
        *ActionForm.BUTTONS,
        FormButton("stop", "Stop", "esc", "back", ("sending",)),
        FormButton("next", "Send the next", "^s", "forward", ("refused", "outcome"), is_primary=True),
    )

    def __init__(
        self, engine: Engine, task: ManyTask, *, cap: int, changed: Callable[[RunBatch], object] = lambda _: None
    ) -> None:
        """Prepare for the task's runs, at most `cap` of them at a time; `changed` is called with the progress."""
        self.TITLE_TEXT = task.text.title  # type: ignore[misc]  # the dialog reads it from here
        self._many = task
        self._cap = cap
        self._is_stopped = False
        self._changed_batch = changed
        now = engine.clock()
        self._batch = RunBatch(f"{task.text.draft} {now.isoformat()}", task, now)
        self.FIELDS = (Field("instructions", "instructions", task.text.hint, TEXT, task.text.placeholder),)
        super().__init__(engine, draft=task.text.draft)
        self._looking = CoalescedTask(self._look, cast("Start", self.run_worker))

    def make_rows(self) -> Sequence[Widget]:
        """The runs, the batches and the instructions."""
        runs, task = self._many.runs, self._many
        count = len({run.repository.label for run in runs})
        which = f"{len(runs):,} on {count:,} {'repository' if count == 1 else 'repositories'}"
        rows: list[Widget] = [FormFact("runs", safe_text(which))]
        if len(runs) > self._cap:
            batches = f"first {self._cap:,}, then the next: at most {self._cap:,} at a time (send_cap)"
            rows.append(FormFact("batches", safe_text(batches)))
        if task.left_out:
            rows.append(FormFact("left out", safe_text(task.left_out)))
        return (*rows, *super().make_rows())

    def build(self, values: Values) -> RequestOrProblems:
        """The first of the requests, or the problems."""
        words = values["instructions"]
        first = self._many.request((self._batch.rest or self._many.runs)[0], words)
        if (problem := self._many.problem(words)) is not None:
            return (problem, *problems(first))
        return first

    def requests(self, values: Values) -> tuple[WriteRequest, ...]:
        """Return a request for each run."""
        return tuple(self._many.request(run, values["instructions"]) for run in self._many.runs)

    def placeholders(self) -> dict[str, str]:
        """Leave the placeholders as typed: they are filled in for each run when it is sent."""
        return {name: f"{{{name}}}" for name in NAMES}

    def consequence(self, request: WriteRequest) -> str:
        """The effect of sending."""
        del request
        count = len(self._many.runs)
        batches = f" Sends the first {self._cap:,}, then waits for you." if count > self._cap else ""
        return self._many.text.outlook(count) + batches

    def is_possible(self, action: str) -> bool:
        """Sending can be stopped between two runs and continued."""
        if action == "back" and self.phase == "sending":
            return not self._is_stopped
        if action == "forward" and self.phase in {"refused", "outcome"}:
            return bool(self._batch.rest) and self._open is None
        return action != "copy_id" and super().is_possible(action)

    def action_forward(self) -> None:
        """Go on from the fields to the preview, then send batch by batch."""
        if self.phase in {"refused", "outcome"} and self.request is not None and self.may_send():
            self.enter("sending")
            self.run_worker(self._send(self.request), group="send")
        else:
            super().action_forward()

    def action_back(self) -> None:
        """Go back one step; while sending, stop after the current run."""
        if self.phase == "sending":
            self._is_stopped = True
            self.refresh_bindings()
        else:
            super().action_back()

    def enter(self, phase: FormPhase) -> None:
        """Go to another phase."""
        if phase == "sending":
            self._is_stopped = False
        super().enter(phase)
        if phase in {"refused", "outcome"} and self._batch.rest and self._open is None:
            self.query_one("#verb-next").focus()

    @property
    def confirmed(self) -> tuple[str, ...]:
        """Ids of the runs for which it took effect."""
        return self._batch.confirmed

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that were started or continued."""
        return self._batch.made

    def show_preview(self, request: WriteRequest) -> None:
        """Show all runs, and the first request."""
        super().show_preview(request)
        lines = [Content.assemble((self.consequence(request), "")), Content()]
        lines += [_listed(number, run, self._width - _NUMBER) for number, run in enumerate(self._many.runs, 1)]
        quiet = "The first request; the others differ in their run and what is filled in for it:"
        lines += [Content(), Content.assemble((quiet, STYLES["quiet"]))]
        self.query_one(RequestPreview).explain(Content("\n").join(lines))

    async def _send(self, request: WriteRequest) -> None:
        del request
        await self.form_draft.sending()
        rest, words = self._batch.rest[: self._cap], self.values["instructions"]
        trouble: SafeText | None = None
        count = 0
        try:
            self._put(replace(self._batch, is_sending=True))
            self._say_progress(rest, 0)
            async for one in send_each(
                self.engine.actions, self._many, rest, words, is_wanted=lambda: not self._is_stopped
            ):
                self._put(self._batch.settled(one))
                count += 1
                self._say_progress(rest, count)
        except StorageError as error:
            trouble = safe_text(str(error))
        self._put(replace(self._batch, is_sending=False))
        self.engine.polling.poll_soon("runs")
        await self._end(trouble)

    def _put(self, batch: RunBatch) -> None:
        self._batch = batch
        self._changed_batch(batch)

    def _resolved(self, action: Action | None) -> None:
        """Put the resolved outcome into the batch, after which the next runs can be sent."""
        if action is None or self._open is None:
            return
        open_id, all_sent = self._open.action_id, self._batch.sent.values()
        sent = next((one for one in all_sent if one.action is not None and one.action.action_id == open_id), None)
        if sent is not None:
            self._put(self._batch.settled(replace(sent, action=action)))
        self.run_worker(self._end(None))

    async def _end(self, trouble: SafeText | None) -> None:
        sent = tuple(self._batch.sent.values())
        unknown = next(iter(self._batch.unknown), None)
        blocked = next((one.refusal.existing for one in sent if isinstance(one.refusal, BlockedError)), None)
        self._open = unknown or (blocked if blocked is not None and blocked.state == "unknown" else None)
        self._result = unknown or next((one.action for one in sent if one.is_done), None)
        everything = len(self._batch.confirmed) == len(self._many.runs)
        await (self.form_draft.done() if everything else self.form_draft.not_sent())
        self.show_outcome(outcome(self._batch, self._cap, trouble))
        self._looking.ask()

    def _tick(self) -> None:
        """Show the count of requests alone, and not the time that other forms show while sending."""

    def _say_progress(self, batch: Sequence[Run], count: int) -> None:
        run = batch[min(count, len(batch) - 1)]
        stopping = "Stopping after this one." if self._is_stopped else "esc stops after this one."
        done = len(self._batch.confirmed)
        in_all = f" · {done:,} of {len(self._many.runs):,} in all" if len(batch) < len(self._many.runs) else ""
        self.dialog.sending(
            safe_text(f"{count:,} of {len(batch):,} sent{in_all} · now {run.run_id}   {stopping}", limit=LISTED)
        )

    # The progress of the runs that were started

    def _engine_changed(self, event: Event) -> None:
        super()._engine_changed(event)
        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self._looking.ask()

    async def _look(self) -> None:
        if self.phase != "outcome" or not self.run_ids:
            return
        view = self._batch.view(await self.engine.cache.details(self.run_ids))
        self.dialog.note(view.progress)
        self.query_one(OutcomePage).list_below(
            [
                (line.badge.text, _live(line.run_id, line.about, self._width - _STATUS))
                for line in view.lines
                if line.opens is not None
            ]
        )

    @property
    def _width(self) -> int:
        """Cells of a line, without the scroll bar."""
        return max(40, self.dialog.content_size.width - _PADDING)


def outcome(batch: RunBatch, cap: int, trouble: SafeText | None) -> OutcomeText:
    """Describe the outcomes so far."""
    view, rest = batch.view({}), len(batch.rest)
    facts = tuple(
        (line.badge.text, safe_text(f"{line.run_id}: {line.about}", limit=LISTED))
        for run, line in zip(batch.task.runs, view.lines, strict=True)
        if run.run_id in batch.sent and line.opens is None
    )
    meaning = [trouble] if trouble else []
    if rest:
        them = "is left, and stays marked" if rest == 1 else "are left, and stay marked"
        more = f" ^s sends the next {min(rest, cap):,}." if not view.unknown else ""
        meaning.append(safe_text(f"{rest:,} {them}.{more}"))
    if view.unknown:
        meaning.append(safe_text("Whether that one took effect is unknown: v resolves it. Nothing is sent before."))
    said = batch.task.text.outcome(view.confirmed, len(view.lines))
    return OutcomeText(_verdict(view), safe_text(said), facts, tuple(meaning))


def _verdict(view: BatchView) -> OutcomeVerdict:
    if view.unknown:
        return "unknown"
    if view.confirmed == len(view.lines):
        return "done"
    return "blocked" if view.confirmed else "failed"


def _live(run_id: SafeText, about: SafeText, width: int) -> Content:
    rest = shorten(about, max(0, width - cell_len(run_id) - 2), "middle")
    return Content.assemble((run_id, "bold"), (f"  {rest}", STYLES["quiet"]))


def _listed(number: int, run: Run, width: int) -> Content:
    where = safe_text(f"{run.repository.label}  {run.branch_name}", limit=LISTED)
    return Content.assemble((f"{number:>4}  ", STYLES["quiet"]), _live(safe_text(run.run_id, limit=60), where, width))
