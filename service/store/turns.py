"""Turns: a run's instructions one by one, each executed to exactly one end, with its log and diff."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from service.store import doorbell
from service.store import runs as run_store
from service.store.database import insert_new
from service.store.schema import columns_of, runs, turn_files, turns

LARGEST_FILE: Final = 16 << 20
"""What is kept of one file; a larger diff can still be had from the repository, by its commit."""

CANCELLED: Final = "cancelled"
"""How the failure of a turn begins that a caller or an operator ended."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a run."""

    run_id: str
    number: int
    status: str
    instructions: str
    inputs: dict[str, Any]
    attempt: int
    """How often a worker took it up: the fence against a worker that wakes up late."""
    finished_at: int | None
    commit_sha: str | None
    summary: str | None
    failure: str | None
    trace_parent: str | None
    """The span of the request that queued it (W3C traceparent); None: it was not traced."""


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How a turn ended."""

    status: str
    commit_sha: str | None = None
    summary: str | None = None
    failure: str | None = None
    attempt: int | None = None
    """The attempt that ended; None ends the turn whichever attempt is current."""


def mark_dispatched(connection: sa.Connection, dispatched: Sequence[tuple[str, int]], now: int) -> None:
    """Record that the queue has the turns, each a run's id with the turn's number."""
    statement = sa.update(turns).where(turns.c.run_id == sa.bindparam("of"), turns.c.number == sa.bindparam("nth"))
    rows = [{"of": run_id, "nth": number} for run_id, number in dispatched]
    connection.execute(statement.values(dispatched_at=now), rows)


def claim(connection: sa.Connection, run_id: str, number: int, executor: str, now: int) -> Turn | None:
    """Claim a turn: status working, attempt incremented; None when it has already ended."""
    changed = connection.execute(
        sa.update(turns)
        .where(*_is(run_id, number), turns.c.status.notin_(run_store.FINAL))
        .values(
            status="working",
            attempt=turns.c.attempt + 1,
            executor=executor,
            started_at=sa.func.coalesce(turns.c.started_at, now),
        )
    )
    if changed.rowcount == 0:
        return None
    run_store.set_status(connection, run_id, "working", now)
    return by_number(connection, run_id, number)


def holds(connection: sa.Connection, turn: Turn) -> bool:
    """Whether this attempt is still the latest of an open turn: asked before anything leaves the machine."""
    of_open = sa.select(turns.c.attempt).where(*_is(turn.run_id, turn.number), turns.c.status.notin_(run_store.FINAL))
    return connection.execute(of_open).scalar() == turn.attempt


def end(connection: sa.Connection, run_id: str, number: int, outcome: TurnOutcome, now: int) -> bool:
    """Record how a turn ended; False when it had already ended, or another attempt has taken over."""
    held = sa.true() if outcome.attempt is None else turns.c.attempt == outcome.attempt
    changed = connection.execute(
        sa.update(turns)
        .where(*_is(run_id, number), held, turns.c.status.notin_(run_store.FINAL))
        .values(
            status=outcome.status,
            finished_at=now,
            commit_sha=outcome.commit_sha,
            summary=outcome.summary,
            failure=outcome.failure,
        )
    )
    if changed.rowcount:
        run_store.set_status(connection, run_id, outcome.status, now)
        doorbell.ring(connection)
    return changed.rowcount > 0


def cancel(connection: sa.Connection, run_id: str, reason: str, now: int) -> bool:
    """End a run's open turn as failed, wherever it is; False when it had none. What works on it is interrupted."""
    query = sa.select(turns.c.number).where(turns.c.run_id == run_id, turns.c.status.notin_(run_store.FINAL))
    number = connection.execute(query).scalar()
    return number is not None and end(connection, run_id, number, TurnOutcome("failed", failure=reason), now)


def cancel_all(connection: sa.Connection, organization_id: str, reason: str, now: int) -> int:
    """End every open turn of an organization as failed; return how many there were."""
    mine = sa.select(runs.c.id).where(runs.c.organization_id == organization_id)
    query = sa.select(turns.c.run_id).where(turns.c.run_id.in_(mine), turns.c.status.notin_(run_store.FINAL))
    return sum(cancel(connection, run_id, reason, now) for run_id in connection.execute(query).scalars().all())


