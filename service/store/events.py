"""Outgoing events: stored in the transaction of the change that caused them, and delivered afterwards."""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, get_args

import sqlalchemy as sa

from service import ids
from service.clock import Micros, rfc3339
from service.errors import ServiceError
from service.store.database import lock_subject
from service.store.rows import delete, exists, optional_filter, record_of, records_of, update
from service.store.schema import Network, event_endpoints, events
from service.text import storable

EventType = Literal["run.started", "run.ended", "health.changed", "invitation.accepted"]
TYPES: Final[tuple[str, ...]] = get_args(EventType)
WAITING: Final = "waiting"
DELIVERED: Final = "delivered"
GIVEN_UP: Final = "given up"
STATES: Final = (WAITING, DELIVERED, GIVEN_UP)
MAX_ENDPOINTS: Final = 10


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL to which an organization's events are delivered."""

    id: str
    organization_id: str
    url: str
    types: tuple[str, ...]
    secret: str = field(repr=False)
    """The signing key of its deliveries, in the form of Standard Webhooks: `whsec_` and base64."""
    old_secret: str | None = field(repr=False)
    """The previous secret, with which deliveries are also signed for a day after `rotated_at`."""
    allowed: tuple[Network, ...]
    """Private networks in which the operator allows this endpoint, even without TLS."""
    created_at: Micros
    rotated_at: Micros | None
    disabled_at: Micros | None
    """When it stopped getting new events; None while it gets them."""

    @property
    def state(self) -> str:
        return "active" if self.disabled_at is None else "disabled"


@dataclass(frozen=True, slots=True)
class Event:
    """One event for one endpoint; its id stays the same for every attempt."""

    id: str
    endpoint_id: str
    type: str
    payload: str
    """The delivered body: JSON with `type`, `timestamp` and `data`."""
    state: str
    attempts: int
    occurred_at: Micros
    wanted_at: Micros
    """When it occurred or was last replayed; the time limit for retries counts from here."""
    due_at: Micros
    delivered_at: Micros | None
    failure: str | None


class EndpointError(ServiceError):
    """An endpoint is not allowed or cannot be added; the text says why."""


def add_endpoint(
    connection: sa.Connection, owner: str, url: str, kinds: Sequence[str], allowed: tuple[Network, ...], now: Micros
) -> Endpoint:
    """Store an endpoint, whose address the caller has checked, with a new secret (or raise an `EndpointError`)."""
    types = tuple(kind for kind in TYPES if kind in kinds)
    if not types:
        raise EndpointError(f"choose at least one type of event: {', '.join(TYPES)}")
    lock_subject(connection, "endpoint", owner)
    if len(endpoints(connection, owner)) >= MAX_ENDPOINTS:
        raise EndpointError(f"an organization can have at most {MAX_ENDPOINTS} endpoints: remove one first")
    added = Endpoint(f"ep_{ids.ulid(now)}", owner, url, types, _new_secret(), None, allowed, now, None, None)
    connection.execute(sa.insert(event_endpoints).values(asdict(added)))
    return added


def endpoints(connection: sa.Connection, organization_id: str | None = None) -> list[Endpoint]:
    return records_of(connection, Endpoint, event_endpoints, _of_owner(organization_id), order=[event_endpoints.c.id])


def endpoint(connection: sa.Connection, endpoint_id: str, organization_id: str | None = None) -> Endpoint | None:
    # Ids come from URLs and may hold NUL, which PostgreSQL refuses as a parameter.
    return record_of(connection, Endpoint, event_endpoints, _of_owner(organization_id), id=storable(endpoint_id))


def remove_endpoint(connection: sa.Connection, endpoint_id: str) -> None:
    delete(connection, event_endpoints, id=endpoint_id)


def rotate(connection: sa.Connection, old: Endpoint, now: Micros) -> str:
    """Give an endpoint a new secret and return it; deliveries are signed with both for a day."""
    secret, same = _new_secret(), event_endpoints.c.id == old.id
    update(connection, event_endpoints, same, secret=secret, old_secret=old.secret, rotated_at=now)
    return secret


