"""Delivery of outgoing events: signed as in Standard Webhooks, and retried until delivered or given up."""

import base64
import contextlib
import hmac
import ipaddress
import logging
import random
import re
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from service.clock import DAY_MICROS, SECOND_MICROS, Clock, Micros
from service.hosts import HostUnreachableError, ask
from service.network import Address, Host, HostError, is_public, port_of, proxy_of, resolve
from service.settings import EventSettings
from service.store import events
from service.store.database import Database
from service.store.events import Endpoint, EndpointError, Event
from service.store.schema import Network

_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9._:\[\]-]{1,255}([/?][!-\"$-~]{0,1700})?")
"""An address of printable ASCII, without login or fragment."""
_REDIRECT: Final = range(300, 400)
_GONE: Final = 410
_MAX_WAIT_S: Final = 3600.0
_TURN_S: Final = 15.0
"""How long events are delivered to one endpoint before another endpoint gets its turn."""
_logger = logging.getLogger(__name__)


def addresses_of(url: str, allowed: Sequence[Network]) -> list[Address]:
    """Look up an endpoint's present IP addresses, and return the ones that may be connected to.

    Raises:
        EndpointError: The URL cannot be used, or has no address that is public or allowed.
    """
    try:
        parts = urlsplit(url if _ADDRESS.fullmatch(url) else "")
        name, port = parts.hostname or "", port_of(parts)
    except (ValueError, KeyError) as error:
        raise EndpointError("the address must read https://host/path, without login or fragment") from error
    is_tls, resolved = parts.scheme == "https", list[Address]()
    with contextlib.suppress(HostError):
        host = Host.parse(name)
        try:
            resolved = resolve(host, port)
        except OSError:
            if is_tls and proxy_of("https", host, port) is not None:
                # Only the proxy can look it up, and decides.
                return [(host.text, port)]
    ips = {address: ipaddress.ip_address(address[0].partition("%")[0]) for address in resolved}
    usable = [address for address, ip in ips.items() if any(ip in network for network in allowed)]
    usable += [address for address in ips if is_tls and is_public(address[0]) and address not in usable]
    if not usable:
        fault = "has no public address" if is_tls else "needs https://"
        raise EndpointError(f"{name} {fault}; the operator can allow it: events.allow_private in service.toml")
    return usable


def signed_headers(endpoint: Endpoint, event: Event, now: Micros) -> dict[str, str]:
    """Return the headers of one attempt, according to Standard Webhooks."""
    at = str(now // SECOND_MICROS)
    is_recent = endpoint.rotated_at is not None and now < endpoint.rotated_at + DAY_MICROS
    signatures = []
    for secret in filter(None, (endpoint.secret, endpoint.old_secret if is_recent else None)):
        key = base64.b64decode(secret.removeprefix("whsec_"))
        digest = hmac.digest(key, f"{event.id}.{at}.{event.payload}".encode(), "sha256")
        signatures.append(f"v1,{base64.b64encode(digest).decode()}")
    return {"webhook-id": event.id, "webhook-timestamp": at, "webhook-signature": " ".join(signatures)}


def deliver(database: Database, settings: EventSettings, clock: Clock, endpoint_id: str) -> None:
    """Deliver an endpoint's due events, for a limited time; one worker at a time does so."""
    until = time.monotonic() + _TURN_S
    while time.monotonic() < until:
        with database.read() as connection:
            endpoint = events.endpoint(connection, endpoint_id)
            event = events.first_due(connection, endpoint_id, clock())
        if endpoint is None or event is None:
            return
        # A pause postpones all due events of the endpoint, otherwise only this one is retried later.
        pause_s, failure, is_gone = None, None, False
        try:
            answer = ask(
                endpoint.url,
                settings.timeout_s,
                method="POST",
                document=event.payload.encode(),
                headers=signed_headers(endpoint, event, clock()),
                addresses=addresses_of(endpoint.url, (*settings.allow_private, *endpoint.allowed)),
            )
        except (HostUnreachableError, EndpointError) as error:
            # Without the URL, whose path may contain a secret: the log shows the failure.
            failure = str(error).removeprefix(f"{endpoint.url.partition('?')[0]}: ")
            pause_s = 0.0
        else:
            if not answer.is_success:
                hint = ": redirects are not followed" if answer.status in _REDIRECT else ""
                failure = f"it answered {answer.status}{hint}"
                pause_s = answer.wait_s
                is_gone = answer.status == _GONE
        now = clock()
        if failure is None:
            with database.write() as connection:
                events.mark_delivered(connection, event.id, now)
            _logger.info("delivered %s (%s) to %s", event.type, event.id, endpoint.id)
            continue
        # The random part spreads the retries of events that failed together.
        spread = random.uniform(0.5, 1.0)  # noqa: S311 — no secret
        wait_s = min(settings.retry_s * 2 ** min(event.attempts, 20), _MAX_WAIT_S) * spread
        last = event.wanted_at + int(settings.give_up_s * SECOND_MICROS)
        due_at = min(now + int(max(wait_s, pause_s or 0.0) * SECOND_MICROS), last)
        is_over = is_gone or now >= last
        retry_at = None if is_over else due_at
        with database.write() as connection:
            pauses = pause_s is not None
            is_dead = events.mark_failed(
                connection, event, failure, now, due_at=retry_at, pauses=pauses, is_gone=is_gone
            )
        then = f"retried in {(due_at - now) / SECOND_MICROS:.0f} s"
        if is_over:
            then = "the endpoint is disabled" if is_dead else "given up"
        _logger.warning("%s (%s) was not delivered to %s: %s; %s", event.type, event.id, endpoint.id, failure, then)
