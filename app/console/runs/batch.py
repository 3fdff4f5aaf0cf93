"""A write for many runs: the task of one confirmation, its requests, sent one after the other, and their outcomes."""

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

from app.actions import ActionRefusedError, Actions, AlreadyAskedError, FieldProblem
from app.actions.refusals import branch_problem
from app.actions.retry import retry_key, retry_request
from app.api.requests import StartAgent, StartRun, WriteRequest, asked_of
from app.console.forms.instructions import PLACEHOLDERS, filled_in
from app.console.forms.writes import continuation
from app.console.ledger_turns import instructions_of
from app.text import SafeText, plural, safe_text
from storage.ledger import Ledger
from storage.records import Action, Run, RunDetail
from widgets.badges import Badge, action_badge, run_badge
from widgets.batch import BatchLine, BatchView
from widgets.forms.pages import reason

HOPELESS: Final = frozenset({"rate_limited", "not_authorized", "forbidden", "token"})
"""Refusals that the next run would meet as well."""
WAITING: Final = Badge("◌", "waiting", "quiet")
REFUSED: Final = Badge("⊘", "not sent", "warn")


@dataclass(frozen=True, slots=True)
class ManyText:
    """The form's texts."""

    title: str
    draft: str
    nothing: str
    """Shown if no run is left."""
    hint: str
    placeholder: str
    consequence: str
    """The effect of sending, with a placeholder for the number of runs."""
    each: str
    """Added to the effect where there are several runs."""
    done: str
    """The outcome, with placeholders for how many of how many."""

    def outlook(self, count: int) -> str:
        """The effect for this number of runs."""
        return f"{self.consequence.format(_runs(count))}{self.each if count > 1 else ''}."

    def outcome(self, confirmed: int, count: int) -> str:
        """The outcome for this number of runs."""
        return self.done.format(f"{confirmed:,}", _runs(count))


CONTINUE: Final = ManyText(
    title="Continue many runs",
    draft="run.continue.many",
    nothing="Nothing to continue",
    hint="Each agent remembers what was said to it before. {repository} and {branch} are its own.",
    placeholder="What should each of them do next?",
    consequence="Continues {}",
    each=", one after the other, each with its own context",
    done="{} of {} continued",
)

START_LIKE: Final = ManyText(
    title="Start runs like these",
    draft="run.start.many",
    nothing="Nothing to start",
    hint="{repository} and {branch} are each run's own. So are {previous_instructions}.",
    placeholder="What should each of them do?",
    consequence="Starts {}",
    each=", one after the other, each on its repository and branch",
    done="{} of {} started",
)

RETRY: Final = ManyText(
    title="Retry failed runs",
    draft="run.retry.many",
    nothing="Nothing to retry",
    hint="Optional. Is put below each run's own instructions.",
    placeholder="Nothing: the same instructions once more.",
    consequence="Sends the last instructions of {} that failed once more",
    each=", one after the other",
    done="{} of {} started again",
)


@dataclass(frozen=True, slots=True)
class ManyTask:
    """A task for many runs."""

    text: ManyText
    runs: tuple[Run, ...]
    left_out: str
    """The marked runs that are left out, and why; empty: none."""
    turns: Mapping[str, Action]
    """The last turn of each run in the ledger."""
    make: Callable[[Run, str], WriteRequest]
    key: Callable[[Run, str], str | None]
    """The key under which a run's request is sent once; None: the ledger prevents a second one."""

    @property
    def nothing(self) -> str:
        """The reason if no run is left."""
        return f"{self.text.nothing}: {self.left_out or 'no run is marked'}."

    def filled(self, run: Run, words: str) -> str:
        """The instructions as sent for a run."""
        return filled_in(words, self._known(run))[0]

    def request(self, run: Run, words: str) -> WriteRequest:
        """The request for a run."""
        return self.make(run, self.filled(run, words))

    def problem(self, words: str) -> FieldProblem | None:
        """The reason why the instructions cannot be sent for all runs."""
        for name in dict.fromkeys(PLACEHOLDERS.findall(words)):
            if lacking := [run for run in self.runs if not self._known(run)[name]]:
                return self._problem(lacking, f"{{{name}}} is not known", "Take it out, or unmark those runs.")
        agents = [run for run in self.runs if words.strip() and isinstance(self.make(run, words), StartAgent)]
        return self._problem(agents, "named agents take no words", "Leave this empty.") if agents else None

    def _problem(self, runs: Sequence[Run], what: str, cure: str) -> FieldProblem:
        count = f"{len(runs):,} of {_runs(len(self.runs))}"
        return FieldProblem("instructions", f"In {count} {what}. {cure} The first one is {runs[0].run_id}.")

    def _known(self, run: Run) -> dict[str, str]:
        turn = self.turns.get(run.run_id)
        said = "" if turn is None else instructions_of(turn)
        return {"repository": run.repository.label, "branch": run.branch_name, "previous_instructions": said}


