"""The same kind of write to each of many runs: what is asked for, in batches, and what became of each."""

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from app.actions import ActionRefusedError, Actions, AlreadyAskedError
from app.actions.refusals import branch_problem
from app.api.requests import StartRun, WriteRequest, as_json
from app.console.forms.runs import continuation
from app.console.turns import instructions_of
from storage.ledger import Ledger
from storage.records import Action, Run

HOPELESS: Final = frozenset({"rate_limited", "not_authorized", "forbidden", "token"})
"""Refusals that the next run would meet as well."""


@dataclass(frozen=True, slots=True)
class ManyTask:
    """What is to be done with many runs."""

    title: str
    draft: str
    runs: tuple[Run, ...]
    left_out: str
    """Which of the marked runs are left out, and why; empty: none."""
    nothing: str
    """Why no run is left, where none is."""
    hint: str
    placeholder: str
    consequence: str
    """What sending does, with a place for the number of runs."""
    done: str
    """What became of them, with places for how many of how many."""
    request: Callable[[Run, str], WriteRequest]
    """What is sent for a run, with the words that were typed."""
    sends_once: bool = False
    """The same words make the same key: what was sent for a run before is not sent for it once more."""

    def key(self, run: Run, request: WriteRequest) -> str | None:
        """The key under which it is sent once, in any process; None: the ledger blocks a second one by itself."""
        if not self.sends_once:
            return None
        state = "" if run.updated_at is None else run.updated_at.isoformat()
        digest = hashlib.sha256(as_json(request).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.draft}:{run.run_id}:{state}:{digest}"


def continued(runs: Sequence[Run], final_statuses: Collection[str]) -> ManyTask:
    """The next turn of each conversation, with the same words."""
    ended = tuple(run for run in runs if run.status in final_statuses)
    active = len(runs) - len(ended)
    return ManyTask(
        title="Continue many runs",
        draft="run.continue.many",
        runs=ended,
        left_out=f"{active:,} still active: a turn has to end first" if active else "",
        nothing="None of the marked runs has ended: there is nothing to continue.",
        hint="Each agent remembers what was said to it before.",
        placeholder="What should each of them do next?",
        consequence="Continues {} runs, one after the other, each with its own context.",
        done="{} of {} runs continued",
        request=continuation,
    )


def started_like(runs: Sequence[Run]) -> ManyTask:
    """A new run where each of these worked, with the same new words."""
    return ManyTask(
        title="Start runs like these",
        draft="run.start.many",
        runs=tuple(runs),
        left_out="",
        nothing="No run is marked.",
        hint="Each gets these words, on its repository and branch.",
        placeholder="What should each of them do?",
        consequence="Starts {} runs, one after the other, each on its repository and branch.",
        done="{} of {} runs started",
        request=_start,
        sends_once=True,
    )


async def retried(ledger: Ledger, runs: Sequence[Run]) -> ManyTask:
    """A new run for each that failed, with its own instructions as the ledger has them.

    Raises:
        StorageError: The ledger cannot be read.
    """
    failed = [run for run in runs if run.status == "failed"]
    said = {run.run_id: await _last_words(ledger, run) for run in failed}
    known = tuple(run for run in failed if said[run.run_id])
    others = ((len(runs) - len(failed), "did not fail"), (len(failed) - len(known), "not started from this machine"))

    def again(run: Run, words: str) -> WriteRequest:
        return _start(run, "\n\n".join(filter(None, (said[run.run_id], words.strip()))))

    return ManyTask(
        title="Retry failed runs",
        draft="run.retry.many",
        runs=known,
        left_out=", ".join(f"{count:,} {why}" for count, why in others if count),
        nothing="None of the marked runs failed with instructions that this machine's ledger has.",
        hint="Optional: is put below each run's own instructions, which are sent again.",
        placeholder="Nothing: the same instructions once more.",
        consequence="Starts {} runs, one after the other, each with the instructions of one that failed.",
        done="{} of {} runs started again",
        request=again,
        sends_once=True,
    )


def _start(run: Run, words: str) -> StartRun:
    branch = run.branch_name if run.branch_name and branch_problem(run.branch_name) is None else None
    return StartRun(words, run.repository, branch)


async def _last_words(ledger: Ledger, run: Run) -> str:
    turns = [turn for turn in await ledger.for_run(run.run_id) if turn.state == "confirmed"]
    return next((words for turn in reversed(turns) if (words := instructions_of(turn))), "")


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one run's request."""

    run: Run
    action: Action | None
    """None: it was refused before anything was prepared."""
    refusal: ActionRefusedError | None = None
    """Why it was refused."""

    @property
    def is_done(self) -> bool:
        """Whether it took effect, now or when it was asked for before."""
        return self.action is not None and self.action.state == "confirmed"

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it had no effect for a reason that is not its own."""
        if self.action is None:
            return False
        return self.action.state == "not_sent" or (self.action.state == "rejected" and self._is_hopeless)

    @property
    def ends_all(self) -> bool:
        """Whether to stop here: the next run would be refused too, or the outcome of this one is unknown."""
        if self.action is None or self.is_done:
            return False
        return self._is_hopeless if self.action.state == "rejected" else True

    @property
    def _is_hopeless(self) -> bool:
        return self.action is not None and self.action.error is not None and self.action.error.kind in HOPELESS


async def send_each(
    actions: Actions, task: ManyTask, runs: Sequence[Run], words: str, *, is_wanted: Callable[[], bool]
) -> AsyncIterator[Sent]:
    """Send for one run after the other, until an answer stops the rest or `is_wanted` says no.

    Raises:
        StorageError: The ledger cannot be written; nothing more is sent.
    """
    for run in runs:
        if not is_wanted():
            return
        request = task.request(run, words)
        try:
            sent = Sent(run, await actions.submit(request, key=task.key(run, request)))
        except AlreadyAskedError as asked:
            sent = Sent(run, asked.existing)
        except ActionRefusedError as refused:
            sent = Sent(run, None, refused)
        yield sent
        if sent.ends_all:
            return
