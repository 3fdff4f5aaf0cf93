"""Storing a batch of runs: staged, compared by SQL as a whole, then merged; no row is looked up from Python."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from storage.cache.run_sql import FINAL_SQL, search_text, took_us
from storage.database import immediate
from storage.records import Presence, Run, RunChanges, Transition
from storage.values import NO_TIME_US, from_us, sqlite_text, to_sortable_us, to_us

_STAGING: Final = """
CREATE TEMP TABLE IF NOT EXISTS staging (
    seq INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    status TEXT NOT NULL,
    branch TEXT NOT NULL,
    repository TEXT NOT NULL,
    platform TEXT NOT NULL,
    data_json TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    raw_json TEXT NOT NULL,
    search TEXT NOT NULL,
    id INTEGER,
    old_status TEXT,
    newer INTEGER NOT NULL DEFAULT 0,
    was_away INTEGER NOT NULL DEFAULT 0,
    is_stale INTEGER NOT NULL DEFAULT 0
)
"""
"""`at_us`: when the run got its status. `newer`: it differs from what is held, and was asked for later. `was_away`:
presence was not `current`. `is_stale`: a later answer is held. A run not held before has no `old_status`."""

_CLOCK_SET_BACK: Final = timedelta(minutes=5)
"""An answer from further in the future was stored before our clock was set back: any answer is newer."""

# An answer that was asked for later wins, whatever its times say: a service's `updated_at` may go back.
_COMPARE: Final = f"""
UPDATE staging SET
    id = r.id,
    old_status = r.status,
    is_stale = :asked_us < r.last_seen_us AND r.last_seen_us <= :unbelievable_us,
    was_away = r.presence <> 'current',
    newer = (:asked_us >= r.last_seen_us OR r.last_seen_us > :unbelievable_us)
        AND ((staging.status, staging.branch, staging.repository, staging.raw_json)
                IS NOT (r.status, r.branch, r.repository, b.raw_json)
            OR staging.created_us NOT IN (r.created_us, {NO_TIME_US})
            OR staging.updated_us NOT IN (r.updated_us, {NO_TIME_US}))
FROM runs AS r JOIN run_bodies AS b ON b.id = r.id
WHERE r.run_id = staging.run_id
"""

_ADD: Final = f"""
INSERT INTO runs (id, run_id, status, branch, repository, created_us, updated_us, first_seen_us, last_seen_us,
                  presence, first_status, first_at_us, active_since_us, took_us, search)
SELECT id, run_id, status, branch, repository, created_us, updated_us, :asked_us, :asked_us,
       'current', status, at_us, CASE created_us WHEN :no_time THEN :asked_us ELSE created_us END,
       {took_us("status", "created_us", "updated_us")}, search
FROM staging WHERE old_status IS NULL
"""

_NOTE_TRANSITIONS: Final = """
INSERT INTO transitions (run, old, new, at_us)
SELECT id, old_status, status, at_us FROM staging WHERE newer AND old_status <> status ORDER BY at_us, seq
"""

_CREATED: Final = "CASE s.created_us WHEN :no_time THEN runs.created_us ELSE s.created_us END"
_UPDATED: Final = "CASE s.updated_us WHEN :no_time THEN runs.updated_us ELSE s.updated_us END"

_CHANGE: Final = f"""
UPDATE runs SET
    status = s.status,
    branch = s.branch,
    repository = s.repository,
    created_us = {_CREATED},
    updated_us = {_UPDATED},
    took_us = {took_us("s.status", f"({_CREATED})", f"({_UPDATED})")},
    active_since_us = CASE WHEN s.old_status IN ({FINAL_SQL}) AND s.status NOT IN ({FINAL_SQL})
        THEN s.at_us ELSE runs.active_since_us END,
    search = s.search
