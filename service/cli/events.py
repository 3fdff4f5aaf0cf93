"""`events`: events for the endpoints of organizations, their deliveries, and the endpoints themselves."""

import json
from ipaddress import ip_network

import click
from sqlalchemy import Connection

from service.cli.output import (
    AdminContext,
    AdminGroup,
    Row,
    any_org_option,
    fields_of,
    line,
    org_option,
    owner_of,
    require,
)
from service.clock import now_micros, rfc3339
from service.outgoing.webhooks import addresses_of
from service.store import events as stored
from service.store.events import STATES, TYPES, WAITING, Endpoint, EndpointError, Event
from service.text import plural

events = AdminGroup("events", help="Events that are sent to endpoints of organizations.")
endpoints = AdminGroup("endpoints", help="Addresses that receive events.")
events.add_command(endpoints)


def _event(connection: Connection, event_id: str) -> Event:
    return require(stored.by_id(connection, event_id), "event", event_id, "service events list")


def _endpoint(connection: Connection, endpoint_id: str) -> Endpoint:
    return require(stored.endpoint(connection, endpoint_id), "endpoint", endpoint_id, "service events endpoints list")


def _event_row(row: Event) -> Row:
    names = "id", "endpoint_id", "type", "state", "attempts", "occurred_at", "delivered_at", "failure"
    document = fields_of(row, *names) | {"next_attempt_at": rfc3339(row.due_at) if row.state == WAITING else None}
    return document, line(
        document["occurred_at"], row.id, row.type, row.state, plural(row.attempts, "attempt"), row.failure
    )


@events.command("list")
@any_org_option
@click.option("--state", type=click.Choice(STATES), help="Only events in this state.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="How many events.")
def list_all(admin: AdminContext, slug: str | None, state: str | None, limit: int) -> None:
    """List events of the last days, the latest at the end: waiting, delivered, or given up."""
    with admin.read() as connection:
        rows = stored.latest(connection, limit, owner_of(connection, slug), state)
    admin.show_rows("events", map(_event_row, rows[::-1]))


@events.command("show")
@click.argument("event_id")
def show(admin: AdminContext, event_id: str) -> None:
    """Show an event with its request to the endpoint."""
    with admin.read() as connection:
        event = _event(connection, event_id)
    payload, (document, _) = json.loads(event.payload), _event_row(event)
    lines = [f"{name:18}{value}" for name, value in document.items() if value is not None]
    admin.show({**document, "payload": payload}, *lines, json.dumps(payload, indent=2))


@events.command("replay")
@click.argument("event_ids", nargs=-1, required=True, metavar="EVENT_ID...")
def replay(admin: AdminContext, event_ids: tuple[str, ...]) -> None:
    """Deliver events again, even if they were delivered; an endpoint that was disabled is active again."""
    with admin.change("event.replay") as change:
        for event_id in event_ids:
            event = _event(change.connection, event_id)
            stored.replay(change.connection, event, now_micros())
            change.target = event.id
            change.organization_id = _endpoint(change.connection, event.endpoint_id).organization_id
            change.record("event.replay")
        rows = [_event(change.connection, event_id) for event_id in event_ids]
    admin.show_rows("events", map(_event_row, rows))


def _shown_endpoint(row: Endpoint) -> Row:
    names = "id", "organization_id", "url", "types", "state", "created_at", "rotated_at", "disabled_at"
    document = fields_of(row, *names) | {"allow_private": [str(network) for network in row.allowed]}
    return document, line(row.id, row.state, row.url, " ".join(row.types), row.organization_id)


@endpoints.command("list")
@any_org_option
def list_endpoints(admin: AdminContext, slug: str | None) -> None:
    """List endpoints, active or disabled."""
    with admin.read() as connection:
        rows = stored.endpoints(connection, owner_of(connection, slug))
    admin.show_rows("endpoints", map(_shown_endpoint, rows))


@endpoints.command("add")
@click.argument("url")
@org_option
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="May be repeated; all if left out.")
@click.option(
    "--allow-private",
    multiple=True,
    metavar="NETWORK",
    help="Allow this private network or address, even without TLS; may be repeated.",
)
def add(admin: AdminContext, url: str, slug: str, types: tuple[str, ...], allow_private: tuple[str, ...]) -> None:
    """Add an endpoint of an organization; the secret that its deliveries are signed with is printed once."""
    try:
        allowed = tuple(ip_network(text) for text in allow_private)
    except ValueError as error:
        raise EndpointError(f"--allow-private: {error}") from error
    addresses_of(url, (*admin.folder.settings().events.allow_private, *allowed))
    with admin.change("endpoint.add") as change:
        owner = change.of(slug).id
        endpoint = stored.add_endpoint(change.connection, owner, url, types or TYPES, allowed, now_micros())
        change.target = endpoint.id
    document, text = _shown_endpoint(endpoint)
    admin.show({**document, "secret": endpoint.secret}, text, f"secret  {endpoint.secret}")


@endpoints.command("rotate")
@click.argument("endpoint_id")
def rotate(admin: AdminContext, endpoint_id: str) -> None:
    """Give an endpoint a new secret, printed once; for a day deliveries are signed with the old one too."""
    with admin.change("endpoint.rotate") as change:
        old = _endpoint(change.connection, endpoint_id)
        secret = stored.rotate(change.connection, old, now_micros())
        change.target, change.organization_id = old.id, old.organization_id
    admin.show({"id": old.id, "secret": secret}, line(old.id, f"secret  {secret}"))


@endpoints.command("remove")
@click.argument("endpoint_id")
def remove(admin: AdminContext, endpoint_id: str) -> None:
    """Remove an endpoint with its events."""
    with admin.change("endpoint.remove") as change:
        old = _endpoint(change.connection, endpoint_id)
        stored.remove_endpoint(change.connection, old.id)
        change.target, change.organization_id = old.id, old.organization_id
    admin.show({"id": old.id, "state": "removed"}, f"{old.id} removed")
