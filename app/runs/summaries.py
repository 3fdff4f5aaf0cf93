"""Summaries of runs, from the ledger and the service, kept in the cache."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from msgspec import structs

from app.results.service import ServiceExtension
from app.runs.document import instructions_of
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import RunRow, RunSummary
from storage.records.results import FindingCounts, LogChunk, Turn, Unavailable
from storage.records.run import ASKS

MAX_SUMMARY: Final = 200
TAIL: Final = 16 * 1024
"""Bytes requested of the end of a working run's log."""
_VERBS: Final = dict.fromkeys(("said", "thought", "error", "printed"), "") | {
    "ran": "runs ",
    "edited": "edits ",
    "used": "uses ",
}
"""How a step begins as a sentence, by its kind; other kinds are the results of steps."""


@dataclass(slots=True)
class RunSummaries:
    """The known subjects, and the last steps of working runs: each state of a run is asked about once."""

    cache: Cache
    ledger: Ledger
    extension: ServiceExtension
    clock: Callable[[], datetime]
    every: timedelta
    """How often a working run's log is read, at most."""
    _asked: set[tuple[str, str, datetime | None]] = field(default_factory=set)
    """The states of runs that were asked about in vain."""
    _stepped: dict[str, datetime] = field(default_factory=dict)
    """When a working run's log was last read."""

    def are_due(self, row: RunRow) -> bool:
        """Whether the run's summary should be requested."""
        return self._is_unknown(row) or self._is_step_due(row)

    def _is_unknown(self, row: RunRow) -> bool:
        return not row.summary.status and (row.run_id, row.status, row.updated_at) not in self._asked

    def _is_step_due(self, row: RunRow) -> bool:
        read_at = self._stepped.get(row.run_id)
        is_due = read_at is None or self.clock() - read_at >= self.every
        return row.status == "working" and row.summary.turns is not None and is_due

    async def learn(self, rows: Sequence[RunRow]) -> AsyncGenerator[RunRow]:
        """Request the summaries of these runs, and yield each run whose summary improved.

        Raises:
            ApiError: The service cannot be asked now.
        """
        known_rows = {row.run_id: row for row in rows}
        unknown = [row.run_id for row in rows if self._is_unknown(row)]
        agents = await self.ledger.agents() if unknown else {}
        ours = await self.ledger.run_ids() if unknown else frozenset()
        for row in [known_rows[run_id] for run_id in unknown]:
            sent = await self.ledger.for_run(row.run_id) if row.run_id in ours and not row.summary.asked else ()
            asked = (_line(instructions_of(action)) for action in sent if action.state == "confirmed")
            words = next(filter(None, asked), row.summary.asked)
            summary = RunSummary(words, agent=agents.get(row.run_id, row.summary.agent))
            if summary != row.summary:
                yield await self._store(known_rows, row, summary)
        for row in [known_rows[run_id] for run_id in unknown]:
            answer = await self.extension.turns(row.run_id)
            if isinstance(answer, Unavailable):
                self._asked.add((row.run_id, row.status, row.updated_at))
                continue
            asked = (_line(turn.instructions or "") for turn in answer.turns)
            last = answer.turns[-1] if answer.turns else None
            summary = RunSummary(
                next(filter(None, asked), row.summary.asked),
                result_of(last) if row.is_final and last else "",
                answer.agent or row.summary.agent,
                last.number if last else None,
                row.status,
                row.updated_at,
                _count_findings(last) if last else None,
            )
            yield await self._store(known_rows, row, summary)
        for row in [row for row in known_rows.values() if self._is_step_due(row)]:
            self._stepped[row.run_id] = self.clock()
            chunk = await self.extension.log(row.run_id, row.summary.turns or 1, offset=-TAIL, before=0)
            step = "" if isinstance(chunk, Unavailable) else last_step(chunk)
            if step and step != row.summary.result:
                yield await self._store(known_rows, row, structs.replace(row.summary, result=step))

    async def _store(self, known_rows: dict[str, RunRow], row: RunRow, summary: RunSummary) -> RunRow:
        await self.cache.store_summary(row.run_id, summary)
        known_rows[row.run_id] = replace(row, summary=summary)
        return known_rows[row.run_id]


def result_of(turn: Turn) -> str:
    """The result of a turn, in one line: `2 majors · Changes needed · +12 -3`, or why it failed."""
    lines = ""
    if turn.additions or turn.deletions:
        lines = f"+{turn.additions or 0:,} -{turn.deletions or 0:,}"
    if turn.question:
        return _join_parts(ASKS + turn.question, lines)
    if (turn.outcome or turn.state) != "completed":
        return _join_parts(turn.reason or (turn.failure_kind or "").replace("_", " "), lines)
    text = turn.summary or turn.reason or ""
    if (findings := _count_findings(turn)) is None:
        return _join_parts(lines, text)
    counts = str(findings)
    # The reviewer that ships counts them in its summary, behind the verdict.
    return _join_parts(counts, text.partition(counts)[0].rstrip(" :"), lines)


def _count_findings(turn: Turn) -> FindingCounts | None:
    if turn.findings is None:
        return None
    return FindingCounts(**Counter[str](one.severity or "finding" for one in turn.findings))


def last_step(chunk: LogChunk) -> str:
    """The last step of a log in one line, from the end of the log; may be empty."""
    if chunk.steps is None:
        return _line("\n".join(reversed(chunk.data.decode("utf-8", "replace").splitlines())))
    steps = (_line(step.text) and _VERBS[step.kind] + _line(step.text) for step in chunk.steps if step.kind in _VERBS)
    return next(filter(None, reversed(list(steps))), "")[:MAX_SUMMARY]


def _join_parts(*parts: str) -> str:
    return " · ".join(filter(None, map(_line, parts)))


def _line(text: str) -> str:
    """The first line that has words, with its blanks collapsed."""
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")[:MAX_SUMMARY]
