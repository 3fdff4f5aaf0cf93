"""Runs in full: bodies as received, and observations."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, cast

from storage.cache.run_sql import Where, both, order_by, where
from storage.cache.statuses import final_statuses
from storage.cache.turns import took
from storage.database import snapshot
from storage.records import Presence, Repository, Run, RunDetail, RunFilter, RunSort, StatusTransition
from storage.values import from_us, from_us_or_none, sqlite_text, to_sortable_us, to_us

_CHUNK: Final = 500
"""Ids bound to one statement."""

_RUN: Final = "r.run_id, r.status, r.branch, b.platform, b.data_json, r.created_us, r.updated_us, b.raw_json"

_RunValues = tuple[str, str, str, str, str, int, int, str]


def runs(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int | None, after: Run | None = None
) -> tuple[Run, ...]:
    """The newest `limit` runs, or those that come after one of them; no limit: all."""
    condition, order = where(wanted), order_by(RunSort())
    if after is not None:
        key = (to_sortable_us(after.created_at), sqlite_text(after.run_id))
        condition = both(condition, Where("(created_us, run_id) < (?, ?)", key))
    found = connection.execute(
        f"SELECT {_RUN} FROM (SELECT id AS run FROM runs WHERE {condition.sql} ORDER BY {order} LIMIT ?) AS w"
        f" CROSS JOIN runs AS r ON r.id = w.run CROSS JOIN run_bodies AS b ON b.id = w.run ORDER BY {order}",
        (*condition.parameters, -1 if limit is None else max(0, limit)),
    )
    return tuple(_run(values) for values in found.fetchall())


def active_runs(connection: sqlite3.Connection) -> tuple[Run, ...]:
    """Runs whose status is neither known nor learnt to be final, but for those the service has lost; newest first."""
    condition = where(RunFilter(active=True))
    found = connection.execute(
        f"SELECT {_RUN} FROM runs AS r JOIN run_bodies AS b ON b.id = r.id"
        f" WHERE {condition.sql} AND presence <> 'lost' ORDER BY {order_by(RunSort())}",
        condition.parameters,
    )
    return tuple(_run(values) for values in found.fetchall())


def unseen(
    connection: sqlite3.Connection, since: datetime | None, until: datetime | None, seen_before: datetime, limit: int
) -> tuple[Run, ...]:
    """Runs created in this time, both ends included, last shown by the service before `seen_before`; newest first."""
    condition = where(RunFilter(since=since, until=until))
    found = connection.execute(
        f"SELECT {_RUN} FROM runs AS r JOIN run_bodies AS b ON b.id = r.id JOIN sightings AS s ON s.id = r.id"
        f" WHERE {condition.sql} AND presence <> 'lost' AND s.asked_us < ? ORDER BY {order_by(RunSort())} LIMIT ?",
        (*condition.parameters, to_us(seen_before), limit),
    )
    return tuple(_run(values) for values in found.fetchall())


def details(connection: sqlite3.Connection, run_ids: Sequence[str]) -> dict[str, RunDetail]:
    """All data of these runs, by id; unknown ones are left out."""
    with snapshot(connection):
        return {
            detail.run.run_id: detail
            for start in range(0, len(run_ids), _CHUNK)
            for detail in _details(connection, run_ids[start : start + _CHUNK])
        }


def _details(connection: sqlite3.Connection, run_ids: Sequence[str]) -> Iterator[RunDetail]:
    marks = ", ".join("?" * len(run_ids))
    ids = [sqlite_text(run_id) for run_id in run_ids]
    observed = connection.execute(
        "SELECT r.run_id, t.old, t.new, t.at_us FROM runs AS r JOIN transitions AS t ON t.run = r.id"
        f" WHERE r.run_id IN ({marks}) ORDER BY t.id",
        ids,
    )
    later: defaultdict[str, list[StatusTransition]] = defaultdict(list)
    for run_id, old, new, at_us in observed.fetchall():
        later[run_id].append(StatusTransition(run_id, old, new, from_us(at_us)))
    found = connection.execute(
        f"SELECT {_RUN}, r.first_seen_us, s.asked_us, r.presence, r.first_status, r.first_at_us, r.took_us"
        " FROM runs AS r JOIN run_bodies AS b ON b.id = r.id JOIN sightings AS s ON s.id = r.id"
        f" WHERE r.run_id IN ({marks}) ORDER BY r.run_id",
        ids,
    )
    finals = final_statuses(connection)
    for *values, first_seen_us, last_seen_us, presence, first_status, first_at_us, took_us in found.fetchall():
        run = _run(cast("_RunValues", values))
        first = StatusTransition(run.run_id, None, first_status, from_us(first_at_us))
        yield RunDetail(
            run=run,
            first_seen_at=from_us(first_seen_us),
            last_seen_at=from_us(last_seen_us),
            presence=cast("Presence", presence),
            transitions=(first, *later[run.run_id]),
            took=took(took_us),
            final_statuses=finals,
        )


def _run(values: _RunValues) -> Run:
    run_id, status, branch, platform, data_json, created_us, updated_us, raw_json = values
    return Run(
        run_id=run_id,
        status=status,
        branch_name=branch,
        repository=Repository(platform, data_json),
        created_at=from_us_or_none(created_us),
        updated_at=from_us_or_none(updated_us),
        raw_json=raw_json,
    )
