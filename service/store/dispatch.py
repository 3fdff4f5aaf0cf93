"""Selects the waiting turns to queue next, so that every organization gets its share of the slots.

Why an open turn waits is computed when someone asks: nothing of it is stored.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from service.clock import Clock, Micros
from service.settings import ExecutionSettings
from service.store import turns as turn_store
from service.store import workers
from service.store.outages import ProviderOutages, clock_time
from service.store.runs import OPEN, Run
from service.store.schema import (
    TURN_AGENT,
    WAITING,
    events,
    invitations,
    organizations,
    postings,
    runs,
    schedules,
    turns,
)
from service.store.turns import MADE_UP, SLOTTED, Turn
from service.text import plural

_MAX_DUE: Final = 100
_NOW: Final[sa.BindParameter[int]] = sa.bindparam("now")
_LANE: Final = (runs.c.url, runs.c.branch)
_NEXT_OF_OWNER: Final = (
    sa.select(turns.c.run_id, turns.c.number, turns.c.attempt, turns.c.organization_id, *_LANE)
    .add_columns(TURN_AGENT, runs.c.is_restricted)
    .join(runs, runs.c.id == turns.c.run_id)
    .where(WAITING, turns.c.organization_id == sa.bindparam("owner"))
    .where(turns.c.due_at.is_(None) | (turns.c.due_at <= _NOW))
    .where(TURN_AGENT.element.not_in(sa.bindparam("held", expanding=True)) | runs.c.is_restricted.is_(True))
    .where(sa.tuple_(*_LANE).not_in(sa.bindparam("lanes", expanding=True)))
    .order_by(turns.c.accepted_at, turns.c.run_id)
    .limit(1)
)
"""The oldest due turn of `owner` that is on none of the `lanes` and whose agent is not `held`."""
_DUE: Final = {
    "mail": sa.select(invitations.c.id, invitations.c.due_at.label("at")).where(
        invitations.c.mail == "waiting", invitations.c.due_at <= _NOW
    ),
    "post": sa.select(postings.c.run_id, sa.func.min(postings.c.wanted_at).label("at"))
    .where(postings.c.state == "waiting", postings.c.due_at <= _NOW)
    .group_by(postings.c.run_id),
    "schedule": sa.select(
        schedules.c.repository_id + "/" + sa.cast(schedules.c.index, sa.Text), schedules.c.due_at.label("at")
    ).where(schedules.c.due_at <= _NOW),
    # In random order, so that no endpoint waits behind slow ones.
    "webhook": sa.select(events.c.endpoint_id, sa.func.random().label("at"))
    .where(events.c.state == "waiting", events.c.due_at <= _NOW)
    .group_by(events.c.endpoint_id),
}
"""The queries for due jobs, by kind: the key of each, and its place in the order."""
_DUE_JOBS: Final = sa.union_all(
    *(
        sa.select(sa.literal(kind), *query.order_by(sa.text("at")).limit(_MAX_DUE).subquery().c)
        for kind, query in _DUE.items()
    )
).order_by(sa.text("1, 3"))
"""All of them; the kinds are named so that they sort in the order of their turn."""


class NextTurn(NamedTuple):
    """A waiting turn that is to be queued."""

    run_id: str
    number: int
    attempt: int
    organization_id: str


def next_turns(connection: sa.Connection, slots: int, share: int | None, now: Micros) -> list[NextTurn]:
    """Return the turns to queue, so that `slots` are under way.

    A free slot goes to the organization using the fewest slots; ties go to the one served least recently. An
    organization gets at most `share` slots; None means all but one if there are other organizations. While a model
    provider is down, only one turn at a time that needs it is under way.
    """
    under_way = _under_way(connection)
    room = slots - len(under_way)
    if room <= 0:
        return []
    able = [row.id for row in connection.execute(_owners_by_last_slot())]
    if not able:
        return []
    share = share_of(connection, slots, share)
    taken = Counter(row.organization_id for row in under_way)
    # Turns on the same branch of a repository (a lane) are executed one after the other.
    lanes = {(row.url, row.branch) for row in under_way}
    outages = ProviderOutages(connection)
    probed = {outages.of(row.organization_id, row.agent) for row in under_way} - {None}
    chosen: list[NextTurn] = []
    while len(chosen) < room and (able := [owner for owner in able if taken[owner] < share]):
        owner = min(able, key=taken.__getitem__)
        able.remove(owner)
        values = {"owner": owner, "lanes": [*lanes], "held": outages.waiting_agents(owner, probed, now), "now": now}
        row = connection.execute(_NEXT_OF_OWNER, values).first()
        if row is not None:
            chosen.append(NextTurn(row.run_id, row.number, row.attempt, owner))
            if not row.is_restricted:
                probed |= {outages.of(owner, row.agent)} - {None}
            taken[owner] += 1
            lanes.add((row.url, row.branch))
            # This organization is now the one served most recently.
            able.append(owner)
    return chosen


def _under_way(connection: sa.Connection) -> Sequence[Any]:
    columns = (runs.c.id, runs.c.organization_id, runs.c.url, runs.c.branch, TURN_AGENT, organizations.c.slug)
    query = sa.select(*columns).select_from(turns.join(runs).join(organizations))
    return connection.execute(query.where(SLOTTED)).all()


def due_jobs(connection: sa.Connection, now: Micros) -> list[str]:
    """Return the names (`KIND:KEY`) of due jobs, at most 100 of a kind: mails, then postings, schedules and events."""
    return [f"{kind}:{key}" for kind, key, _ in connection.execute(_DUE_JOBS, {"now": now})]


def share_of(connection: sa.Connection, slots: int, configured: int | None) -> int:
    if configured is not None:
        return configured
    alone = len(connection.execute(sa.select(organizations.c.id).where(organizations.c.active).limit(2)).all()) == 1
    return slots if alone else max(1, slots - 1)


@cache
def _owners_by_last_slot() -> sa.Select[Any]:
    """The query for the organizations with a waiting turn, the one served least recently first.

    It jumps through the index from one organization to the next without reading all their waiting turns. Built once,
    like the other query, since both run every second.
    """
    owners = sa.select(_least(turns.c.organization_id).label("id")).cte("owners", recursive=True)
    following = _least(turns.c.organization_id, turns.c.organization_id > owners.c.id)
    owners = owners.union_all(sa.select(following).where(owners.c.id.is_not(None)))
    is_its_own = turns.c.organization_id == owners.c.id
    had_slot = (turns.c.dispatched_at.is_not(None), is_its_own)
    last = sa.select(sa.func.max(turns.c.dispatched_at)).where(*had_slot).scalar_subquery()
    oldest = _least(turns.c.accepted_at, is_its_own)
    return sa.select(owners.c.id).where(owners.c.id.is_not(None)).order_by(last.asc().nulls_first(), oldest)


def _least(column: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
    # Not min(): for it, PostgreSQL reads all rows of a table that has no statistics yet.
    return sa.select(column).where(WAITING, *conditions).order_by(column).limit(1).scalar_subquery()


@dataclass(frozen=True, slots=True)
class Share:
    """An organization's share of the queue and of the slots."""

    organization: str
    """The organization's slug."""
    waiting: int
    oldest: int | None
    """When the oldest of those was accepted."""
    at_work: int


