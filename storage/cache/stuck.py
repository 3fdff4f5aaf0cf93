"""Usual durations of runs, and stuck runs: those active for far longer than usual, now and in the past."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import ceil
from operator import attrgetter
from typing import Final

from storage.cache.polls import budget
from storage.cache.read_runs import final_statuses
from storage.cache.run_sql import FINAL_SQL, GOING_SQL, RANK
from storage.cache.schema import make_index
from storage.database import column, execute, snapshot
from storage.records.following import PastStuck, RunDurations, StuckRun
from storage.values import NO_TIME_US, from_us, records, to_us

SAMPLE: Final = 200
"""How many of a repository's newest finished runs its usual durations are computed from."""
FACTOR: Final = 2
"""A run is stuck if it takes longer than this many times the 95th percentile."""
MAX_GAP: Final = timedelta(minutes=20)
"""Answers further apart say nothing of the time between them: a run may have ended and been continued."""
HOLD: Final = 0.75
"""A flag stays until the run's time is below this part of the limit, so that it does not flicker."""
_US: Final = timedelta(microseconds=1)
FLOOR_US: Final = timedelta(minutes=30) // _US
"""A run that has been active for less is not stuck."""
SECOND_US: Final = 1_000_000
_WATCH: Final = f"""
INSERT INTO watched (run, since_us, last_us)
SELECT r.id, g.asked_us, g.asked_us FROM runs AS r JOIN sightings AS g ON g.id = r.id
WHERE {GOING_SQL} AND presence = 'current'
ON CONFLICT (run) DO UPDATE SET last_us = excluded.last_us, since_us = CASE
    WHEN excluded.last_us - last_us <= :gap THEN since_us
    -- A stuck run that the service has not dated since is the same one after the gap.
    WHEN EXISTS (SELECT 1 FROM stuck JOIN runs ON id = stuck.run
        WHERE stuck.run = watched.run AND updated_us <= watched.last_us + :ahead) THEN since_us
    ELSE excluded.since_us END
"""
"""Extends the time for which polls saw the active runs."""
# A flag counts only if it was set during this turn; a continued run starts over.
_CANDIDATES: Final = """
SELECT r.id, r.run_id, r.repository, r.active_since_us,
    w.last_us + :ahead - max(r.active_since_us, w.since_us + :ahead) AS taken_us,
    coalesce(s.active_since_us = r.active_since_us, 0)
FROM watched AS w JOIN runs AS r ON r.id = w.run LEFT JOIN stuck AS s ON s.run = r.id
WHERE taken_us > :floor
"""


def durations(connection: sqlite3.Connection, repositories: Iterable[str]) -> dict[str, RunDurations]:
    """The usual durations of each repository's runs, by label; repositories without a finished run are left out."""
    return {
        repository: RunDurations(percentile(taken, 0.5) / SECOND_US, percentile(taken, 0.95) / SECOND_US, len(taken))
        for repository in dict.fromkeys(repositories)
        if (taken := _taken_us(connection, repository))
    }


def _taken_us(connection: sqlite3.Connection, repository: str, ended_by_us: int = 2**62) -> list[int]:
    sql = (
        "SELECT took_us FROM runs"
        f" WHERE repository = ? AND +status IN ({FINAL_SQL}) AND took_us >= 0 AND updated_us <= ?"
        " ORDER BY created_us DESC, run_id DESC LIMIT ?"
    )
    return sorted(column(connection, sql, repository, ended_by_us, SAMPLE))


def percentile(ordered: Sequence[int], share: float) -> int:
    """The percentile by the nearest rank, which is always one of the values."""
    return ordered[ceil(share * len(ordered)) - 1]


