"""Deletions: rows go at once; leftovers elsewhere are recorded first, so that they are removed even after a crash."""

from collections.abc import Sequence
from typing import Final, Literal

import sqlalchemy as sa

from service.clock import Micros
from service.store.rows import delete, exists, insert_new, update
from service.store.schema import (
    default_branches,
    deletions,
    deliveries,
    organizations,
    rate_limits,
    repositories,
    runs,
    tokens,
    turns,
)

Kind = Literal["organization", "run", "turn"]
"""The kind of deleted object; a `turn` has the id it had in the queue."""
BATCH: Final = 200
"""Runs deleted in one transaction, so that other writers do not wait long."""
_ADDRESSES: Final = sa.union(sa.select(repositories.c.url), sa.select(runs.c.url))


def begin_organization(connection: sa.Connection, organization_id: str, now: Micros) -> None:
    """Deactivate an organization, delete its tokens, and record that it is to be deleted."""
    update(connection, organizations, organizations.c.id == organization_id, active=False)
    delete(connection, tokens, organization_id=organization_id)
    _note(connection, "organization", [organization_id], now)


def delete_organization(connection: sa.Connection, organization_id: str, now: Micros) -> bool:
    """Delete the rows of one batch of an organization's runs, or, without runs, all others; return whether it did."""
    query = sa.select(runs.c.id).where(runs.c.organization_id == organization_id).limit(BATCH)
    if batch := list(connection.scalars(query)):
        delete_runs(connection, batch, now)
        return False
    connection.execute(sa.select(organizations.c.id).where(organizations.c.id == organization_id).with_for_update())
    if exists(connection, runs, organization_id=organization_id):
        # Accepted just before it was deactivated.
        return False
    # The database empties tables that have a foreign key; these two have none.
    delete(connection, rate_limits, organization_id=organization_id)
    delete(connection, tokens, organization_id=organization_id)
    delete(connection, organizations, id=organization_id)
    in_use = sa.select(_ADDRESSES.subquery().c.url)
    delete(connection, default_branches, default_branches.c.url.not_in(in_use))
    return True


def pending_organizations(connection: sa.Connection) -> list[str]:
    """Return the organizations whose deletion has begun but whose rows still exist."""
    begun = sa.select(deletions.c.id).where(deletions.c.kind == "organization")
    return list(connection.scalars(sa.select(organizations.c.id).where(organizations.c.id.in_(begun))))


def noted_deletions(connection: sa.Connection, kind: Kind) -> list[str]:
    """Return the deleted objects of a kind that may have left something behind."""
    return list(connection.scalars(sa.select(deletions.c.id).where(deletions.c.kind == kind)))


def addresses(connection: sa.Connection) -> set[str]:
    return set(connection.scalars(_ADDRESSES))


def forget_turns(connection: sa.Connection, names: Sequence[str]) -> None:
    delete(connection, deletions, deletions.c.id.in_(names), kind="turn")


def forget(connection: sa.Connection, before: int) -> None:
    """Forget the deletions before an instant (microseconds), except turns and organizations that still have rows."""
    old = (deletions.c.requested_at <= before, deletions.c.kind != "turn")
    delete(connection, deletions, *old, deletions.c.id.not_in(sa.select(organizations.c.id)))


def branches_of(connection: sa.Connection, organization_id: str, run_id: str | None = None) -> list[dict[str, str]]:
    """Return platform, path and branch of every branch that an organization's runs, or one of them, pushed."""
    columns = (runs.c.platform, runs.c.path, runs.c.branch)
    may_be_there = sa.or_(turns.c.pushing_sha.is_not(None), turns.c.commit_sha.is_not(None))
    pushed = sa.exists().where(turns.c.run_id == runs.c.id, may_be_there)
    query = sa.select(*columns).distinct().where(runs.c.organization_id == organization_id, pushed)
    query = query.where(runs.c.id == run_id) if run_id is not None else query.order_by(*columns)
    return [dict(row._mapping) for row in connection.execute(query)]


def delete_runs(connection: sa.Connection, run_ids: Sequence[str], now: Micros) -> None:
    query = sa.select(turns.c.run_id, turns.c.number).where(turns.c.run_id.in_(run_ids))
    _note(connection, "turn", [f"{run_id}:{number}" for run_id, number in connection.execute(query)], now)
    _note(connection, "run", run_ids, now)
    # Decisions on deliveries stay, so that a repeated delivery starts nothing.
    owners = sa.select(runs.c.organization_id).where(runs.c.id.in_(run_ids))
    started = (deliveries.c.organization_id.in_(owners), deliveries.c.run_id.in_(run_ids))
    update(connection, deliveries, *started, run_id=None)
    delete(connection, runs, runs.c.id.in_(run_ids))


def _note(connection: sa.Connection, kind: Kind, names: Sequence[str], now: Micros) -> None:
    for name in names:
        insert_new(connection, deletions, {"kind": kind, "id": name, "requested_at": now})
