"""Usual durations of runs, and stuck runs: those active for far longer than usual, now and in the past."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from typing import Final, NamedTuple

from storage.cache.polls import run_clock_ahead
from storage.cache.read_runs import final_statuses
from storage.cache.run_sql import FINAL_SQL, RANK, where
from storage.cache.schema import make_index
from storage.database import immediate, snapshot
from storage.records import RunFilter
from storage.records.following import PastStuck, RunDurations, StuckRun
from storage.values import NO_TIME_US, from_us, to_us

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


class _PastRun(NamedTuple):
    row: int
    run_id: str
    repository: str
    branch: str
    created_us: int
    first_status: str
    first_at_us: int
    seen_us: int
    """When the service last showed it, by the clock of its times."""


class _EndedRun(NamedTuple):
    at_us: int
    took_us: int


def past_stuck(connection: sqlite3.Connection, since: datetime) -> tuple[PastStuck, ...]:
    """The runs that were stuck since then, in the order in which they became stuck.

    They are computed from the runs' times and the limits known at each moment, not from stored flags.
    """
    with snapshot(connection):
        finals, ahead_us = final_statuses(connection), clock_ahead_us(connection)
        since_us, ended = to_us(since) + ahead_us, dict[str, list[_EndedRun]]()
        found: list[PastStuck] = []
        for run in _long_runs(connection, since_us, ahead_us):
            if run.repository not in ended:
                ended[run.repository] = _ended_runs(connection, run.repository)
            for status, start_us, end_us in _active_times(connection, run, finals):
                for at_us, until_us, p95_us in _flagged_times(ended[run.repository], start_us, end_us):
                    seen = (from_us(start_us), from_us(end_us), p95_us / SECOND_US)
                    stuck = StuckRun(run.run_id, run.repository, status, *seen, run.branch)
                    found.append(PastStuck(stuck, from_us(at_us - ahead_us), from_us(until_us - ahead_us)))
    return tuple(sorted((each for each in found if each.until >= since), key=lambda each: each.at))


def _long_runs(connection: sqlite3.Connection, since_us: int, ahead_us: int) -> list[_PastRun]:
    """Runs that lasted longer than `FLOOR` and were active at some time after `since_us`."""
    found = connection.execute(
        "SELECT r.id, r.run_id, r.repository, r.branch, r.created_us, r.first_status, r.first_at_us, g.asked_us + ?"
        " FROM runs AS r JOIN sightings AS g ON g.id = r.id WHERE r.took_us > ? AND r.created_us > ?"
        f" AND (r.updated_us >= ? OR r.status NOT IN ({FINAL_SQL}))",
        (ahead_us, FLOOR_US, NO_TIME_US, since_us),
    )
    return [_PastRun(*values) for values in found.fetchall()]


def _ended_runs(connection: sqlite3.Connection, repository: str) -> list[_EndedRun]:
    """A repository's finished runs, newest first."""
    found = connection.execute(
        f"SELECT updated_us, took_us FROM runs WHERE repository = ? AND +status IN ({FINAL_SQL}) AND took_us >= 0"
        " ORDER BY created_us DESC, run_id DESC",
        (repository,),
    )
    return [_EndedRun(*values) for values in found.fetchall()]


def _active_times(
    connection: sqlite3.Connection, run: _PastRun, finals: Collection[str]
) -> Iterator[tuple[str, int, int]]:
    """Each turn's last active status, its start and its end; a turn still active ends when it was last seen."""
    moves = connection.execute(
        "SELECT old, new, at_us FROM transitions WHERE run = ? ORDER BY id", (run.row,)
    ).fetchall()
    start_us: int | None = run.created_us
    if run.first_status in finals:
        yield "working", run.created_us, run.first_at_us
        start_us = None
    status = run.first_status
    for old, new, at_us in moves:
        status = new
        if old in finals and new not in finals:
            start_us = at_us
        elif new in finals and start_us is not None:
            yield old, start_us, at_us
            start_us = None
    if start_us is not None:
        yield status, start_us, run.seen_us


def _flagged_times(ended: list[_EndedRun], start_us: int, end_us: int) -> Iterator[tuple[int, int, int]]:
    """From when to when a turn was stuck, and its repository's 95th percentile at the start."""
    known = sorted({each.at_us for each in ended if start_us < each.at_us < end_us})
    flagged: tuple[int, int] | None = None
    for at_us, until_us in pairwise((start_us, *known, end_us)):
        p95_us = _p95(ended, at_us)
        limit_us = max(FLOOR_US, FACTOR * p95_us)
        if flagged is not None and at_us - start_us <= limit_us * HOLD:
            # Other runs ended that took as long, so this one is no longer unusual.
            yield flagged[0], at_us, flagged[1]
            flagged = None
        if flagged is None and start_us + limit_us < until_us:
            flagged = max(at_us, start_us + limit_us), p95_us
    if flagged is not None:
        yield flagged[0], end_us, flagged[1]


def _p95(ended: list[_EndedRun], by_us: int) -> int:
    known: list[int] = []
    for each in ended:
        if each.at_us <= by_us:
            known.append(each.took_us)
            if len(known) == SAMPLE:
                break
    return percentile(sorted(known), 0.95) if known else 0
