"""Which waiting turns are queued next: organizations take turns at the places, however early or much each asked."""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from service.store.runs import OPEN
from service.store.schema import organizations, runs, turns

MADE_UP: Final = "lab"
"""Who works on turns that the lab made up: they hold no place."""


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn that was accepted and is not yet in the queue."""

    run_id: str
    number: int
    url: str
    branch: str
    organization_id: str

    @property
    def lane(self) -> tuple[str, str]:
        """Turns in one lane follow one another."""
        return self.url, self.branch


def next_turns(connection: sa.Connection, places: int, share: int | None) -> list[WaitingTurn]:
    """Return the turns to queue now, so that no more than `places` are under way.

    An organization has at most `share` of them; None: all but one, where there are others that could want it.
    """
    heads = _heads(connection, places)
    if not heads:
        return []
    under_way = connection.execute(
        sa.select(runs.c.organization_id, runs.c.url, runs.c.branch)
        .join(turns, turns.c.run_id == runs.c.id)
        .where(turns.c.dispatched_at.is_not(None), turns.c.status.in_(OPEN))
        .where(turns.c.executor.is_distinct_from(MADE_UP))
    ).all()
    room = places - len(under_way)
    if room <= 0:
        return []
    if share is None:
        alone = len(connection.execute(sa.select(organizations.c.id).where(organizations.c.active).limit(2)).all()) == 1
        share = places if alone else max(1, places - 1)
    taken = Counter(row.organization_id for row in under_way)
    return _in_turn(heads, room, share, taken, {(row.url, row.branch) for row in under_way})


@cache
def _first_of_lanes() -> sa.Select[Any]:
    """Each lane's first waiting turn, oldest first; made once, as it is asked for once a second."""
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
    # Some of them may be behind a turn that is under way: as many more are read as there can be of those.
    few = first.c.of_owner <= 2 * sa.bindparam("most", type_=sa.Integer)
    return sa.select(first).where(few).order_by(first.c.accepted_at, first.c.run_id)


def _heads(connection: sa.Connection, most: int) -> list[WaitingTurn]:
    """Return the first waiting turn of each lane, at most so many of an organization, oldest first."""
    return [
        WaitingTurn(row.run_id, row.number, row.url, row.branch, row.organization_id)
        for row in connection.execute(_first_of_lanes(), {"most": most})
    ]


def _in_turn(
    heads: list[WaitingTurn], room: int, share: int, taken: Counter[str], lanes: set[tuple[str, str]]
) -> list[WaitingTurn]:
    """Give each free place to the organization that has the fewest; among equals to the one that waits longest."""
    waiting: dict[str, deque[WaitingTurn]] = defaultdict(deque)
    for turn in heads:
        if turn.lane not in lanes:
            waiting[turn.organization_id].append(turn)
    chosen: list[WaitingTurn] = []
    while len(chosen) < room:
        able = [owner for owner, queue in waiting.items() if queue and taken[owner] < share]
        if not able:
            break
        owner = min(able, key=lambda one: taken[one])
        taken[owner] += 1
        chosen.append(waiting[owner].popleft())
    return chosen
