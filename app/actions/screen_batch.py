"""A batch of runs: the request for each run, and its progress as lines."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Self

from msgspec import Struct, field
from msgspec.structs import replace

from app.actions.actions import retry_key
from app.actions.asked import PLACEHOLDERS, Asked, continuation, filled_in, original_request
from app.actions.batch import BatchResult
from app.actions.refusals import FieldProblem
from app.api.errors import ApiError
from app.api.requests import ContinueRun, StartAgent, StartRun, WriteRequest
from app.engine.engine import Engine
from app.engine.text import SafeText, plural, safe_text
from storage.records import CANCELLED, Action, Run, RunDetail
from storage.records.results import RunTurns, Unavailable
from widgets.forms.dialog import reason
from widgets.kit.badges import ACTION_BADGES, Badge, run_badge
from widgets.runs.follow import BatchLine, BatchView

AT_ONCE: Final = 8
"""Runs that the service is asked about at the same time."""
WAITING: Final = Badge("◌", "waiting", "quiet")
REFUSED: Final = Badge("⊘", "not sent", "warn")
LISTED: Final = 200
"""Characters of a run's line."""


class ManyText(Struct, frozen=True):
    """The words of a form that sends many requests."""

    verb: str
    title: str
    hint: str
    placeholder: str
    consequence: str
    """The effect of sending, with a placeholder for the number of runs."""
    each: str
    """Added to the effect if there are several runs."""
    done: str
    """The outcome, with placeholders for the number that succeeded and the number sent."""


CONTINUE: Final = ManyText(
    verb="continue",
    title="Continue many runs",
    hint="{repository} and {branch} are those of each run.",
    placeholder="What should each of them do next?",
    consequence="Continues {}",
    each=", one after the other, each with its own context",
    done="{} of {} continued",
)

RETRY: Final = ManyText(
    verb="retry",
    title="Retry failed runs",
    hint="Optional. Added below each run's own instructions.",
    placeholder="Nothing: the same instructions again.",
    consequence="Sends the last instructions of {} that failed again",
    each=", one after the other",
    done="{} of {} started again",
)


class RunBatch(Struct, frozen=True):
    """A write for each of many runs, and its progress."""

    text: ManyText
    runs: tuple[Run, ...]
    left_out: str
    """The marked runs that are left out, and why; may be empty."""
    asked: Mapping[str, Asked]
    """The request behind each run's last turn, if known."""
    batch_id: str = ""
    sent: Mapping[str, BatchResult] = field(default_factory=dict)
    """The results, by the id of the run that the request was for."""
    is_sending: bool = False

    def request(self, run: Run, words: str) -> tuple[WriteRequest, str | None]:
        """The request for a run, and its idempotency key, or None if the ledger prevents a second one."""
        filled = filled_in(words, self._facts_of(run))[0]
        if self.text is not RETRY:
            return continuation(run, filled), None
        request = self.asked[run.run_id].request
        if filled.strip() and isinstance(request, StartRun | ContinueRun):
            request = replace(request, instructions=f"{request.instructions}\n\n{filled.strip()}")
        return request, retry_key(run, filled)

    def problems(self, words: str) -> tuple[FieldProblem, ...]:
        for name in dict.fromkeys(PLACEHOLDERS.findall(words)):
            problem = f"{{{name}}} is not known"
            fix = "Take it out, or unmark those runs."
            if runs := [run for run in self.runs if not self._facts_of(run)[name]]:
                break
        else:
            problem = "named agents take no instructions"
            fix = "Leave this empty."
            has_more = self.text is RETRY and words.strip()
            runs = [run for run in self.runs if has_more and isinstance(self.asked[run.run_id].request, StartAgent)]
        if not runs:
            return ()
        count = f"{len(runs):,} of {plural(len(self.runs), 'run')}"
        return (FieldProblem("instructions", f"In {count} {problem}. {fix} The first one is {runs[0].run_id}."),)

    def _facts_of(self, run: Run) -> dict[str, str]:
        asked = self.asked.get(run.run_id)
        words = "" if asked is None else asked.words
        return {"repository": run.repository.label, "branch": run.branch_name, "previous_instructions": words}

    def with_resolved(self, action: Action, old_id: str = "") -> Self:
        """The batch with a resolved action, or one sent in place of `old_id`; runs that it blocked may be sent now."""
        sent: dict[str, BatchResult] = {}
        for run_id, result in self.sent.items():
            if result.action is None or result.action.action_id != (old_id or action.action_id):
                sent[run_id] = result
            elif result.outcome != "blocked":
                sent[run_id] = BatchResult.of(action)
        return replace(self, sent=sent)

    @property
    def unknown(self) -> tuple[Action, ...]:
        results = [result for result in self.sent.values() if result.outcome != "blocked"]
        return tuple(result.action for result in results if result.action and result.action.state == "unknown")

    @property
    def confirmed(self) -> tuple[str, ...]:
        return tuple(run_id for run_id, sent in self.sent.items() if sent.is_done)

    @property
    def left_to_send(self) -> tuple[Run, ...]:
        """The runs that have no request yet or can be retried."""
        sent = self.sent
        return tuple(run for run in self.runs if run.run_id not in sent or sent[run.run_id].may_be_sent_again)

    @property
    def made(self) -> tuple[str, ...]:
        return tuple(result.result_id for result in self.sent.values() if result.is_done and result.result_id)

    def view(self, details: Mapping[str, RunDetail]) -> BatchView:
        made = [details[run_id] for run_id in self.made if run_id in details]
        lines = []
        for run in self.runs:
            result = self.sent.get(run.run_id)
            run_id, opens = run.run_id, None
            if result is None:
                badge = WAITING
                about = str(repository_and_branch(run))
            elif result.action is None or result.outcome == "blocked":
                badge, about = REFUSED, result.problem
            elif not result.is_done or not result.result_id:
                badge = ACTION_BADGES[result.action.state]
                about = reason(result.action.error) if result.action.error is not None else ""
            else:
                run_id = opens = result.result_id
                detail = details.get(run_id)
                known = None
                if detail is not None:
                    known = run_badge(detail.run.status, is_final=detail.is_final)
                badge = known or ACTION_BADGES[result.action.state]
                about = str(repository_and_branch(detail.run if detail else run))
            lines.append(BatchLine(badge, safe_text(run_id), safe_text(about, limit=LISTED), opens=opens))
        return BatchView(
            key=self.batch_id,
            title=safe_text(self.text.title),
            lines=tuple(lines),
            confirmed=len(self.confirmed),
            unknown=len(self.unknown),
            made=len(self.made),
            ended=sum(detail.is_final for detail in made),
            failed=sum(detail.run.status == "failed" for detail in made),
            is_sending=self.is_sending,
        )


