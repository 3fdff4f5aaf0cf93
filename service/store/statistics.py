"""What there is at this moment, counted for operators: the queue, the places, and the mails."""

import time
from dataclasses import dataclass

import sqlalchemy as sa

from service.store.dispatch import MADE_UP
from service.store.runs import OPEN
from service.store.schema import organizations, runs, turns
from service.store.turns import CANCELLED


@dataclass(frozen=True, slots=True)
class Share:
    """What one organization has of the queue and of the places."""

    organization: str
    """Its slug."""
    waiting: int
    """Accepted turns that have no place yet."""
    oldest: int | None
    """When the first of those was accepted."""
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


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """A turn that ended; instants in microseconds."""

    run_id: str
    number: int
    outcome: str
    """`completed`, `failed`, or `cancelled`."""
    accepted_at: int
    started_at: int | None
    """None: it was cancelled before any worker took it up."""
    finished_at: int


def ended_since(connection: sa.Connection, earliest: int) -> list[EndedTurn]:
    """Return the turns that ended at an instant or later."""
    cancelled = (turns.c.failure.startswith(CANCELLED), CANCELLED)
    outcome = sa.case(cancelled, else_=turns.c.status)
    columns = (turns.c.accepted_at, turns.c.started_at, turns.c.finished_at)
    query = sa.select(turns.c.run_id, turns.c.number, outcome, *columns).where(
        turns.c.finished_at >= earliest, turns.c.executor.is_distinct_from(MADE_UP)
    )
    return [EndedTurn(*row) for row in connection.execute(query)]


def round_trip_s(connection: sa.Connection) -> float:
    """Return how long the database takes to answer a question that costs it nothing."""
    started = time.perf_counter()
    connection.execute(sa.text("SELECT 1"))
    return time.perf_counter() - started
