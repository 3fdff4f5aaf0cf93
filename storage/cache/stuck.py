"""Durations of runs, and stuck runs: active for far longer than usual in their repository."""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import ceil
from typing import Final

from storage.cache.learnt import run_clock_ahead
from storage.cache.run_sql import FINAL_SQL, RANK, where
from storage.cache.schema import make_index
from storage.database import immediate
from storage.lazy_dataclass import dataclass
from storage.records import RunFilter
from storage.records.following import RunDurations, StuckRun
from storage.values import from_us

SAMPLE: Final = 200
"""The newest finished runs of a repository, for its figures."""
FLOOR: Final = timedelta(minutes=30)
"""No run is stuck sooner."""
FACTOR: Final = 2
"""How many times the 95th percentile counts as stuck."""

HOLD: Final = 0.75
"""A flag stays until the run's time is below this part of the limit, so that it does not flicker."""

_FLOOR_US: Final = FLOOR // timedelta(microseconds=1)
_MICROSECONDS: Final = 1_000_000


def durations(connection: sqlite3.Connection, repositories: Iterable[str]) -> dict[str, RunDurations]:
    """Each repository's figures, by label; repositories without a finished run are left out."""
    found = {repository: _taken_us(connection, repository) for repository in dict.fromkeys(repositories)}
    return {
        repository: RunDurations(
            percentile(taken, 0.5) / _MICROSECONDS, percentile(taken, 0.95) / _MICROSECONDS, len(taken)
        )
        for repository, taken in found.items()
        if taken
    }


def _taken_us(connection: sqlite3.Connection, repository: str) -> list[int]:
    found = connection.execute(
        "SELECT took_us FROM runs"
        f" WHERE repository = ? AND +status IN ({FINAL_SQL}) AND took_us >= 0"
        " ORDER BY created_us DESC, run_id DESC LIMIT ?",
        (repository, SAMPLE),
    )
    return sorted(taken_us for (taken_us,) in found.fetchall())


def percentile(ordered: Sequence[int], share: float) -> int:
    """By the nearest rank: a value that occurs."""
    return ordered[ceil(share * len(ordered)) - 1]


@dataclass(frozen=True, slots=True)
class _Candidate:
    run: int
    run_id: str
    repository: str
    active_since_us: int
    taken_us: int
    """Up to when the service last showed it: the time since proves nothing."""
    is_flagged: bool


def judge(connection: sqlite3.Connection) -> frozenset[str]:
    """Flag stuck runs and unflag others; return the ids of changed runs."""
    with immediate(connection):
        flagged: dict[int, str] = dict(
            connection.execute(
                "SELECT s.run, coalesce(r.run_id, '') FROM stuck AS s LEFT JOIN runs AS r ON r.id = s.run"
            ).fetchall()
        )
        candidates = _candidates(connection)
        if candidates:
            make_index(connection, "repository")
        limits = durations(connection, (candidate.repository for candidate in candidates))
        p95_us = {label: round(figures.p95_s * _MICROSECONDS) for label, figures in limits.items()}
        stuck = {s.run: s for s in candidates if _is_stuck(s, p95_us.get(s.repository, 0))}
        freed = [(run,) for run in flagged.keys() - stuck.keys()]
        connection.executemany("DELETE FROM stuck WHERE run = ?", freed)
        connection.executemany(
            "INSERT INTO stuck (run, active_since_us, p95_us) VALUES (?, ?, ?)",
            [(s.run, s.active_since_us, p95_us.get(s.repository, 0)) for s in stuck.values() if s.run not in flagged],
        )
        connection.executemany(RANK, [(run,) for run in flagged.keys() ^ stuck.keys()])
    gone = {flagged[run] for run in flagged.keys() - stuck.keys()}
    return frozenset(gone | {stuck[run].run_id for run in stuck.keys() - flagged.keys()})


def ids(connection: sqlite3.Connection) -> frozenset[str]:
    """Ids of the runs that are flagged."""
    found = connection.execute("SELECT r.run_id FROM stuck AS s JOIN runs AS r ON r.id = s.run")
    return frozenset(run_id for (run_id,) in found.fetchall())


def stuck_runs(connection: sqlite3.Connection, limit: int) -> tuple[StuckRun, ...]:
    """The runs that are flagged, those that have been active for longest first."""
    found = connection.execute(
        "SELECT r.run_id, r.repository, r.status, s.active_since_us, g.asked_us, s.p95_us, r.branch"
        " FROM stuck AS s JOIN runs AS r ON r.id = s.run JOIN sightings AS g ON g.id = r.id"
        " ORDER BY s.active_since_us, r.run_id LIMIT ?",
        (limit,),
    )
    ahead_us = _ahead_us(connection)
    return tuple(
        StuckRun(
            run_id, repository, status, from_us(active_us), from_us(seen_us + ahead_us), p95_us / _MICROSECONDS, branch
        )
        for run_id, repository, status, active_us, seen_us, p95_us, branch in found.fetchall()
    )


def _candidates(connection: sqlite3.Connection) -> list[_Candidate]:
    condition, ahead_us = where(RunFilter(active=True)), _ahead_us(connection)
    found = connection.execute(
        f"SELECT r.id, r.run_id, r.repository, r.active_since_us, g.asked_us + {ahead_us} - r.active_since_us,"
        # Flagged in this turn: a run that was continued starts over.
        " coalesce(s.active_since_us = r.active_since_us, 0)"
        " FROM runs AS r JOIN sightings AS g ON g.id = r.id LEFT JOIN stuck AS s ON s.run = r.id"
        f" WHERE {condition.sql} AND presence = 'current' AND g.asked_us + {ahead_us} - r.active_since_us > ?",
        (*condition.parameters, round(_FLOOR_US * HOLD)),
    )
    return [_Candidate(*values) for values in found.fetchall()]


def _ahead_us(connection: sqlite3.Connection) -> int:
    """The difference to add to a time of ours, to compare it with a run's."""
    return run_clock_ahead(connection) // timedelta(microseconds=1)


def _is_stuck(candidate: _Candidate, p95_us: int) -> bool:
    limit_us = max(_FLOOR_US, FACTOR * p95_us)
    return candidate.taken_us > (limit_us * HOLD if candidate.is_flagged else limit_us)
