"""Stuck runs: active for far longer than their repository's runs take."""

import sqlite3
from collections import defaultdict
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from storage.cache.filters import where
from storage.database import snapshot
from storage.records import FINAL_STATUSES, RunFilter
from storage.times import to_us

FLOOR: Final = timedelta(minutes=30)
"""Nothing is stuck sooner."""

FACTOR: Final = 2
"""How many times the 95th percentile is far longer."""

SAMPLE: Final = 200
"""The newest finished runs of a repository that its percentile is made of."""

_FINAL: Final = ", ".join(f"'{status}'" for status in sorted(FINAL_STATUSES))


def stuck(connection: sqlite3.Connection, now: datetime) -> frozenset[str]:
    """Ids of the active, current runs that are stuck."""
    now_us, floor_us = to_us(now), FLOOR // timedelta(microseconds=1)
    condition = where(RunFilter(active=True))
    with snapshot(connection):
        found = connection.execute(
            "SELECT run_id, repository, active_since_us FROM runs"  # noqa: S608 — built from constants; values are bound
            f" WHERE {condition.sql} AND presence = 'current' AND active_since_us < ?",
            (*condition.parameters, now_us - floor_us),
        )
        suspects: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for run_id, repository, active_since_us in found.fetchall():
            suspects[repository].append((run_id, now_us - active_since_us))
        return frozenset(
            run_id
            for repository, runs in suspects.items()
            for limit_us in (max(floor_us, FACTOR * _p95_us(connection, repository)),)
            for run_id, taken_us in runs
            if taken_us > limit_us
        )


def _p95_us(connection: sqlite3.Connection, repository: str) -> int:
    """The 95th percentile (nearest rank) of what the repository's finished runs took; 0: none has finished."""
    found = connection.execute(
        "SELECT updated_us - active_since_us FROM runs"  # noqa: S608 — built from constants; values are bound
        f" WHERE repository = ? AND status IN ({_FINAL}) AND updated_us >= active_since_us"
        " ORDER BY created_us DESC, run_id DESC LIMIT ?",
        (repository, SAMPLE),
    )
    taken = sorted(taken_us for (taken_us,) in found.fetchall())
    return taken[ceil(0.95 * len(taken)) - 1] if taken else 0