def ended_among(connection: sa.Connection, keys: Sequence[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Return those of some turns, each a run's id with the turn's number, that have ended or were deleted."""
    key = sa.tuple_(turns.c.run_id, turns.c.number)
    query = sa.select(turns.c.run_id, turns.c.number).where(key.in_(keys), turns.c.status.notin_(run_store.FINAL))
    return frozenset(keys) - {(row[0], row[1]) for row in connection.execute(query)}


def unfinished(connection: sa.Connection) -> list[tuple[str, int]]:
    """Return the turns that the queue has and that have not ended."""
    query = sa.select(turns.c.run_id, turns.c.number).where(
        turns.c.status.in_(run_store.OPEN), turns.c.dispatched_at.is_not(None)
    )
    return [(row[0], row[1]) for row in connection.execute(query)]


def open_runs(connection: sa.Connection) -> frozenset[str]:
    """Return the runs with a turn that has not ended."""
    query = sa.select(turns.c.run_id).where(turns.c.status.in_(run_store.OPEN))
    return frozenset(connection.execute(query).scalars())


def open_among(connection: sa.Connection, run_ids: Sequence[str]) -> frozenset[str]:
    """Return those of some runs that have a turn which has not ended."""
    query = sa.select(turns.c.run_id).where(turns.c.run_id.in_(run_ids), turns.c.status.in_(run_store.OPEN))
    return frozenset(connection.execute(query).scalars())


def by_number(connection: sa.Connection, run_id: str, number: int) -> Turn | None:
    """Return one turn of a run."""
    row = connection.execute(sa.select(*columns_of(turns, Turn)).where(*_is(run_id, number))).first()
    return None if row is None else Turn(*row)


def of(connection: sa.Connection, run_id: str) -> list[Turn]:
    """Return a run's turns, oldest first: its conversation."""
    rows = connection.execute(
        sa.select(*columns_of(turns, Turn)).where(turns.c.run_id == run_id).order_by(turns.c.number)
    )
    return [Turn(*row) for row in rows]


def _is(run_id: str, number: int) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return turns.c.run_id == run_id, turns.c.number == number


def put_file(connection: sa.Connection, run_id: str, number: int, kind: str, file: Path) -> None:
    """Keep a file, in place of the one kept before; none of a run that was deleted."""
    there = sa.select(runs.c.id).where(runs.c.id == run_id).with_for_update(read=True, key_share=True)
    if connection.execute(there).first() is None:
        return
    with file.open("rb") as source:
        content = zlib.compress(source.read(LARGEST_FILE))
    values = {"run_id": run_id, "number": number, "kind": kind, "content": content}
    # A worker that wakes up late may keep its own at the same moment.
    if not insert_new(connection, turn_files, values):
        connection.execute(sa.update(turn_files).where(*_is_file(run_id, number, kind)).values(content=content))


def file_text(connection: sa.Connection, run_id: str, number: int, kind: str) -> str | None:
    """Return a kept file as text; None when there is none."""
    query = sa.select(turn_files.c.content).where(*_is_file(run_id, number, kind))
    content = connection.execute(query).scalar()
    return None if content is None else zlib.decompress(content).decode("utf-8", "replace")


def count_ended_files(connection: sa.Connection, before: int) -> int:
    """Return how many files are kept of turns that ended before an instant (microseconds), open runs left out."""
    return connection.execute(sa.select(sa.func.count()).select_from(_ended_files(before).subquery())).scalar_one()


def remove_ended_files(connection: sa.Connection, before: int, limit: int) -> int:
    """Remove up to `limit` files of turns that ended before an instant; return how many."""
    key = sa.tuple_(turn_files.c.run_id, turn_files.c.number, turn_files.c.kind)
    return connection.execute(sa.delete(turn_files).where(key.in_(_ended_files(before).limit(limit)))).rowcount


def _ended_files(before: int) -> sa.Select[tuple[str, int, str]]:
    still_open = sa.select(turns.c.run_id).where(turns.c.status.in_(run_store.OPEN))
    return (
        sa.select(turn_files.c.run_id, turn_files.c.number, turn_files.c.kind)
        .join(turns, sa.and_(turns.c.run_id == turn_files.c.run_id, turns.c.number == turn_files.c.number))
        .where(turns.c.finished_at < before, turn_files.c.run_id.not_in(still_open))
    )


def _is_file(run_id: str, number: int, kind: str) -> tuple[sa.ColumnElement[bool], ...]:
    return turn_files.c.run_id == run_id, turn_files.c.number == number, turn_files.c.kind == kind
