"""The same kind of write for many runs: the runs, the instructions, and the request for each."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.actions import FieldProblem
from app.actions.refusals import branch_problem
from app.actions.retry import retry_key, retry_request
from app.api.requests import StartAgent, StartRun, WriteRequest, asked_of
from app.console.forms.instructions import PLACEHOLDERS, filled_in
from app.console.forms.runs import continuation
from app.console.ledger_turns import instructions_of
from app.text import plural
from storage.ledger import Ledger
from storage.records import Action, Run


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
    """How it is done for several runs."""
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
    """The next turn of each conversation, with the same instructions.

    Raises:
        StorageError: The ledger cannot be read.
    """
    ended = tuple(run for run in runs if run.status in final_statuses)
    left_out = _left_out((len(runs) - len(ended), "still active, and a turn has to end first"))
    return ManyTask(CONTINUE, ended, left_out, await _turns(ledger, ended), continuation, lambda _run, _words: None)


async def started_like(ledger: Ledger, runs: Sequence[Run]) -> ManyTask:
    """A new run on each of these runs' repositories, with the same new instructions. Raises as `continued`."""
    return ManyTask(START_LIKE, tuple(runs), "", await _turns(ledger, runs), _start, _start_key)


async def retried(ledger: Ledger, runs: Sequence[Run]) -> ManyTask:
    """The last turn of each failed run again, as the ledger has it. Raises as `continued`."""
    failed = [run for run in runs if run.status == "failed"]
    turns = await _turns(ledger, failed)
    known = tuple(run for run in failed if run.run_id in turns)
    others = (len(runs) - len(failed), "did not fail"), (len(failed) - len(known), "not started from this machine")

    def again(run: Run, words: str) -> WriteRequest:
        return retry_request(turns[run.run_id], words)

    return ManyTask(RETRY, known, _left_out(*others), turns, again, retry_key)


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
                asked_of(turn)  # Written by another version.
                turns[run.run_id] = turn
    return turns
