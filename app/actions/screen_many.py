"""Many runs at once: the form with one confirmation and batches of `send_cap`, its live list, and the cancel sheet."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

from msgspec.structs import replace
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList

from app.actions.asked import NAMES
from app.actions.batch import BatchResult, BatchSender
from app.actions.drafts import Values
from app.actions.follow_ups import waiting_words
from app.actions.reconciliation import LOOK_S, submit_and_settle
from app.actions.refusals import ActionRefusedError
from app.actions.screen_batch import LISTED, RETRY, RunBatch, repository_and_branch
from app.actions.screen_fields import Field, format_pairs
from app.actions.screen_form import ActionForm, Built
from app.api.requests import CancelRun, StartAgent, WriteRequest
from app.console.session import Session
from app.console.sheets import ConfirmSheet, Sheet
from app.engine.engine import Engine
from app.engine.text import plural, safe_text
from storage import RunwardenError
from storage.errors import StorageError
from storage.records import Action, Run
from storage.records.decision import Decision
from widgets.forms.dialog import FormButton, FormPhase, OutcomeText, OutcomeVerdict
from widgets.forms.facts import FormFact
from widgets.forms.field import ParagraphField
from widgets.kit import after_refresh
from widgets.kit.badges import STYLES
from widgets.kit.cells import shorten
from widgets.kit.choice_lists import Options
from widgets.runs.follow import BatchView

_PADDING: Final = 13
"""Cells of a preview line besides the run's id, repository and branch: its number, spaces and the scroll bar."""


