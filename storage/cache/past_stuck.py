"""Runs that were stuck in the past, computed from their times and the limits known at each moment."""

import sqlite3
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from storage.cache.learnt import run_clock_ahead
from storage.cache.run_sql import FINAL_SQL
from storage.cache.statuses import final_statuses
from storage.cache.stuck import FACTOR, FLOOR, HOLD, SAMPLE, percentile
from storage.database import snapshot
from storage.records.following import PastStuck, StuckRun
from storage.values import NO_TIME_US, from_us, to_us

_US: Final = timedelta(microseconds=1)
_FLOOR_US: Final = FLOOR // _US


class _Run(NamedTuple):
    row: int
    run_id: str
    repository: str
    branch: str
    created_us: int
    first_status: str
    first_at_us: int
    seen_us: int
    """When the service last showed it, by the clock of its times."""


class _Ended(NamedTuple):
    at_us: int
    took_us: int


def past_stuck(connection: sqlite3.Connection, since: datetime) -> tuple[PastStuck, ...]:
    """The runs that were stuck since then, in the order of their flags."""
    with snapshot(connection):
        final, ahead_us = final_statuses(connection), run_clock_ahead(connection) // _US
        since_us, ended = to_us(since) + ahead_us, dict[str, list[_Ended]]()
        found: list[PastStuck] = []
        for run in _long(connection, since_us, ahead_us):
            if run.repository not in ended:
                ended[run.repository] = _ended(connection, run.repository)
            for status, start_us, end_us in _turns(connection, run, final):
                for at_us, until_us, p95_us in _flagged(ended[run.repository], start_us, end_us):
                    seen = (from_us(start_us), from_us(end_us), p95_us / 1e6)
                    stuck = StuckRun(run.run_id, run.repository, status, *seen, run.branch)
                    found.append(PastStuck(stuck, from_us(at_us - ahead_us), from_us(until_us - ahead_us)))
    return tuple(sorted((each for each in found if each.until >= since), key=lambda each: each.at))


def _long(connection: sqlite3.Connection, since_us: int, ahead_us: int) -> list[_Run]:
    """Runs that took long enough, or are still active."""
    found = connection.execute(
        "SELECT r.id, r.run_id, r.repository, r.branch, r.created_us, r.first_status, r.first_at_us, g.asked_us + ?"
        " FROM runs AS r JOIN sightings AS g ON g.id = r.id WHERE r.took_us > ? AND r.created_us > ?"
        f" AND (r.updated_us >= ? OR r.status NOT IN ({FINAL_SQL}))",
        (ahead_us, _FLOOR_US, NO_TIME_US, since_us),
    )
    return [_Run(*values) for values in found.fetchall()]


def _ended(connection: sqlite3.Connection, repository: str) -> list[_Ended]:
    """A repository's finished runs, the one created last first."""
    found = connection.execute(
        f"SELECT updated_us, took_us FROM runs WHERE repository = ? AND +status IN ({FINAL_SQL}) AND took_us >= 0"
        " ORDER BY created_us DESC, run_id DESC",
        (repository,),
    )
    return [_Ended(*values) for values in found.fetchall()]


def _turns(connection: sqlite3.Connection, run: _Run, final: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """Each turn's last active status, its start and its end; of an active one, when it was last seen."""
    moves = connection.execute(
        "SELECT old, new, at_us FROM transitions WHERE run = ? ORDER BY id", (run.row,)
    ).fetchall()
    start_us: int | None = run.created_us
    if run.first_status in final:
        yield "working", run.created_us, run.first_at_us
        start_us = None
    status = run.first_status
    for old, new, at_us in moves:
        status = new
        if old in final and new not in final:
            start_us = at_us
        elif new in final and start_us is not None:
            yield old, start_us, at_us
            start_us = None
    if start_us is not None:
        yield status, start_us, run.seen_us


def _flagged(ended: list[_Ended], start_us: int, end_us: int) -> Iterator[tuple[int, int, int]]:
    """When a turn was flagged, until when, and its repository's 95th percentile by then."""
    known = sorted({each.at_us for each in ended if start_us < each.at_us < end_us})
    flagged: tuple[int, int] | None = None
    for at_us, until_us in pairwise((start_us, *known, end_us)):
        p95_us = _p95(ended, at_us)
        limit_us = max(_FLOOR_US, FACTOR * p95_us)
        if flagged is not None and at_us - start_us <= limit_us * HOLD:
            # Others took longer: it is not unusual any more.
            yield flagged[0], at_us, flagged[1]
            flagged = None
        if flagged is None and start_us + limit_us < until_us:
            flagged = max(at_us, start_us + limit_us), p95_us
    if flagged is not None:
        yield flagged[0], end_us, flagged[1]


def _p95(ended: list[_Ended], by_us: int) -> int:
    known: list[int] = []
    for each in ended:
        if each.at_us <= by_us:
            known.append(each.took_us)
            if len(known) == SAMPLE:
                break
    return percentile(sorted(known), 0.95) if known else 0