def record(
    connection: sa.Connection,
    organization_id: str,
    kind: EventType,
    data: Mapping[str, object],
    now: Micros,
    *,
    run_id: str | None = None,
) -> None:
    """Store an event for each endpoint of an organization that wants its type, in the transaction of the change."""
    # Locked, so that no endpoint is removed before its event is stored.
    wanting = sa.select(event_endpoints.c.id, event_endpoints.c.types).with_for_update(read=True, key_share=True)
    active = (_of_owner(organization_id), event_endpoints.c.disabled_at.is_(None))
    payload = json.dumps({"type": kind, "timestamp": rfc3339(now), "data": data}, separators=(",", ":"))
    rows = [
        asdict(Event(f"evt_{ids.ulid(now)}", row.id, kind, payload, WAITING, 0, now, now, now, None, None))
        | {"run_id": run_id}
        for row in connection.execute(wanting.where(*active))
        if kind in row.types
    ]
    if rows:
        connection.execute(sa.insert(events), rows)


def first_due(connection: sa.Connection, endpoint_id: str, now: Micros) -> Event | None:
    due = (events.c.state == WAITING, events.c.due_at <= now)
    order = [events.c.due_at, events.c.id]
    return record_of(connection, Event, events, *due, endpoint_id=endpoint_id, order=order)


def mark_delivered(connection: sa.Connection, event_id: str, now: Micros) -> None:
    values = {"state": DELIVERED, "delivered_at": now, "failure": None, "attempts": events.c.attempts + 1}
    update(connection, events, events.c.id == event_id, **values)


def mark_failed(
    connection: sa.Connection,
    event: Event,
    failure: str,
    now: Micros,
    *,
    due_at: Micros | None,
    pauses: bool,
    is_gone: bool,
) -> bool:
    """Record why a waiting event was not delivered; `due_at` is when to retry, None to give up.

    `pauses`: all events that are due at the endpoint wait until then. The endpoint is disabled if it is gone, or has
    accepted nothing since the event that is given up occurred; return whether it is.
    """
    waiting = (events.c.endpoint_id == event.endpoint_id, events.c.state == WAITING)
    if pauses and due_at is not None:
        update(connection, events, *waiting, events.c.due_at < due_at, due_at=due_at)
    then: dict[str, object] = {"state": GIVEN_UP} if due_at is None else {"due_at": due_at}
    values = {"failure": failure, "attempts": events.c.attempts + 1, **then}
    update(connection, events, *waiting, events.c.id == event.id, **values)
    accepted = (events.c.endpoint_id == event.endpoint_id, events.c.delivered_at >= event.wanted_at)
    is_dead = is_gone or (due_at is None and not exists(connection, events, *accepted))
    if is_dead:
        update(connection, event_endpoints, event_endpoints.c.id == event.endpoint_id, disabled_at=now)
        update(connection, events, *waiting, state=GIVEN_UP, failure=f"the endpoint was disabled: {failure}")
    return is_dead


def latest(
    connection: sa.Connection, limit: int, organization_id: str | None = None, state: str | None = None
) -> list[Event]:
    chosen = (_of(organization_id), optional_filter(events.c.state, state))
    return records_of(connection, Event, events, *chosen, order=[events.c.id.desc()], limit=limit)


def by_id(connection: sa.Connection, event_id: str, organization_id: str | None = None) -> Event | None:
    return record_of(connection, Event, events, _of(organization_id), id=storable(event_id))


def replay(connection: sa.Connection, event: Event, now: Micros) -> None:
    """Deliver an event again, whatever its state; its endpoint, if disabled, becomes active again."""
    again = {"state": WAITING, "attempts": 0, "wanted_at": now, "due_at": now, "failure": None}
    update(connection, events, events.c.id == event.id, **again)
    update(connection, event_endpoints, event_endpoints.c.id == event.endpoint_id, disabled_at=None)


def remove(connection: sa.Connection, before: int) -> int:
    """Remove events that occurred before an instant (microseconds); return their number."""
    # Ids begin with their time.
    end = f"evt_{ids.ulid(max(0, before), lambda _: 0)}"
    return delete(connection, events, events.c.id < end)


def _new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def _of_owner(organization_id: str | None) -> sa.ColumnElement[bool]:
    return optional_filter(event_endpoints.c.organization_id, organization_id)


def _of(organization_id: str | None) -> sa.ColumnElement[bool]:
    return events.c.endpoint_id.in_(sa.select(event_endpoints.c.id).where(_of_owner(organization_id)))
