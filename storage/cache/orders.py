"""An order of runs as SQL: total, with an index behind each, so that a window costs the same anywhere."""

from typing import Final

from storage.cache.filters import Where
from storage.records import RunSort
from storage.records.query import SortColumn

_ASCENDING: Final[dict[SortColumn, tuple[tuple[str, bool], ...]]] = {
    "started": (("created_us", True), ("run_id", True)),
    "updated": (("updated_us", True), ("run_id", True)),
    "took": (("took_us", True), ("run_id", True)),
    "status": (("status", True), ("created_us", False), ("run_id", False)),
    "repository": (("repository", True), ("created_us", False), ("run_id", False)),
    "branch": (("branch", True), ("created_us", False), ("run_id", False)),
    "run": (("run_id", True),),
}
"""The ascending order: columns, and whether each rises. Runs alike in a text are newest first.

Descending is its exact reverse, so that one index serves both."""


def order_by(sort: RunSort, *, backwards: bool = False) -> str:
    """The terms of ORDER BY."""
    flip = sort.descending != backwards
    return ", ".join(f"{column} {'ASC' if rises != flip else 'DESC'}" for column, rises in _ASCENDING[sort.column])


def key_columns(sort: RunSort) -> tuple[str, ...]:
    """The columns that say where in the order a run stands."""
    return tuple(column for column, _ in _ASCENDING[sort.column])


def onwards(sort: RunSort, key: tuple[str | int, ...]) -> Where | None:
    """The condition that the run of this key and all after it meet; None: in this order no one range of the index."""
    if len(before(sort, key)) != 1:
        return None
    columns, marks = ", ".join(key_columns(sort)), ", ".join("?" * len(key))
    rises = _ASCENDING[sort.column][0][1] != sort.descending
    return Where(f"({columns}) {'>=' if rises else '<='} ({marks})", key)


def before(sort: RunSort, key: tuple[str | int, ...]) -> tuple[Where, ...]:
    """Conditions that, between them, every run before this key meets exactly once; each is one range of the index."""
    terms = _ASCENDING[sort.column]
    directions = [rises for _, rises in terms]
    ranges: list[Where] = []
    fixed = 0
    while fixed < len(terms):
        # Terms that run the same way are compared as one row value: a range that SQLite finds in the index.
        end = fixed + 1
        while end < len(terms) and directions[end] == directions[fixed]:
            end += 1
        ranges.append(_range(sort, key, fixed, end, rises=directions[fixed] != sort.descending))
        fixed = end
    return tuple(ranges)


def _range(sort: RunSort, key: tuple[str | int, ...], fixed: int, end: int, *, rises: bool) -> Where:
    columns = key_columns(sort)
    equal = "".join(f"{column} = ? AND " for column in columns[:fixed])
    row, marks = ", ".join(columns[fixed:end]), ", ".join("?" * (end - fixed))
    return Where(f"{equal}({row}) {'<' if rises else '>'} ({marks})", key[:end])