async def continued(ledger: Ledger, runs: Sequence[Run], final_statuses: Collection[str]) -> ManyTask:
    """Return the task that continues each conversation with the same instructions.

    Raises:
        StorageError: The ledger cannot be read.
    """
    ended = tuple(run for run in runs if run.status in final_statuses)
    left_out = _left_out((len(runs) - len(ended), "still active, and a turn has to end first"))
    return ManyTask(CONTINUE, ended, left_out, await _turns(ledger, ended), continuation, lambda _run, _words: None)


async def started_like(ledger: Ledger, runs: Sequence[Run]) -> ManyTask:
    """Return the task that starts a run like each of these, all with the same instructions. Raises as `continued`."""
    return ManyTask(START_LIKE, tuple(runs), "", await _turns(ledger, runs), _start, _start_key)


async def retried(ledger: Ledger, runs: Sequence[Run]) -> ManyTask:
    """Return the task that sends the last turn of each failed run again. Raises as `continued`."""
    failed = [run for run in runs if run.status == "failed"]
    turns = await _turns(ledger, failed)
    known = tuple(run for run in failed if run.run_id in turns)
    others = (len(runs) - len(failed), "did not fail"), (len(failed) - len(known), "not started from this machine")

    def again(run: Run, words: str) -> WriteRequest:
        return retry_request(turns[run.run_id], words)

    return ManyTask(RETRY, known, _left_out(*others), turns, again, retry_key)


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The outcome of one run's request."""

    run: Run
    action: Action | None
    """None: it was refused before anything was prepared."""
    refusal: ActionRefusedError | None = None
    """Why it was refused."""

    @property
    def is_done(self) -> bool:
        """Whether it took effect, now or at an earlier attempt."""
        return self.action is not None and self.action.state == "confirmed"

    @property
    def made(self) -> str | None:
        """The run that it started or continued."""
        return self.action.result_id if self.is_done and self.action is not None else None

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it failed for a reason that has nothing to do with this run."""
        if self.action is None:
            return False
        return self.action.state == "not_sent" or (self.action.state == "rejected" and self._is_hopeless)

    @property
    def ends_all(self) -> bool:
        """Whether to stop here: the next run would be refused too, or this outcome is unknown."""
        if self.action is None or self.is_done:
            return False
        return self._is_hopeless if self.action.state == "rejected" else True

    @property
    def _is_hopeless(self) -> bool:
        return self.action is not None and self.action.error is not None and self.action.error.kind in HOPELESS


@dataclass(frozen=True, slots=True)
class RunBatch:
    """A confirmed task and its progress."""

    batch_id: str
    task: ManyTask
    begun_at: datetime
    sent: Mapping[str, RequestOutcome] = field(default_factory=dict)
    """By the id of the run that the request was for."""
    is_sending: bool = False

    def settled(self, sent: RequestOutcome) -> Self:
        """The batch with the outcome of one run's request."""
        return replace(self, sent={**self.sent, sent.run.run_id: sent})

    def resolved(self, action: Action) -> Self:
        """The batch with the resolution of an unknown outcome."""
        old = next(sent for sent in self.sent.values() if sent.action and sent.action.action_id == action.action_id)
        return self.settled(replace(old, action=action))

    @property
    def has_begun(self) -> bool:
        """Whether a request was sent or is about to be."""
        return bool(self.sent) or self.is_sending

    @property
    def unknown(self) -> tuple[Action, ...]:
        """Actions of unknown outcome."""
        return tuple(sent.action for sent in self.sent.values() if sent.action and sent.action.state == "unknown")

    @property
    def confirmed(self) -> tuple[str, ...]:
        """Ids of the runs for which it took effect."""
        return tuple(run_id for run_id, sent in self.sent.items() if sent.is_done)

    @property
    def rest(self) -> tuple[Run, ...]:
        """The runs without a request so far, and those that can be tried again."""
        sent = self.sent
        return tuple(run for run in self.task.runs if run.run_id not in sent or sent[run.run_id].may_be_tried_again)

    @property
    def made(self) -> tuple[str, ...]:
        """Ids of the runs that were started or continued."""
        return tuple(run_id for sent in self.sent.values() if (run_id := sent.made) is not None)

    def view(self, details: Mapping[str, RunDetail]) -> BatchView:
        """The batch as a line, with these details of its runs."""
        settled = (sent.action.settled_at or self.begun_at for sent in self.sent.values() if sent.action)
        made = [details[run_id] for run_id in self.made if run_id in details]
        return BatchView(
            key=self.batch_id,
            title=safe_text(self.task.text.title),
            moved_at=max(settled, default=self.begun_at),
            lines=tuple(self._line(run, details) for run in self.task.runs),
            confirmed=len(self.confirmed),
            unknown=len(self.unknown),
            made=len(self.made),
            ended=sum(detail.is_final for detail in made),
            failed=sum(detail.run.status == "failed" for detail in made),
            is_sending=self.is_sending,
        )

    def _line(self, run: Run, details: Mapping[str, RunDetail]) -> BatchLine:
        sent = self.sent.get(run.run_id)
        if sent is None:
            return BatchLine(WAITING, safe_text(run.run_id), _where(run))
        if sent.action is None:
            why = sent.refusal.message if sent.refusal is not None else ""
            return BatchLine(REFUSED, safe_text(run.run_id), safe_text(why))
        badge, action = action_badge(sent.action.state), sent.action
        if sent.made is None:
            why = reason(action.error) if action.error is not None else ""
            return BatchLine(badge, safe_text(run.run_id), safe_text(why))
        if (detail := details.get(sent.made)) is not None:
            badge = run_badge(detail.run.status, is_final=detail.is_final)
        return BatchLine(badge, safe_text(sent.made), _where(detail.run if detail else run), opens=sent.made)


