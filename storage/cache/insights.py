"""Figures over many runs, each from an index alone, so that a million runs take a moment, not a minute."""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Final

from storage.cache.run_sql import ACTIVE_SQL, FINAL_SQL, where
from storage.cache.stuck import percentile
from storage.database import snapshot
from storage.records import RunFilter
from storage.records.insights import Concurrency, FailedRuns, Outcomes, RepositoryFigures
from storage.values import from_us_or_none, to_us

SAMPLE: Final = 2_000
"""The newest finished runs of a repository, for its percentiles."""
MOST_REPOSITORIES: Final = 500

_SECOND_US: Final = 1_000_000

_NUMBERS: Final = f"""
coalesce(sum(status = 'completed'), 0), coalesce(sum(status = 'failed'), 0),
coalesce(sum(status NOT IN ({FINAL_SQL})), 0), count(*)
"""

_OUTCOMES: Final = f"""
SELECT {_NUMBERS}
FROM runs INDEXED BY runs_created WHERE created_us >= ? AND created_us < ?
"""

_BY_REPOSITORY: Final = f"""
SELECT {_NUMBERS}
FROM runs INDEXED BY runs_repository WHERE repository = ? AND created_us >= ?
"""

_TOOK: Final = f"""
SELECT took_us FROM runs INDEXED BY runs_repository
WHERE repository = ? AND created_us >= ? AND status IN ({FINAL_SQL}) AND took_us >= 0
ORDER BY created_us DESC, run_id DESC LIMIT ?
"""

_CREATED: Final = """
SELECT count(*), coalesce(sum(:end - created_us), 0)
FROM runs INDEXED BY runs_created WHERE created_us >= :start AND created_us < :end
"""

_ENDED: Final = f"""
SELECT count(*), coalesce(sum(:end - updated_us), 0)
FROM runs INDEXED BY runs_updated WHERE updated_us >= :start AND updated_us < :end AND status IN ({FINAL_SQL})
"""

_ENDING_LATER: Final = (
    f"SELECT count(*) FROM runs INDEXED BY runs_updated WHERE updated_us >= ? AND status IN ({FINAL_SQL})"
)
"""Runs that finish after the last edge, on a service's clock that is ahead: they were under way at that edge."""

_MOVED_STARTS: Final = "SELECT created_us, active_since_us FROM runs WHERE active_since_us <> created_us"
"""The few runs whose work did not begin at their creation: continued ones, and those without a readable creation."""

_ACTIVE: Final = f"SELECT active_since_us, presence FROM runs WHERE {ACTIVE_SQL}"
_Counted = tuple[int, int]
"""The number of events in a stretch, and the sum of their distances from its end, in microseconds."""


def outcomes(connection: sqlite3.Connection, edges: Sequence[datetime]) -> tuple[Outcomes, ...]:
    """The outcomes of the runs created between each edge and the next."""
    with snapshot(connection):
        found = [
            (start, end, connection.execute(_OUTCOMES, (to_us(start), to_us(end))).fetchone())
            for start, end in pairwise(edges)
        ]
    return tuple(
        Outcomes(start, end, completed, failed, unfinished, total - completed - failed - unfinished)
        for start, end, (completed, failed, unfinished, total) in found
    )


def repositories(connection: sqlite3.Connection, since: datetime) -> tuple[RepositoryFigures, ...]:
    """The repositories with runs created since then, those with the most runs first."""
    since_us = to_us(since)
    with snapshot(connection):
        labels = connection.execute(
            "SELECT label FROM repositories WHERE newest_us >= ? ORDER BY newest_us DESC LIMIT ?",
            (since_us, MOST_REPOSITORIES),
        ).fetchall()
        found = [_figures(connection, label, since_us) for (label,) in labels]
    return tuple(sorted((each for each in found if each.total), key=lambda each: (-each.total, each.repository)))


def concurrency(connection: sqlite3.Connection, edges: Sequence[datetime]) -> tuple[Concurrency, ...]:
    """The average number of runs under way between each edge and the next; the last edge is now.

    The number at an edge is the number now, minus those that began since, plus those that ended since. The average
    between two edges follows from the number at the first one and the times of beginnings and ends in between.
    """
    stretches = [(to_us(start), to_us(end)) for start, end in pairwise(edges)]
    now_us = to_us(edges[-1])
    with snapshot(connection):
        active = connection.execute(_ACTIVE).fetchall()
        (ending_later,) = connection.execute(_ENDING_LATER, (now_us,)).fetchone()
        moved = connection.execute(_MOVED_STARTS).fetchall()
        created = [_counted(connection, _CREATED, stretch) for stretch in stretches]
        ended = [_counted(connection, _ENDED, stretch) for stretch in stretches]
    lost = [since_us for since_us, presence in active if presence == "lost"]
    now_active = sum(since_us < now_us and presence != "lost" for since_us, presence in active)
    began = [
        _moved(_moved(here, stretch, [at for _, at in moved], 1), stretch, [*(was for was, _ in moved), *lost], -1)
        for here, stretch in zip(created, stretches, strict=True)
    ]
    net = [start_count - end_count for (start_count, _), (end_count, _) in zip(began, ended, strict=True)]
    at_edges = [now_active + ending_later - sum(net), *net]
    return tuple(
        Concurrency(start, end, max(0.0, here + (start_us - end_us) / max(1, to_us(end) - to_us(start))))
        for (start, end), here, (_, start_us), (_, end_us) in zip(
            pairwise(edges), accumulate(at_edges), began, ended, strict=False
        )
    )


def failed_between(connection: sqlite3.Connection, wanted: RunFilter, start: datetime, end: datetime) -> FailedRuns:
    """Those of these runs that failed between two times."""
    condition = where(wanted)
    count, created_us = connection.execute(
        "SELECT count(*), min(created_us) FROM runs INDEXED BY runs_updated"
        f" WHERE updated_us BETWEEN ? AND ? AND status = 'failed' AND {condition.sql}",
        (to_us(start), to_us(end), *condition.parameters),
    ).fetchone()
    return FailedRuns(count, None if created_us is None else from_us_or_none(created_us))


def _figures(connection: sqlite3.Connection, label: str, since_us: int) -> RepositoryFigures:
    completed, failed, unfinished, total = connection.execute(_BY_REPOSITORY, (label, since_us)).fetchone()
    took = sorted(took_us for (took_us,) in connection.execute(_TOOK, (label, since_us, SAMPLE)).fetchall())
    return RepositoryFigures(
        repository=label,
        completed=completed,
        failed=failed,
        unfinished=unfinished,
        ended_otherwise=total - completed - failed - unfinished,
        p50_s=percentile(took, 0.50) / _SECOND_US if took else None,
        p95_s=percentile(took, 0.95) / _SECOND_US if took else None,
        timed=len(took),
    )


def _counted(connection: sqlite3.Connection, sql: str, stretch: tuple[int, int]) -> _Counted:
    count, before_end_us = connection.execute(sql, {"start": stretch[0], "end": stretch[1]}).fetchone()
    return count, before_end_us


def _moved(counted: _Counted, stretch: tuple[int, int], instants: Iterable[int], sign: int) -> _Counted:
    """The events of a stretch with these added, or taken off."""
    inside = [stretch[1] - at for at in instants if stretch[0] <= at < stretch[1]]
    return counted[0] + sign * len(inside), counted[1] + sign * sum(inside)
