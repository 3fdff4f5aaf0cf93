"""Storing the runs of an answer: unchanged ones are only confirmed; others are added or merged."""

import sqlite3
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from storage.cache.merge_runs import RunMerge
from storage.cache.prepared_runs import PreparedRuns
from storage.cache.statuses import final_statuses
from storage.database import immediate
from storage.records import Presence, Run, RunChanges
from storage.thread import DatabaseThread
from storage.values import sqlite_text

_OUT_OF_SIGHT: Final = 0
"""The digest of a run that is not current, which no answer has: seeing the run again is then a change."""


class AnswerQueue:
    """Answers that arrive while others are stored go into one transaction: a commit costs more than a page."""

    def __init__(self, writer: DatabaseThread) -> None:
        self._writer = writer
        self._waiting: deque[PreparedRuns] = deque()

    async def store(self, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
        """Store an answer's runs as current, as of its request; the answer to an earlier request changes nothing."""
        if not runs:
            return RunChanges()
        answer = PreparedRuns.of(runs, asked_at)
        self._waiting.append(answer)
        try:
            return await self._writer.run(lambda connection: self._stored(connection, answer))
        finally:
            # The task was cancelled before this answer was stored.
            with suppress(ValueError):
                self._waiting.remove(answer)

    def _stored(self, connection: sqlite3.Connection, answer: PreparedRuns) -> RunChanges:
        # It may have been stored together with an earlier one.
        if answer.changes is None:
            together = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                store_all(connection, together)
            except sqlite3.Error:
                # Every answer is then stored alone, so that only the faulty one fails.
                self._waiting.extendleft(each for each in reversed(together) if each is not answer)
                store_all(connection, [answer])
        return answer.changes or RunChanges()


def store_all(connection: sqlite3.Connection, answers: Sequence[PreparedRuns]) -> None:
    """Store the runs of answers in one transaction, and note in each what it changed."""
    with immediate(connection):
        merging = RunMerge(connection, final_statuses(connection))
        changes = [merging.take(answer) for answer in answers]
        merging.note_names()
    for answer, changed in zip(answers, changes, strict=True):
        answer.changes = changed


def set_presence(connection: sqlite3.Connection, run_ids: Sequence[str], presence: Presence) -> int:
    """Record whether the service still shows these runs; return how many changed."""
    rows = [{"presence": presence, "run_id": sqlite_text(run_id)} for run_id in run_ids]
    with immediate(connection):
        changed = connection.executemany(
            "UPDATE runs SET presence = :presence WHERE run_id = :run_id AND presence <> :presence", rows
        )
        sql = f"UPDATE sightings SET digest = {_OUT_OF_SIGHT} WHERE id = (SELECT id FROM runs WHERE run_id = :run_id)"
        connection.executemany(sql, rows)
    return max(0, changed.rowcount)
