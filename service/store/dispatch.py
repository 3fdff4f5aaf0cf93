"""Selects the waiting turns that are queued next: each free place goes to the organization that holds the fewest."""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa

from service.store.runs import OPEN
from service.store.schema import organizations, runs, turns
from service.store.turns import MADE_UP


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn that was accepted and is not yet in the queue."""

    run_id: str
    number: int
    organization_id: str


def next_turns(connection: sa.Connection, slots: int, share: int | None) -> list[WaitingTurn]:
    """Return the turns to queue now, so that no more than `slots` are under way.

    An organization gets at most `share` places; None: all but one if there are other organizations.
    """
    heads = connection.execute(_first_of_lanes(), {"most": slots}).all()
    if not heads:
        return []
    under_way = connection.execute(
        sa.select(runs.c.organization_id, runs.c.url, runs.c.branch)
        .join(turns, turns.c.run_id == runs.c.id)
        .where(turns.c.dispatched_at.is_not(None), turns.c.status.in_(OPEN))
        .where(turns.c.executor.is_distinct_from(MADE_UP))
    ).all()
    room = slots - len(under_way)
    if room <= 0:
        return []
    if share is None:
        alone = len(connection.execute(sa.select(organizations.c.id).where(organizations.c.active).limit(2)).all()) == 1
        share = slots if alone else max(1, slots - 1)
    taken = Counter(row.organization_id for row in under_way)
    # Turns on one branch of a repository, a lane, are executed one after the other.
    lanes = {(row.url, row.branch) for row in under_way}
    waiting: dict[str, deque[WaitingTurn]] = defaultdict(deque)
    for row in heads:
        if (row.url, row.branch) not in lanes:
            waiting[row.organization_id].append(WaitingTurn(row.run_id, row.number, row.organization_id))
    chosen: list[WaitingTurn] = []
    while len(chosen) < room:
        able = [owner for owner, queue in waiting.items() if queue and taken[owner] < share]
        if not able:
            break
        # Each place goes to the organization with the fewest, or of several such to the longest waiting.
        owner = min(able, key=lambda one: taken[one])
        taken[owner] += 1
        chosen.append(waiting[owner].popleft())
    return chosen


@cache
def _first_of_lanes() -> sa.Select[Any]:
    """The query for each lane's first waiting turn, oldest first, of each organization at most twice `most`.

    Built once, since it runs every second.
    """
    oldest = (turns.c.accepted_at, turns.c.run_id, turns.c.number)
    lanes = (
        sa.select(
            *(turns.c.run_id, turns.c.number, turns.c.accepted_at, runs.c.url, runs.c.branch, runs.c.organization_id),
            sa.func.row_number().over(partition_by=(runs.c.url, runs.c.branch), order_by=oldest).label("in_lane"),
        )
        .join(runs, runs.c.id == turns.c.run_id)
        .where(turns.c.dispatched_at.is_(None), turns.c.status == "queued")
        .subquery()
    )
    order = (lanes.c.accepted_at, lanes.c.run_id)
    rank = sa.func.row_number().over(partition_by=lanes.c.organization_id, order_by=order).label("of_owner")
    first = sa.select(lanes, rank).where(lanes.c.in_lane == 1).subquery()
    # Lanes with a turn under way have to wait; there are at most `most` of those, so twice as many are read.
    few = first.c.of_owner <= 2 * sa.bindparam("most", type_=sa.Integer)
    return sa.select(first).where(few).order_by(first.c.accepted_at, first.c.run_id)


@dataclass(frozen=True, slots=True)
class Share:
    """An organization's share of the queue and of the places."""

    organization: str
    """The organization's slug."""
    waiting: int
    """Accepted turns that have no place yet."""
    oldest: int | None
    """When the oldest of those was accepted."""
    at_work: int
    """Turns that hold a place."""


def shares(connection: sa.Connection) -> list[Share]:
    """Return the organizations that have open turns, the one whose turn waits longest first."""
    waiting = turns.c.dispatched_at.is_(None)
    oldest = sa.func.min(turns.c.accepted_at).filter(waiting)
    query = (
        sa.select(
            organizations.c.slug,
            sa.func.count().filter(waiting),
            oldest,
            sa.func.count().filter(sa.not_(waiting)),
        )
        .join(runs, runs.c.id == turns.c.run_id)
        .join(organizations, organizations.c.id == runs.c.organization_id)
        .where(turns.c.status.in_(OPEN), turns.c.executor.is_distinct_from(MADE_UP))
        .group_by(organizations.c.slug)
        .order_by(oldest.asc().nulls_last(), organizations.c.slug)
    )
    return [Share(*row) for row in connection.execute(query)]
