"""Summaries: what runs are about, from the ledger and the service, kept in the cache."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from app.engine.text import plural
from app.results.service import ServiceExtension
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import Action, RunRow, RunSummary
from storage.records.results import SEVERITIES, RunTurns, Turn
from storage.records.run import ASKS

LONGEST: Final = 200
"""Characters of a line of a summary."""


@dataclass(slots=True)
class RunSummaries:
    """The known subjects and the open questions: the service is asked once for each state of a run."""

    cache: Cache
    ledger: Ledger
    extension: ServiceExtension
    _asked: set[tuple[str, str, datetime | None]] = field(default_factory=set)
    """The states of runs that were asked about in vain."""

    def are_due(self, row: RunRow) -> bool:
        """Whether something may be learnt about the run."""
        return not row.summary.status and (row.run_id, row.status, row.updated_at) not in self._asked

    async def learn(self, rows: Sequence[RunRow]) -> AsyncGenerator[RunRow]:
        """Learn what these runs are about, and return those of which more is known than before, one by one.

        Raises:
            ApiError: The service cannot be asked now.
        """
        held = {row.run_id: row for row in rows}
        agents = await self.ledger.agents()
        for row in rows:
            sent = () if row.summary.asked else await self.ledger.for_run(row.run_id)
            words = next(filter(None, map(_words, sent)), row.summary.asked)
            known = RunSummary(words, agent=agents.get(row.run_id, row.summary.agent))
            if known != row.summary:
                yield await self._store(held, row, known)
        for row in list(held.values()):
            answer = await self.extension.turns(row.run_id)
            if isinstance(answer, RunTurns):
                yield await self._store(held, row, _summary(row, answer))
            else:
                self._asked.add((row.run_id, row.status, row.updated_at))

    async def _store(self, held: dict[str, RunRow], row: RunRow, summary: RunSummary) -> RunRow:
        await self.cache.store_summary(row.run_id, summary)
        held[row.run_id] = replace(row, summary=summary)
        return held[row.run_id]


def _words(action: Action) -> str:
    body = json.loads(action.body_json) if action.state == "confirmed" else {}
    return _line(str(body.get("instructions") or "")) if isinstance(body, dict) else ""


def _summary(row: RunRow, turns: RunTurns) -> RunSummary:
    asked = next((line for turn in turns.turns if (line := _line(turn.instructions or ""))), row.summary.asked)
    return RunSummary(
        asked,
        result_of(turns.turns[-1]) if row.is_final and turns.turns else "",
        turns.agent or row.summary.agent,
        turns.turns[-1].number if turns.turns else None,
        row.status,
        row.updated_at,
    )


def result_of(turn: Turn) -> str:
    """The result of a turn, in one line: `2 majors · Changes needed · +12 -3`, or why it failed."""
    lines = f"+{turn.additions or 0:,} -{turn.deletions or 0:,}" if turn.additions or turn.deletions else ""
    if turn.question:
        return _joined(ASKS + turn.question, lines)
    if (turn.outcome or turn.state) != "completed":
        return _joined(turn.reason or (turn.failure_kind or "").replace("_", " "), lines)
    text = turn.summary or turn.reason or ""
    if turn.findings is None:
        return _joined(lines, text)
    counted = Counter[str](one.severity or "finding" for one in turn.findings)
    counts = ", ".join(plural(counted[one], one) for one in (*SEVERITIES, "finding") if counted[one]) or "no findings"
    # The reviewer that ships counts them in its summary, behind the verdict.
    return _joined(counts, text.partition(counts)[0].rstrip(" :"), lines)


def _joined(*parts: str) -> str:
    return " · ".join(filter(None, map(_line, parts)))


def _line(text: str) -> str:
    """The first line with words, as one."""
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")[:LONGEST]