Known = Mapping[str, Asked | Unavailable]
"""What began the last turn of each run, or why that is not known."""


async def known_of(engine: Engine, details: Sequence[RunDetail]) -> Known:
    """Read the request behind each run's last turn; after one failure, stop asking the service."""
    room = asyncio.Semaphore(AT_ONCE)
    failures = list[ApiError]()

    async def turns_of(run_id: str) -> RunTurns | Unavailable:
        async with room:
            if failures:
                raise failures[0]
            return await engine.extension.turns(run_id)

    async def asked_of(detail: RunDetail) -> Asked | Unavailable:
        try:
            return await original_request(engine.ledger, turns_of, detail)
        except ApiError as error:
            failures.append(error)
            return Unavailable(f"The service could not be asked: {failures[0].message}")

    answers = await asyncio.gather(*map(asked_of, details))
    return {detail.run.run_id: answer for detail, answer in zip(details, answers, strict=True)}


def continue_batch(runs: Sequence[Run], known: Known, final_statuses: Collection[str]) -> RunBatch:
    """The batch that continues each conversation with the same instructions."""
    final = tuple(run for run in runs if run.status in final_statuses)
    active = len(runs) - len(final)
    left_out = f"{plural(active, 'run')} still active" if active else ""
    asked = {run_id: answer for run_id, answer in known.items() if isinstance(answer, Asked)}
    return RunBatch(CONTINUE, final, left_out, asked)


def retry_batch(runs: Sequence[Run], known: Known) -> RunBatch:
    """The batch that repeats the last turn of each failed or cancelled run."""
    failed = [run for run in runs if run.status in {"failed", CANCELLED}]
    asked = {run_id: answer for run_id, answer in known.items() if isinstance(answer, Asked)}
    others = Counter({"neither failed nor cancelled": len(runs) - len(failed)})
    reasons = (reason.reason for run in failed if isinstance(reason := known.get(run.run_id), Unavailable))
    others.update(f"with unknown instructions: {text.removesuffix('.')}" for text in reasons)
    left_out = ", ".join(f"{plural(count, 'run')} {reason}" for reason, count in others.items() if count)
    return RunBatch(RETRY, tuple(run for run in failed if run.run_id in asked), left_out, asked)


def repository_and_branch(run: Run) -> SafeText:
    return safe_text(f"{run.repository.label}  {run.branch_name}", limit=200)
