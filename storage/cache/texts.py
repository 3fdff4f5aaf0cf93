"""An index for searches: the texts of a thousand runs in one value, which Python searches faster than SQLite each row.

It is made when a search is first counted, so that storing costs those who do not search nothing.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Final

from msgspec.structs import replace

from storage.cache.run_sql import search_words, where
from storage.database import column, execute, scalar
from storage.records import RunFilter
from storage.values import NO_TIME_US

BLOCK: Final = 1024
"""Runs in one value: those with neighbouring numbers."""
_END: Final = b"\x1d"
"""Follows each run's text. White space to `str.split`, so no word has it."""
_STEP: Final = 32
"""Blocks made in one transaction: few, so that other writes do not wait long."""
_MAX_MISSING: Final = 16
"""Blocks whose runs are searched row by row; with more of them, the index would not help."""
_MAX_MATCHES: Final = 20_000
"""Matching runs that are listed. A search that finds more has its first rows soon, and is counted row by row."""
_BLOCK_OFFSETS: Final = json.dumps(list(range(BLOCK)))
_MAKE: Final = f"""
INSERT INTO texts
SELECT ?1, ifnull(max(created_us), {NO_TIME_US}), CAST(group_concat(ifnull(search, ''), char(29)) || char(29) AS BLOB)
FROM json_each(?2) AS within LEFT JOIN runs ON runs.id = ?1 * {BLOCK} + within.value
"""
# By number and by no index: a filter's own index may lead to far more runs.
_RUNS_BY_ID: Final = "runs NOT INDEXED WHERE id IN (SELECT value FROM json_each(?))"

Place = tuple[int, str, int]
"""A run's creation and id, by which runs are sorted, and its number."""


def fill(connection: sqlite3.Connection) -> bool:
    """Make missing blocks, within a transaction; return whether more are missing."""
    missing, _ = _missing(connection)
    connection.executemany(_MAKE, [(block, _BLOCK_OFFSETS) for block in missing[:_STEP]])
    return len(missing) > _STEP


def newest(connection: sqlite3.Connection, condition: RunFilter, limit: int) -> list[Place] | None:
    """The newest matching runs, `most` at most, in their order; None: the index cannot help."""
    if (parts := _parts(connection, condition)) is None:
        return None
    unread, words = parts
    places = _matching(connection, unread, replace(condition, search=""))
    # Closed even if a statement within is interrupted: as long as one is open, the connection stays interrupted.
    with closing(connection.execute("SELECT block, newest_us, texts FROM texts ORDER BY newest_us DESC")) as blocks:
        for block, newest_us, texts in blocks:
            places = sorted(places, reverse=True)[:limit]
            if len(places) == limit and places[-1][0] > newest_us:
                break
            places += _matching(connection, _numbers(block, texts, words), replace(condition, search=""))
    return sorted(places, reverse=True)[:limit]


def by_status(connection: sqlite3.Connection, condition: RunFilter) -> dict[str, int] | None:
    """The number of matching runs by status; None: the index cannot help."""
    if (parts := _parts(connection, condition)) is None:
        return None
    numbers, words = parts
    for block, texts in connection.execute("SELECT block, texts FROM texts"):
        numbers += _numbers(block, texts, words)
        if len(numbers) > _MAX_MATCHES:
            return None
    filters = where(replace(condition, search=""))
    sql = f"SELECT status, count(*) FROM {_RUNS_BY_ID} AND {filters.sql} GROUP BY status"
    return dict(execute(connection, sql, numbers, *filters.parameters).fetchall())


def _matching(connection: sqlite3.Connection, numbers: Iterable[int], rest: RunFilter) -> list[Place]:
    """The positions of these runs, as far as they pass the rest of the filter."""
    if not (some := list(numbers)):
        return []
    condition = where(rest)
    sql = f"SELECT created_us, run_id, id FROM {_RUNS_BY_ID} AND {condition.sql}"
    return execute(connection, sql, some, *condition.parameters).fetchall()


def _parts(connection: sqlite3.Connection, condition: RunFilter) -> tuple[list[int], Sequence[bytes]] | None:
    """The numbers of matching runs that are in no block, and the words to be searched for in the blocks."""
    missing, unfilled = _missing(connection)
    words = search_words(condition)
    if not words or len(missing) > _MAX_MISSING:
        return None
    matches = where(RunFilter(search=condition.search))
    ranges = [(block * BLOCK, (block + 1) * BLOCK) for block in missing]
    ranges.append((unfilled * BLOCK, 2**62))
    sql = f"SELECT id FROM runs WHERE id >= ? AND id < ? AND {matches.sql}"
    rows = chain.from_iterable(connection.execute(sql, (*ends, *matches.parameters)) for ends in ranges)
    return [number for (number,) in rows], [word.encode() for word in words]


def _numbers(block: int, texts: bytes, words: Sequence[bytes]) -> Iterator[int]:
    """The numbers of the block's runs whose text has every word."""
    longest, number, start = max(words, key=len), block * BLOCK, 0
    while (at := texts.find(longest, start)) >= 0:
        number += texts.count(_END, start, at)
        end = texts.index(_END, at)
        if len(words) == 1 or all(texts.find(word, texts.rfind(_END, 0, at) + 1, end) >= 0 for word in words):
            yield number
        start = end


def _missing(connection: sqlite3.Connection) -> tuple[list[int], int]:
    """The missing blocks, never built or dropped because a text changed; and the last block, which is not full yet."""
    stored = {*column(connection, "SELECT block FROM texts INDEXED BY texts_newest")}
    last = scalar(connection, "SELECT ifnull(max(id), 0) FROM runs") // BLOCK
    return [block for block in range(last) if block not in stored], last