class ManyForm(ActionForm):
    """One request for each of many runs (spec 4.3)."""

    SHOWS_TIME = False
    BUTTONS: ClassVar[tuple[FormButton, ...]] = (
        *ActionForm.BUTTONS,
        FormButton("stop", "Stop", "esc", "back", ("sending",)),
        FormButton("next", "Send the next", "^s", "forward", ("refused", "outcome"), is_primary=True),
    )

    def __init__(
        self, engine: Engine, batch: RunBatch, *, cap: int, changed: Callable[[RunBatch], object] = lambda _: None
    ) -> None:
        """Prepare for the batch, at most `cap` runs at a time; `changed` is called with the progress."""
        text = batch.text
        self.TITLE_TEXT = text.title  # type: ignore[misc]  # Textual declares it a class variable, and reads the instance's
        self._cap = cap
        self._is_stopped = False
        self._changed_batch = changed
        draft = f"run.{text.verb}.many"
        self.run_batch = replace(batch, batch_id=f"{draft} {engine.clock().isoformat()}")
        self.FIELDS = (Field("instructions", "instructions", text.hint, ParagraphField, text.placeholder),)
        super().__init__(engine, draft=draft, is_ready=text is RETRY)

    def make_rows(self) -> Sequence[Widget]:
        return (*(FormFact(name, fact) for name, fact in self._facts().items()), *super().make_rows())

    def _facts(self) -> dict[str, str]:
        batch, runs = self.run_batch, self.run_batch.runs
        count = len({run.repository.label for run in runs})
        facts = {"runs": f"{len(runs):,} on {count:,} {'repository' if count == 1 else 'repositories'}"}
        if len(runs) > self._cap:
            facts["batches"] = f"first {self._cap:,}, then the next: at most {self._cap:,} at a time (send_cap)"
        asked = [batch.asked[run.run_id] for run in runs] if batch.text is RETRY else []
        if any(source.is_reported for source in asked):
            authors = (source.caller or "another user" if source.is_reported else "this machine" for source in asked)
            counts = [f"{count:,} from {author}" for author, count in Counter(authors).items()]
            facts["words"] = ", ".join(counts) if len(runs) > 1 else counts[0].removeprefix("1 ")
        if batch.left_out:
            facts["left out"] = batch.left_out
        return facts

    def build(self, values: Values) -> Built:
        """The first of the requests, and the problems of all."""
        words = values["instructions"]
        first, _ = self.run_batch.request((self.run_batch.left_to_send or self.run_batch.runs)[0], words)
        return first, self.run_batch.problems(words)

    def requests(self, values: Values) -> tuple[WriteRequest, ...]:
        return tuple(self.run_batch.request(run, values["instructions"])[0] for run in self.run_batch.runs)

    def placeholders(self) -> dict[str, str]:
        """Leave the placeholders as typed: they are filled in for each run when it is sent."""
        return {name: f"{{{name}}}" for name in NAMES}

    def consequence(self, _request: WriteRequest) -> str:
        count = len(self.run_batch.runs)
        batches = ""
        if count > self._cap:
            batches = f" Sends the first {self._cap:,}, then waits for you."
        text = self.run_batch.text
        return f"{text.consequence.format(plural(count, 'run'))}{text.each if count > 1 else ''}.{batches}"

    def is_possible(self, action: str) -> bool:
        """Sending can be stopped between two runs and continued."""
        if action == "back" and self.phase == "sending":
            return not self._is_stopped
        if action == "forward" and self.phase in {"refused", "outcome"}:
            return bool(self.run_batch.left_to_send) and self._open is None
        return super().is_possible(action)

    def action_back(self) -> None:
        if self.phase == "sending":
            self._is_stopped = True
            self.dialog.sending("Stopping after this one.")
            self.refresh_bindings()
        else:
            super().action_back()

    def enter(self, phase: FormPhase) -> None:
        if phase == "sending":
            self._is_stopped = False
        super().enter(phase)
        if phase in {"refused", "outcome"} and self.is_possible("forward"):
            self.query_one("#verb-next").focus()

    @property
    def run_ids(self) -> tuple[str, ...]:
        return self.run_batch.made

    def explanation(self, request: WriteRequest) -> Content:
        lines = [Content(self.consequence(request)), Content()]
        for name, fact in self._facts().items():
            lines.append(Content.assemble((f"{name:<10}", STYLES["quiet"]), safe_text(fact)))
        lines.append(Content())
        for number, run in enumerate(self.run_batch.runs, 1):
            run_id = safe_text(run.run_id, limit=60)
            room = self.dialog.content_size.width - _PADDING - cell_len(run_id)
            parts = (f"{number:>4}  ", STYLES["quiet"]), (run_id, "bold")
            label = shorten(repository_and_branch(run), max(0, room), "middle")
            if self.run_batch.text is RETRY:
                asked = self.run_batch.asked[run.run_id]
                words = asked.words.strip().partition("\n")[0]
                if isinstance(asked.request, StartAgent):
                    inputs = ", ".join(format_pairs(asked.request.inputs).splitlines())
                    words = f"{asked.request.name}: {words or inputs or 'no inputs'}"
                label = shorten(safe_text(f"{run.repository.label}  {words}"), max(0, room))
            lines.append(Content.assemble(*parts, (f"  {label}", STYLES["quiet"])))
        if len(self.run_batch.runs) > 1:
            quiet = "The first request; each of the others is made from its own run:"
            lines += [Content(), Content.assemble((quiet, STYLES["quiet"]))]
        return Content("\n").join(lines)

    async def send(self, _request: WriteRequest) -> None:
        await self.form_draft.mark_sent(self.engine.clock())
        next_ones = self.run_batch.left_to_send[: self._cap]
        words = self.values["instructions"]
        sender = BatchSender(self.engine.actions.submit)
        problem = ""
        try:
            self._show_batch(replace(self.run_batch, is_sending=True))
            for count, run in enumerate(next_ones):
                if self._is_stopped or not sender.may_send:
                    break
                done = len(self.run_batch.confirmed)
                in_all = ""
                if len(next_ones) < len(self.run_batch.runs):
                    in_all = f" · {done:,} of {len(self.run_batch.runs):,} in all"
                so_far = f"{count:,} of {len(next_ones):,} sent{in_all} · now {run.run_id}   esc stop after this one"
                self.dialog.sending(safe_text(so_far, limit=LISTED))
                result = await sender.send(*self.run_batch.request(run, words))
                self._show_batch(replace(self.run_batch, sent={**self.run_batch.sent, run.run_id: result}))
        except RunwardenError as error:
            problem = str(error)
        self._show_batch(replace(self.run_batch, is_sending=False))
        self.engine.polling.poll_soon("runs")
        await self._end(problem)

    def _show_batch(self, batch: RunBatch) -> None:
        self.run_batch = batch
        self._changed_batch(batch)

    def resolved(self, action: Action | None) -> None:
        """Put the resolved outcome into the batch, after which the next runs can be sent."""
        if action is None or self._open is None:
            return
        self._show_batch(self.run_batch.with_resolved(action, self._open.action_id))
        self.run_worker(self._end(""))

    async def _end(self, problem: str) -> None:
        batch = self.run_batch
        left = len(self.run_batch.left_to_send)
        view = batch.view({})
        results = batch.sent.values()
        unknown = next(iter(batch.unknown), None)
        blocked = next((result.action for result in results if result.outcome == "blocked"), None)
        self._open = unknown or (blocked if blocked is not None and blocked.state == "unknown" else None)
        self._result = unknown or next((result.action for result in results if result.is_done), None)
        is_done = view.confirmed == len(view.lines)
        await (self.form_draft.delete() if is_done else self.form_draft.mark_sent(None))
        facts = tuple(
            (line.badge.text, safe_text(f"{line.run_id}: {line.about}", limit=LISTED))
            for run, line in zip(batch.runs, view.lines, strict=True)
            if run.run_id in batch.sent and line.opens is None
        )
        meaning = [problem] if problem else []
        if left:
            them = "is left, and stays marked" if left == 1 else "are left, and stay marked"
            more = ""
            if unknown is None:
                more = f" Press ^s to send the next {min(left, self._cap):,}."
            meaning.append(f"{left:,} {them}.{more}")
        verdict: OutcomeVerdict = "failed"
        if unknown is not None:
            verdict = "unknown"
            meaning.append(
                "Whether that one took effect is unknown: press v to resolve it. Until then nothing more is sent."
            )
        elif is_done:
            verdict = "done"
        elif view.confirmed:
            verdict = "blocked"
        headline = batch.text.done.format(f"{view.confirmed:,}", plural(len(view.lines), "run"))
        self.show_outcome(OutcomeText(verdict, headline, facts, tuple(meaning)))


