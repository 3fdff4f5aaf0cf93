"""Answers that arrive while others are stored go into one transaction: a commit costs more than a page."""

import sqlite3
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from storage.cache.store_runs import Answer, store_all
from storage.lazy_dataclass import dataclass
from storage.records import Run, RunChanges
from storage.thread import DatabaseThread


@dataclass(slots=True, eq=False, repr=False)
class _Answer:
    answer: Answer
    changes: RunChanges | None = None
    """None: it is not stored yet."""


class AnswerQueue:
    """Stores the runs of answers on the cache's writer."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread
        self._waiting: deque[_Answer] = deque()

    async def store(self, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
        """Store the runs of an answer; what they changed."""
        if not runs:
            return RunChanges()
        answer = _Answer(Answer.of(runs, asked_at))
        self._waiting.append(answer)
        try:
            return await self._thread.run(lambda connection: self._stored(connection, answer))
        finally:
            # Cancelled, or failed, before its turn came.
            with suppress(ValueError):
                self._waiting.remove(answer)

    def _stored(self, connection: sqlite3.Connection, answer: _Answer) -> RunChanges:
        # It may have been stored together with one that came before it.
        if answer.changes is None:
            together = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                _store(connection, together)
            except sqlite3.Error:
                # Each answer fails for itself.
                self._waiting.extendleft(each for each in reversed(together) if each is not answer)
                _store(connection, [answer])
        return answer.changes or RunChanges()


def _store(connection: sqlite3.Connection, answers: Sequence[_Answer]) -> None:
    changes = store_all(connection, [each.answer for each in answers])
    for each, changed in zip(answers, changes, strict=True):
        each.changes = changed
