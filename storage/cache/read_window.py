"""A window of rows as a table asks for it: all that it needs of one and the same state, in one look."""

import sqlite3

from storage.cache.landmarks import Landmarks
from storage.cache.read_runs import Counts, index_of, rows
from storage.database import snapshot
from storage.records import RunWindow, WindowRequest


def window(connection: sqlite3.Connection, request: WindowRequest, counts: Counts, landmarks: Landmarks) -> RunWindow:
    """The rows around a place; a window that would go beyond the end of the order ends there."""
    condition, sort, limit = request.condition, request.sort, request.limit
    with snapshot(connection):
        total = counts.total(connection, condition)
        shift, cursor = _moves(connection, request)
        offset = max(0, min(request.offset + shift, total - limit))
        found = rows(connection, condition, sort, offset, limit, counts, landmarks)
    return RunWindow(total, offset, found, shift, cursor)


def _moves(connection: sqlite3.Connection, request: WindowRequest) -> tuple[int, int | None]:
    """By how many rows the anchor moved down, and where the cursor's run is now."""
    if not request.is_fresh:
        return 0, None if request.cursor_id is None else request.cursor_index
    anchor = _index(connection, request.anchor_id, request)
    is_anchor = request.cursor_id == request.anchor_id
    cursor = anchor if is_anchor else _index(connection, request.cursor_id, request)
    return 0 if anchor is None else anchor - request.anchor_index, cursor


def _index(connection: sqlite3.Connection, run_id: str | None, request: WindowRequest) -> int | None:
    return None if run_id is None else index_of(connection, run_id, request.condition, request.sort)
