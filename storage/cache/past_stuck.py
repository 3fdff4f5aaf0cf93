"""Runs that were stuck in the past, computed from their times as they would have been flagged then."""

import sqlite3
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from storage.cache.run_sql import FINAL_SQL
from storage.cache.statuses import final_statuses
from storage.cache.stuck import FACTOR, FLOOR_US, HOLD, SAMPLE, SECOND_US, clock_ahead_us, percentile
from storage.database import snapshot
from storage.records.following import PastStuck, StuckRun
from storage.values import NO_TIME_US, from_us, to_us


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
