"""Figures over many runs, each from an index alone, so that a million runs take a moment, not a minute."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from storage.cache.run_sql import FINAL_SQL, where
from storage.cache.stuck import SECOND_US, percentile
from storage.database import column, execute, snapshot
from storage.records import RunFilter
from storage.records.insights import FailedRuns, Outcomes, RepositoryFigures
from storage.values import from_us_or_none

SAMPLE: Final = 2_000
"""The newest finished runs of a repository, for its percentiles."""
_NUMBERS: Final = f"""
coalesce(sum(status = 'completed'), 0), coalesce(sum(status = 'failed'), 0),
coalesce(sum(status NOT IN ({FINAL_SQL})), 0), count(*)
"""
_OUTCOMES: Final = "runs INDEXED BY runs_created WHERE created_us >= ? AND created_us < ?"
_BY_REPOSITORY: Final = "runs WHERE repository = ? AND created_us >= ?"
_DURATIONS: Final = f"""
SELECT took_us FROM runs
WHERE repository = ? AND created_us >= ? AND status IN ({FINAL_SQL}) AND took_us >= 0
ORDER BY created_us DESC, run_id DESC LIMIT ?
"""


def outcomes(connection: sqlite3.Connection, edges: Sequence[datetime]) -> tuple[Outcomes, ...]:
    """The outcomes of the runs created between each edge and the next."""
    with snapshot(connection):
        return tuple(
            Outcomes(*_counts(connection, _OUTCOMES, start, end), start=start, end=end)
            for start, end in pairwise(edges)
        )


def repositories(connection: sqlite3.Connection, since: datetime) -> tuple[RepositoryFigures, ...]:
    """The repositories with runs created since then, those with the most runs first; 500 at most."""
    with snapshot(connection):
        sql = "SELECT label FROM repositories WHERE newest_us >= ? ORDER BY newest_us DESC LIMIT 500"
        figures = []
        for label in column(connection, sql, since):
            counts = _counts(connection, _BY_REPOSITORY, label, since)
            took = sorted(column(connection, _DURATIONS, label, since, SAMPLE))
            p50_s, p95_s = (percentile(took, part) / SECOND_US if took else None for part in (0.50, 0.95))
            figures.append(RepositoryFigures(*counts, repository=label, p50_s=p50_s, p95_s=p95_s, timed=len(took)))
    return tuple(sorted((row for row in figures if row.total), key=lambda row: (-row.total, row.repository)))


def failed_between(connection: sqlite3.Connection, wanted: RunFilter, start: datetime, end: datetime) -> FailedRuns:
    condition = where(wanted)
    sql = (
        "SELECT count(*), min(created_us) FROM runs INDEXED BY runs_updated"
        f" WHERE updated_us BETWEEN ? AND ? AND status = 'failed' AND {condition.sql}"
    )
    count, created_us = execute(connection, sql, start, end, *condition.parameters).fetchone()
    return FailedRuns(count, from_us_or_none(created_us))


def _counts(connection: sqlite3.Connection, runs: str, *values: str | datetime) -> tuple[int, int, int, int]:
    sql = f"SELECT {_NUMBERS} FROM {runs}"
    completed, failed, unfinished, total = execute(connection, sql, *values).fetchone()
    return completed, failed, unfinished, total - completed - failed - unfinished
