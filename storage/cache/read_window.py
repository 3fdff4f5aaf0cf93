"""A window of rows as a table asks for it: all that it needs of one and the same state, in one look."""

import sqlite3
from dataclasses import dataclass

from storage.cache.landmarks import Landmarks
from storage.cache.read_runs import Counts, index_of, rows
from storage.database import snapshot
from storage.records import RunFilter, RunRow, RunSort


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows are wanted."""

    wanted: RunFilter
    sort: RunSort
    offset: int
    """The first row wanted, as things stood when the table was read last."""
    limit: int
    anchor: tuple[str, int] | None = None
    """A run and its row then: if it moved since, the window moves with it."""
    cursor_id: str | None = None
    """Another run whose row is wanted."""


@dataclass(frozen=True, slots=True)
class Window:
    """The rows, and where they stand."""

    total: int
    """Runs that the filter lets through."""
    offset: int
    """Runs before the first row."""
    rows: tuple[RunRow, ...]
    shift: int
    """By how many rows the anchor moved down."""
    cursor_index: int | None
    """The row of the cursor's run. None: it was not asked for, or the filter hides it."""


def window(connection: sqlite3.Connection, question: Question, counts: Counts, landmarks: Landmarks) -> Window:
    """The rows around a place, which ends where the order does."""
    wanted, sort, limit = question.wanted, question.sort, question.limit
    with snapshot(connection):
        total = counts.total(connection, wanted)
        anchor = _index(connection, question.anchor[0], question) if question.anchor else None
        shift = anchor - question.anchor[1] if question.anchor and anchor is not None else 0
        is_anchor = question.anchor is not None and question.cursor_id == question.anchor[0]
        cursor = anchor if is_anchor else _index(connection, question.cursor_id, question)
        offset = max(0, min(question.offset + shift, total - limit))
        found = rows(connection, wanted, sort, offset, limit, counts, landmarks)
    return Window(total, offset, found, shift, cursor)


def _index(connection: sqlite3.Connection, run_id: str | None, question: Question) -> int | None:
    return None if run_id is None else index_of(connection, run_id, question.wanted, question.sort)