async def send_each(
    actions: Actions, task: ManyTask, runs: Sequence[Run], words: str, *, is_wanted: Callable[[], bool]
) -> AsyncIterator[RequestOutcome]:
    """Send the request of one run after the other, until an answer stops the rest or `is_wanted` returns False.

    Raises:
        StorageError: The ledger cannot be written; nothing more is sent.
    """
    for run in runs:
        if not is_wanted():
            return
        request, key = task.request(run, words), task.key(run, task.filled(run, words))
        try:
            sent = RequestOutcome(run, await actions.submit(request, key=key))
        except AlreadyAskedError as asked:
            sent = RequestOutcome(run, asked.existing)
        except ActionRefusedError as refused:
            sent = RequestOutcome(run, None, refused)
        yield sent
        if sent.ends_all:
            return


def _runs(count: int) -> str:
    return plural(count, "run")


def _left_out(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {why}" for count, why in counts if count)


def _start(run: Run, words: str) -> StartRun:
    branch = run.branch_name if run.branch_name and branch_problem(run.branch_name) is None else None
    return StartRun(words, run.repository, branch)


def _start_key(run: Run, words: str) -> str:
    state = "" if run.updated_at is None else run.updated_at.isoformat()
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{START_LIKE.draft}:{run.run_id}:{state}:{digest}"


async def _turns(ledger: Ledger, runs: Sequence[Run]) -> dict[str, Action]:
    """The last turn of each run in this machine's ledger that this version can read."""
    turns = {}
    for run in runs:
        turn = await ledger.last_turn(run.run_id)
        with suppress(KeyError, TypeError, ValueError, IndexError):
            if turn is not None:
                asked_of(turn)  # Raises if another version wrote it in another form.
                turns[run.run_id] = turn
    return turns


def _where(run: Run) -> SafeText:
    return safe_text(f"{run.repository.label}  {run.branch_name}", limit=200)