def judge(connection: sqlite3.Connection) -> frozenset[str]:
    """Flag stuck runs and unflag others; return the ids of changed runs.

    Stuck: seen active by polls for more than 30 minutes and twice the 95th percentile of its repository's finished
    runs. Time without polls does not count. A flag stays until the turn ends, or its time is clearly below the limit.
    """
    sql = "SELECT s.run, coalesce(r.run_id, '') FROM stuck AS s LEFT JOIN runs AS r ON r.id = s.run"
    flagged: dict[int, str] = dict(connection.execute(sql).fetchall())
    seen = f"SELECT id FROM runs WHERE {GOING_SQL} AND presence = 'current'"
    connection.execute(f"DELETE FROM watched WHERE run NOT IN ({seen})")
    ahead_us = budget(connection).clock_ahead // _US
    bound = {"ahead": ahead_us, "gap": MAX_GAP // _US, "floor": round(FLOOR_US * HOLD)}
    connection.execute(_WATCH, bound)
    if candidates := connection.execute(_CANDIDATES, bound).fetchall():
        make_index(connection, "repository")
    limits = durations(connection, (repository for _, _, repository, *_ in candidates))
    stuck: dict[int, tuple[str, int, int]] = {}
    for run, run_id, repository, active_since_us, taken_us, is_flagged in candidates:
        p95_us = 0
        if repository in limits:
            p95_us = round(limits[repository].p95_s * SECOND_US)
        if taken_us > max(FLOOR_US, FACTOR * p95_us) * (HOLD if is_flagged else 1):
            stuck[run] = run_id, active_since_us, p95_us
    freed, new = flagged.keys() - stuck.keys(), stuck.keys() - flagged.keys()
    connection.executemany("DELETE FROM stuck WHERE run = ?", [(run,) for run in freed])
    sql = "INSERT INTO stuck (run, active_since_us, p95_us) VALUES (?, ?, ?)"
    connection.executemany(sql, [(run, *stuck[run][1:]) for run in new])
    connection.executemany(RANK, [(run,) for run in freed | new])
    return frozenset({flagged[run] for run in freed} | {stuck[run][0] for run in new})


def ids(connection: sqlite3.Connection) -> frozenset[str]:
    return frozenset(column(connection, "SELECT r.run_id FROM stuck AS s JOIN runs AS r ON r.id = s.run"))


def stuck_runs(connection: sqlite3.Connection) -> tuple[StuckRun, ...]:
    """The runs that are flagged as stuck, those active for longest first; 200 at most."""
    sql = (
        "SELECT r.run_id, r.repository, r.status, s.active_since_us, g.asked_us + ?, s.p95_us / 1e6, r.branch"
        " FROM stuck AS s JOIN runs AS r ON r.id = s.run JOIN sightings AS g ON g.id = r.id"
        " ORDER BY s.active_since_us, r.run_id LIMIT 200"
    )
    return records(StuckRun, execute(connection, sql, budget(connection).clock_ahead // _US))


def past_stuck(connection: sqlite3.Connection, since: datetime) -> tuple[PastStuck, ...]:
    """The runs that were stuck since then, in the order in which they became stuck.

    They are computed from the runs' times, with the limit that was known when each turn began.
    """
    with snapshot(connection):
        finals = final_statuses(connection)
        ahead_us = budget(connection).clock_ahead // _US
        long_runs = connection.execute(
            "SELECT r.id, r.run_id, r.repository, r.branch, r.created_us, r.first_status, r.first_at_us, g.asked_us + ?"
            " FROM runs AS r JOIN sightings AS g ON g.id = r.id WHERE r.took_us > ? AND r.created_us > ?"
            f" AND (r.updated_us >= ? OR r.status NOT IN ({FINAL_SQL}))",
            (ahead_us, FLOOR_US, NO_TIME_US, to_us(since) + ahead_us),
        ).fetchall()
        past: list[PastStuck] = []
        for number, run_id, repository, branch, *times in long_runs:
            for status, start_us, end_us in _turns(connection, number, finals, times):
                taken_us = _taken_us(connection, repository, start_us) if end_us - start_us > FLOOR_US else []
                p95_us = percentile(taken_us, 0.95) if taken_us else 0
                at_us = start_us + max(FLOOR_US, FACTOR * p95_us)
                if at_us < end_us and from_us(end_us - ahead_us) >= since:
                    seen = (from_us(start_us), from_us(end_us), p95_us / SECOND_US)
                    stuck = StuckRun(run_id, repository, status, *seen, branch)
                    past.append(PastStuck(stuck, from_us(at_us - ahead_us), from_us(end_us - ahead_us)))
    return tuple(sorted(past, key=attrgetter("at")))


def _turns(
    connection: sqlite3.Connection, number: int, finals: Collection[str], times: tuple[int, str, int, int]
) -> Iterator[tuple[str, int, int]]:
    """Each turn's last active status, its start and its end; an active turn lasts until it was last seen."""
    created_us, status, first_at_us, seen_us = times
    start_us: int | None = created_us
    if status in finals:
        yield "working", created_us, first_at_us
        start_us = None
    moves = connection.execute("SELECT old, new, at_us FROM transitions WHERE run = ? ORDER BY id", (number,))
    for old, status, at_us in moves.fetchall():
        if old in finals and status not in finals:
            start_us = at_us
        elif status in finals and start_us is not None:
            yield old, start_us, at_us
            start_us = None
    if start_us is not None:
        yield status, start_us, seen_us