class BatchScreen(Sheet[str | None]):
    """A live list over the screen; closes with the chosen run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", id="batch.close"),
        Binding("delete,backspace", "drop", "drop the list", id="batch.drop"),
    ]

    def __init__(self, session: Session, key: str) -> None:
        super().__init__()
        self._session = session
        self._key = key
        self._list = Options(markup=False)

    def compose(self) -> ComposeResult:
        with Vertical() as sheet:
            sheet.border_subtitle = "enter open · del drop the list · esc close"
            yield self._list

    def on_mount(self) -> None:
        self._session.batches.changed.subscribe(self, lambda _: self._show())
        self._session.poll_soon()
        self._list.focus()
        self._show()

    def on_resize(self) -> None:
        after_refresh(self, self._show)

    def action_drop(self) -> None:
        self._session.batches.dismiss(self._key)
        self.dismiss(None)

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        line = self._batch.lines[message.option_index] if self._batch is not None else None
        if line is not None and line.opens is not None:
            self.dismiss(line.opens)
        elif line is not None:
            self._session.notify(f"No run was created. {line.about}")

    @property
    def _batch(self) -> BatchView | None:
        return next((view for view in self._session.batches.views if view.key == self._key), None)

    def _show(self) -> None:
        if (batch := self._batch) is None:
            return
        sheet = self.query_one(Vertical)
        width = max(40, self._list.size.width - 4)
        sheet.border_title = safe_text(f"{batch.title}: {batch.outcome.word} sent, {batch.progress}")
        lines = batch.run_list(width)
        if self._list.option_count != len(lines):
            self._list.clear_options().add_options(lines)
            self._list.highlighted = 0
        for index, line in enumerate(lines):
            if self._list.get_option_at_index(index).prompt != line:
                self._list.replace_option_prompt_at_index(index, line)


_NAMED: Final = 5
"""Runs that the sheet names."""


def cancel_sheet(engine: Engine, runs: Sequence[Run], ended: int = 0, waiting: Sequence[Decision] = ()) -> ConfirmSheet:
    """A sheet that cancels runs and drops what is `waiting` for their end. `ended`: how many had ended already."""
    is_one = len(runs) == 1
    facts = [f"{run.run_id} on {run.repository.label}, {run.branch_name}, is {run.status}." for run in runs[:_NAMED]]
    if len(runs) > _NAMED:
        facts.append(f"And {len(runs) - _NAMED} more.")
    if ended:
        facts.append(f"{ended:,} more marked run{' has' if ended == 1 else 's have'} ended already.")
    facts.append(f"{'Its agent stops' if is_one else 'Their agents stop'} and nothing of this turn is pushed.")
    words = map(waiting_words, waiting[:_NAMED])
    facts += [f"A continuation waits for its end: “{text}”. It is dropped, too." for text in words]
    title = "Cancel the run" if is_one else f"Cancel {plural(len(runs), 'run')}"
    lines = [Content(safe_text(fact)) for fact in facts]
    leaving = "Keep it" if is_one else "Keep them"
    return ConfirmSheet(title, lines, partial(cancel_runs, engine, runs), verb=title, leaving=leaving)


async def cancel_runs(engine: Engine, runs: Sequence[Run]) -> str:
    """Cancel the runs one after the other, and return what happened; raises `ActionRefusedError` if nothing did."""
    is_one = len(runs) == 1
    sender = BatchSender(partial(submit_and_settle, engine.actions, patience_s=LOOK_S))
    results = list[BatchResult]()
    problem = ""
    try:
        for run in runs:
            if sender.may_send:
                results.append(await sender.send(CancelRun(run.run_id)))
    except StorageError as error:
        problem = str(error)
    done = sum(result.is_done for result in results)
    unknown = bool(results) and results[-1].outcome == "unknown"
    refused = [
        (sent.reason or "It had no effect.") if is_one else f"{run.run_id}: {sent.reason or 'no effect'}"
        for run, sent in zip(runs, results, strict=False)
        if not sent.is_done and sent.outcome != "unknown"
    ]
    if problem:
        refused.append(problem)
    if left := len(runs) - len(results):
        refused.append(f"{plural(left, 'run')} {'was' if left == 1 else 'were'} not tried.")
    if refused and not done and not unknown:
        raise ActionRefusedError(" ".join(refused))
    sentences = list[str]()
    if done:
        some = plural(done, "run") if done == len(runs) else f"{done} of {len(runs)} runs"
        sentences.append("The run was cancelled." if is_one else f"{some} were cancelled.")
    if unknown:
        which = "the run" if is_one else runs[len(results) - 1].run_id
        sentences.append(f"Whether {which} was cancelled is unknown: check, and cancel again if still active.")
    return " ".join((*sentences, *refused))