def shares(connection: sa.Connection) -> list[Share]:
    """Return the organizations that have open turns, the longest waiting first."""
    waiting = turns.c.dispatched_at.is_(None)
    number = sa.func.count()
    oldest = sa.func.min(turns.c.accepted_at).filter(waiting)
    query = (
        sa.select(organizations.c.slug, number.filter(waiting), oldest, number.filter(sa.not_(waiting)))
        .select_from(turns.join(runs).join(organizations))
        .where(turns.c.status.in_(OPEN), turns.c.executor.is_distinct_from(MADE_UP))
        .group_by(organizations.c.slug)
        .order_by(oldest.asc().nulls_last(), organizations.c.slug)
    )
    return [Share(*row) for row in connection.execute(query)]


def explain_turns(
    connection: sa.Connection, run: Run, settings: ExecutionSettings, clock: Clock, *, for_operator: bool = False
) -> list[Turn]:
    """Return a run's turns, oldest first; an open turn that waits has the reason in `failure`.

    Only the operator is shown which other organizations take the slots.
    """
    *earlier, last = turn_store.of(connection, run.id)
    if last.finished_at is None and last.failure is None:
        last = replace(last, failure=_reason(connection, run, last, settings, clock, for_operator=for_operator))
    return [*earlier, last]


def _reason(
    connection: sa.Connection, run: Run, turn: Turn, settings: ExecutionSettings, clock: Clock, *, for_operator: bool
) -> str | None:
    if not run.is_restricted:
        outage = ProviderOutages(connection).of(run.organization_id, turn.agent or run.agent)
        if outage is not None:
            # An active turn may not have sent it a request.
            at_work = f"{outage.shown} has not answered since {clock_time(outage.since)}"
            return outage.text if turn.status == "queued" else at_work
    if turn.status != "queued" or turn.executor == MADE_UP:
        return None
    under_way = _under_way(connection)
    if any(row.id == run.id for row in under_way):
        return None
    living = workers.heard_within(connection, settings.worker_ttl_s, clock)
    slots = sum(worker.concurrency for worker in living)
    pauses = workers.pauses(connection)
    if pauses.maintenance is not None:
        return f"maintenance: {pauses.maintenance}"
    if not living:
        return "no worker is running" + ("; start one: runwarden service worker" if for_operator else "")
    if not slots:
        if all(pauses.holds(worker) for worker in living):
            return "every worker is drained" + ("; start one: runwarden service worker" if for_operator else "")
        is_boxless = any(worker.has_no_sandbox for worker in living)
        if is_boxless:
            return "no worker has a sandbox"
        return "the disk of every worker is nearly full"
    lane = next((row for row in under_way if (row.url, row.branch) == (run.url, run.branch)), None)
    if lane is not None:
        other = "another run"
        if for_operator or lane.organization_id == run.organization_id:
            other = lane.id
        return f"{other} is at work on the branch {run.branch}"
    takers = Counter(row.slug for row in under_way)
    own_slots = sum(row.organization_id == run.organization_id for row in under_way)
    if len(under_way) >= slots:
        shares = ", ".join(f"{count} by {slug}" for slug, count in takers.most_common())
        shares = shares if for_operator else f"{own_slots} by this organization"
        return f"{'the only slot is' if slots == 1 else f'all {slots} slots are'} taken: {shares}"
    share = share_of(connection, slots, settings.organization_slots)
    if own_slots >= share:
        return f"the organization may use {plural(share, 'slot')} at a time, which other runs of it take"
    this = turns.alias()
    accepted = sa.select(this.c.accepted_at).where(this.c.run_id == turn.run_id, this.c.number == turn.number)
    mine_waiting = (WAITING, turns.c.organization_id == run.organization_id)
    earlier = sa.select(sa.func.count()).where(*mine_waiting, turns.c.accepted_at < accepted.scalar_subquery())
    count = connection.execute(earlier).scalar_one()
    verb = "waits" if count == 1 else "wait"
    if count:
        return f"{plural(count, 'earlier turn')} of the organization {verb}"
    return None
