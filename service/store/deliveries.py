"""Webhook deliveries from code hosts, each decided once, with the decisions on record."""

from dataclasses import asdict, dataclass
from typing import Any, Final

import sqlalchemy as sa

from service.clock import Micros
from service.rules import CLOSED, NO_CHANGES, SCHEDULE
from service.store.rows import exists, optional_filter, records_of, update
from service.store.schema import deliveries

STARTED: Final = "started"
WAITING: Final = "waiting"
"""The result of a delivery that waits for the operator's approval."""
SUPERSEDED: Final = "superseded"
NO_NUMBER: Final = -1
"""The number of what is about no pull request and no issue: a time of a schedule."""


@dataclass(frozen=True, slots=True)
class SubjectKey:
    """A pull request or an issue, for one of the organizations that configured its repository."""

    organization_id: str
    platform: str
    path_key: str
    number: int
    is_issue: bool = False
    """Whether the number is an issue's: GitLab counts issues and merge requests separately."""


@dataclass(frozen=True, slots=True)
class DeliveryEntry:
    """The decision of one rule, or of none, on a delivery."""

    id: str
    organization_id: str
    platform: str
    path_key: str
    delivery: str
    event: str
    result: str
    rule: int
    """The position of the rule, from 0; -1 if no rule was consulted or none matches."""
    number: int
    head_sha: str
    cause: str
    """A commit, a comment, a check of a commit, or a change of an issue: a rule starts at most one run for each."""
    sender: str
    detail: str
    agent: str | None
    run_id: str | None
    request: dict[str, Any] | None
    """The run to start after approval."""
    changed_at: Micros
    received_at: Micros
    is_issue: bool = False


def is_known(connection: sa.Connection, organization_id: str, platform: str, delivery: str) -> bool:
    return exists(connection, deliveries, organization_id=organization_id, platform=platform, delivery=delivery)


def record(connection: sa.Connection, entry: DeliveryEntry) -> None:
    connection.execute(sa.insert(deliveries).values(asdict(entry)))


def latest_change(connection: sa.Connection, subject: SubjectKey, *, only_closed: bool) -> int:
    """Return when the latest change that closed the subject, started a run or waits was made; 0 if there is none."""
    counts = deliveries.c.event == CLOSED
    if not only_closed:
        has_run = deliveries.c.result.in_((STARTED, WAITING, SUPERSEDED))
        counts |= has_run & deliveries.c.event.not_in(NO_CHANGES)
    query = sa.select(sa.func.max(deliveries.c.changed_at)).where(*_about(subject), counts)
    return connection.scalar(query) or 0


def started_since(connection: sa.Connection, subject: SubjectKey, since: int, *, in_repository: bool = False) -> int:
    """Return how many runs were started since an instant for a pull request or issue, or for its whole repository."""
    about = _about(subject)[:3] if in_repository else _about(subject)
    query = sa.select(sa.func.count()).select_from(deliveries)
    recent = (deliveries.c.received_at > since, deliveries.c.result == STARTED)
    return connection.execute(query.where(*about, *recent)).scalar_one()


def acted_on(connection: sa.Connection, subject: SubjectKey) -> list[DeliveryEntry]:
    """Return the decisions that started a run for a pull request or issue, or wait to start one, newest first."""
    return _entries(connection, *_about(subject), deliveries.c.result.in_((STARTED, WAITING)))


def latest(
    connection: sa.Connection, limit: int, *, organization_id: str | None = None, result: str | None = None
) -> list[DeliveryEntry]:
    """Return the latest decisions, oldest first; a filter of None is not applied."""
    is_own = optional_filter(deliveries.c.organization_id, organization_id)
    return _entries(connection, is_own, optional_filter(deliveries.c.result, result), limit=limit)[::-1]


def latest_scheduled(connection: sa.Connection, organization_id: str) -> dict[tuple[str, int], DeliveryEntry]:
    """Return the latest decision on each schedule, keyed by repository (`github:acme/api`) and rule."""
    conditions = (deliveries.c.organization_id == organization_id, deliveries.c.event == SCHEDULE)
    newest = sa.select(sa.func.max(deliveries.c.id)).where(*conditions)
    newest = newest.group_by(deliveries.c.platform, deliveries.c.path_key, deliveries.c.rule)
    entries = _entries(connection, deliveries.c.id.in_(newest))
    return {(f"{entry.platform}:{entry.path_key}", entry.rule): entry for entry in entries}


def by_id(connection: sa.Connection, entry_id: str) -> DeliveryEntry | None:
    return next(iter(_entries(connection, deliveries.c.id == entry_id)), None)


def conclude(connection: sa.Connection, entry_id: str, result: str, detail: str, run_id: str | None = None) -> bool:
    """Record the result of a pending decision; False if it is no longer pending."""
    waits = (deliveries.c.id == entry_id, deliveries.c.result == WAITING)
    return update(connection, deliveries, *waits, result=result, detail=detail, run_id=run_id, request=None) > 0


def _about(subject: SubjectKey) -> list[sa.ColumnElement[bool]]:
    return [deliveries.c[name] == value for name, value in asdict(subject).items()]


def _entries(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool], limit: int | None = None
) -> list[DeliveryEntry]:
    newest = [deliveries.c.received_at.desc(), deliveries.c.id.desc()]
    return records_of(connection, DeliveryEntry, deliveries, *conditions, order=newest, limit=limit)