FROM staging AS s WHERE s.newer AND runs.id = s.id
"""

_KEEP_BODIES: Final = """
INSERT INTO run_bodies (id, platform, data_json, raw_json)
SELECT id, platform, data_json, raw_json FROM staging WHERE newer OR old_status IS NULL
ON CONFLICT (id) DO UPDATE
SET platform = excluded.platform, data_json = excluded.data_json, raw_json = excluded.raw_json
"""

_SEE: Final = """
UPDATE runs SET last_seen_us = :asked_us, presence = 'current'
FROM staging AS s WHERE s.old_status IS NOT NULL AND NOT s.is_stale AND runs.id = s.id
"""

_COUNT_STATUSES: Final = """
INSERT INTO statuses (status, runs)
SELECT status, sum(more) FROM (
    SELECT status, 1 AS more FROM staging WHERE newer OR old_status IS NULL
    UNION ALL SELECT old_status, -1 FROM staging WHERE newer
) WHERE true GROUP BY status
ON CONFLICT (status) DO UPDATE SET runs = runs + excluded.runs
"""

_NOTE_REPOSITORIES: Final = """
INSERT INTO repositories (label, newest_us)
SELECT repository, max(created_us) FROM staging WHERE newer OR old_status IS NULL GROUP BY repository
ON CONFLICT (label) DO UPDATE SET newest_us = excluded.newest_us WHERE excluded.newest_us > newest_us
"""


def store(connection: sqlite3.Connection, runs: Sequence[Run], asked_at: datetime) -> RunChanges:
    """Store the runs of an answer in one transaction; what they changed.

    The answer that was asked for last wins: an older one changes nothing, and confirms nothing. Of duplicates in the
    batch the one updated last wins. Every other run in the batch counts as current, and as seen when it was asked for.
    """
    if not runs:
        return RunChanges()
    asked_us = to_us(asked_at)
    connection.execute(_STAGING)
    with immediate(connection):
        connection.execute("DELETE FROM staging")
        _stage(connection, _newest(runs), asked_us)
        _merge(connection, asked_us)
        changes = _changes(connection)
        connection.execute("DELETE FROM staging")
    return changes


def set_presence(connection: sqlite3.Connection, run_ids: Sequence[str], presence: Presence) -> int:
    """Record whether the service still shows these runs; how many this changed."""
    with immediate(connection):
        changed = connection.executemany(
            "UPDATE runs SET presence = :presence WHERE run_id = :run_id AND presence <> :presence",
            [{"presence": presence, "run_id": sqlite_text(run_id)} for run_id in run_ids],
        )
    return max(0, changed.rowcount)


def _newest(runs: Sequence[Run]) -> Collection[Run]:
    """Each run once: pages that shift while they are walked repeat runs."""
    newest: dict[str, Run] = {}
    for run in runs:
        other = newest.get(run.run_id)
        if other is None or to_sortable_us(run.updated_at) >= to_sortable_us(other.updated_at):
            newest[run.run_id] = run
    return newest.values()


def _stage(connection: sqlite3.Connection, runs: Collection[Run], asked_us: int) -> None:
    # A batch names few repositories many times, and each label is read out of JSON.
    labels = {repository: sqlite_text(repository.label) for repository in {run.repository for run in runs}}
    connection.executemany(
        "INSERT INTO staging (run_id, status, branch, repository, platform, data_json, created_us, updated_us, at_us,"
        " raw_json, search) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_staged(run, labels[run.repository], asked_us) for run in runs),
    )


def _staged(run: Run, label: str, asked_us: int) -> tuple[str | int, ...]:
    run_id, branch = sqlite_text(run.run_id), sqlite_text(run.branch_name)
    updated_us = to_sortable_us(run.updated_at)
    return (
        run_id,
        sqlite_text(run.status),
        branch,
        label,
        sqlite_text(run.repository.platform),
        sqlite_text(run.repository.data_json),
        to_sortable_us(run.created_at),
        updated_us,
        asked_us if updated_us == NO_TIME_US else updated_us,
        sqlite_text(run.raw_json),
        search_text(run_id, label, branch),
    )


def _merge(connection: sqlite3.Connection, asked_us: int) -> None:
    bound = {"asked_us": asked_us, "no_time": NO_TIME_US}
    unbelievable_us = asked_us + _CLOCK_SET_BACK // timedelta(microseconds=1)
    connection.execute(_COMPARE, {"asked_us": asked_us, "unbelievable_us": unbelievable_us})
    (last_id,) = connection.execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
    connection.execute("UPDATE staging SET id = ? + seq WHERE id IS NULL", (last_id,))
    connection.execute(_NOTE_TRANSITIONS)
    connection.execute(_CHANGE, bound)
    connection.execute(_SEE, bound)
    connection.execute(_ADD, bound)
    connection.execute(_KEEP_BODIES)
    connection.execute(_COUNT_STATUSES)
    connection.execute(_NOTE_REPOSITORIES)


def _changes(connection: sqlite3.Connection) -> RunChanges:
    new = connection.execute("SELECT run_id FROM staging WHERE old_status IS NULL ORDER BY seq").fetchall()
    moved = connection.execute(
        "SELECT run_id, old_status, status, at_us FROM staging WHERE newer AND old_status <> status ORDER BY at_us, seq"
    ).fetchall()
    updated = connection.execute(
        "SELECT run_id FROM staging WHERE (newer AND old_status = status)"
        " OR (was_away AND NOT is_stale AND NOT (newer AND old_status <> status)) ORDER BY seq"
    ).fetchall()
    return RunChanges(
        new=tuple(run_id for (run_id,) in new),
        transitions=tuple(Transition(run_id, old, status, from_us(at_us)) for run_id, old, status, at_us in moved),
        updated=tuple(run_id for (run_id,) in updated),
    )
