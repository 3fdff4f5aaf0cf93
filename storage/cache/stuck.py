"""Usual durations of runs, and stuck runs: those active for far longer than usual."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final

from storage.cache.polls import run_clock_ahead
from storage.cache.run_sql import FINAL_SQL, RANK, where
from storage.cache.schema import make_index
from storage.database import immediate
from storage.records import RunFilter
from storage.records.following import RunDurations, StuckRun
from storage.values import from_us

SAMPLE: Final = 200
"""How many of a repository's newest finished runs its usual durations are computed from."""
FLOOR: Final = timedelta(minutes=30)
"""A run that has been active for less is not stuck."""
STUCK_CAP: Final = 200
"""How many stuck runs are returned at most."""
FACTOR: Final = 2
"""A run is stuck if it takes longer than this many times the 95th percentile."""
HOLD: Final = 0.75
"""A flag stays until the run's time is below this part of the limit, so that it does not flicker."""

_US: Final = timedelta(microseconds=1)
FLOOR_US: Final = FLOOR // _US
SECOND_US: Final = 1_000_000


def durations(connection: sqlite3.Connection, repositories: Iterable[str]) -> dict[str, RunDurations]:
    """The usual durations of each repository's runs, by label; repositories without a finished run are left out."""
    found = {repository: _taken_us(connection, repository) for repository in dict.fromkeys(repositories)}
    return {
        repository: RunDurations(percentile(taken, 0.5) / SECOND_US, percentile(taken, 0.95) / SECOND_US, len(taken))
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
    """The percentile by the nearest rank, which is always one of the values."""
    return ordered[ceil(share * len(ordered)) - 1]


@dataclass(frozen=True, slots=True)
class _Candidate:
    run: int
    run_id: str
    repository: str
    active_since_us: int
    taken_us: int
    """How long its turn had lasted when the service last showed it; it may have ended since."""
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
        p95_us = {label: round(figures.p95_s * SECOND_US) for label, figures in limits.items()}
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


def stuck_runs(connection: sqlite3.Connection) -> tuple[StuckRun, ...]:
    """The runs that are flagged as stuck, those active for longest first."""
    found = connection.execute(
        "SELECT r.run_id, r.repository, r.status, s.active_since_us, g.asked_us, s.p95_us, r.branch"
        " FROM stuck AS s JOIN runs AS r ON r.id = s.run JOIN sightings AS g ON g.id = r.id"
        " ORDER BY s.active_since_us, r.run_id LIMIT ?",
        (STUCK_CAP,),
    )
    ahead_us = clock_ahead_us(connection)
    return tuple(
        StuckRun(
            run_id, repository, status, from_us(active_us), from_us(seen_us + ahead_us), p95_us / SECOND_US, branch
        )
        for run_id, repository, status, active_us, seen_us, p95_us, branch in found.fetchall()
    )


def _candidates(connection: sqlite3.Connection) -> list[_Candidate]:
    condition, ahead_us = where(RunFilter(active=True)), clock_ahead_us(connection)
    found = connection.execute(
        f"SELECT r.id, r.run_id, r.repository, r.active_since_us, g.asked_us + {ahead_us} - r.active_since_us,"
        # A flag counts only if it was set in this turn: a continued run starts over.
        " coalesce(s.active_since_us = r.active_since_us, 0)"
        " FROM runs AS r JOIN sightings AS g ON g.id = r.id LEFT JOIN stuck AS s ON s.run = r.id"
        f" WHERE {condition.sql} AND presence = 'current' AND g.asked_us + {ahead_us} - r.active_since_us > ?",
        (*condition.parameters, round(FLOOR_US * HOLD)),
    )
    return [_Candidate(*values) for values in found.fetchall()]


def clock_ahead_us(connection: sqlite3.Connection) -> int:
    """What has to be added to a time of our clock to compare it with a run's times."""
    return run_clock_ahead(connection) // _US


def _is_stuck(candidate: _Candidate, p95_us: int) -> bool:
    limit_us = max(FLOOR_US, FACTOR * p95_us)
    return candidate.taken_us > (limit_us * HOLD if candidate.is_flagged else limit_us)
