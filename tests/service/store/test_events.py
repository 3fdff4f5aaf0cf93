"""Outgoing events are stored with their change, signed, retried, given up and replayed (docs/run/events.md)."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from service.clock import DAY_MICROS, SECOND_MICROS, now_micros
from service.outgoing.webhooks import addresses_of, deliver
from service.settings import EventSettings
from service.store import deletions, events, hosts, invitations, turns
from service.store.database import Database
from service.store.events import DELIVERED, GIVEN_UP, MAX_ENDPOINTS, WAITING, Endpoint, EndpointError, Event
from service.store.hosts import Host
from service.store.turns import TurnOutcome
from tests.lab import Drip, Drop, Hang, Received, Respond, Server, Step
from tests.service.conftest import BOTH, Api, Make, accepted, due_jobs, organization
from tests.service.servers import Receiver, make_certificate
from tests.waiting import eventually, present

LOOPBACK = (ip_network("127.0.0.0/8"),)
SETTINGS = '[execution]\nsandbox = "none"\n[events]\nretry_s = 0.2\nallow_private = ["127.0.0.0/8"]\n'
ALL = events.TYPES


class Desk:
    """One organization's endpoint, the sender, and a clock that the test moves."""

    def __init__(self, database: Database) -> None:
        self.database, self.owner, self.late = database, organization(database), 0
        self.send_with()

    def send_with(self, **settings: Any) -> None:
        """Send with these settings from now on."""
        given = EventSettings(**{"allow_private": LOOPBACK, "timeout_s": 30} | settings)
        self.send = partial(deliver, self.database, given, self.now)

    def now(self) -> int:
        return now_micros() + self.late

    def add(self, url: str, types: tuple[str, ...] = ALL, owner: str = "") -> Endpoint:
        with self.database.write() as connection:
            return events.add_endpoint(connection, owner or self.owner, url, types, (), self.now())

    def happen(self, kind: Any = "health.changed", number: int = 0) -> None:
        with self.database.write() as connection:
            events.record(connection, self.owner, kind, {"number": number}, self.now())

    def deliver(self, *numbers: int) -> None:
        """Deliver what is due after these events, as a worker does."""
        for number in numbers:
            self.happen(number=number)
        with self.database.read() as connection:
            due = due_jobs(connection, "webhook", self.now())
        for one in due:
            self.send(one)

    def pass_on(self) -> None:
        """Move the clock to the next attempt."""
        self.late += max(0, min(one.due_at for one in self.stored() if one.state == WAITING) - self.now())

    def stored(self) -> list[Event]:
        """Return the events, oldest first."""
        with self.database.read() as connection:
            # Ids of the same millisecond have no order.
            return sorted(events.latest(connection, 1000, self.owner), key=lambda one: one.occurred_at)

    def state(self, one: Endpoint) -> str:
        with self.database.read() as connection:
            return present(events.endpoint(connection, one.id)).state


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@BOTH
def test_an_event_is_stored_with_its_change(desk: Desk) -> None:
    """Each endpoint gets one; a change that is rolled back, another organization's or an unwanted one stores none."""
    database, now = desk.database, now_micros()
    both = [desk.add("https://a.example/"), desk.add("https://b.example/", ("run.ended", "health.changed"))]
    desk.add("https://c.example/", owner=organization(database, "other"))
    run = accepted(database)

    def undone() -> None:
        with database.write() as connection:
            assert turns.claim(connection, run.id, 1, "worker", now) is not None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        undone()
    with database.write() as connection:
        # The second attempt is not a second start, and a turn ends once.
        assert [turns.claim(connection, run.id, 1, name, now) is not None for name in ("one", "two")] == [True, True]
        ends = [turns.end(connection, run.id, 1, TurnOutcome("failed", failure="it gave up"), now) for _ in range(2)]
        assert ends == [True, False]

    found = [(one.endpoint_id, one.type) for one in desk.stored()]
    assert sorted(found) == sorted([(both[0].id, "run.started"), (both[0].id, "run.ended"), (both[1].id, "run.ended")])
    data = next(json.loads(one.payload)["data"] for one in desk.stored() if one.type == "run.ended")
    said = {"status": "failed", "turn": 1, "outcome": "failed", "reason": "it gave up"}
    assert data == {**run.body, **said, "updated_at": data["updated_at"]}
    assert len({one.id for one in desk.stored()}) == 3

    # A deleted run's events are deleted with it.
    with database.write() as connection:
        deletions.delete_runs(connection, [run.id], now)
    assert desk.stored() == []


def test_events_of_health_and_invitations_are_stored_once(desk: Desk) -> None:
    """Of two requests that see the same change of a host, one stores it; a code is accepted once."""
    desk.add("https://a.example/")
    host = Host("github", "github.example", None, "api", "https://api.example", None, None)
    with desk.database.write() as connection:
        hosts.connect(connection, desk.owner, host, 1)
        assert [(row.status, row.token_told) for row in hosts.of(connection, desk.owner)] == [(None, None)]
        for before, after in (("ok", "degraded"), ("ok", "degraded"), ("degraded", "ok")):
            hosts.note_answer(connection, desk.owner, replace(host, status=before), after, None, desk.now())
        invitation = invitations.invite(connection, desk.owner, "ada@acme.example", desk.now())
        code = str(invitations.waiting_code(connection, invitation))
        assert [invitations.accept(connection, code, desk.now()) for _ in range(2)] == [desk.owner, None]

    about = {"platform": "github", "host": "github.example"}
    accepted = {"organization_id": desk.owner, "invitation_id": invitation, "email": "ada@acme.example"}
    wanted = [
        ("health.changed", about | {"status": "degraded", "previous_status": "ok"}),
        ("health.changed", about | {"status": "ok", "previous_status": "degraded"}),
        ("invitation.accepted", accepted),
    ]
    told = [(one.type, json.loads(one.payload)["data"]) for one in desk.stored()]
    assert sorted(told, key=str) == sorted(wanted, key=str)


def test_a_delivery_is_signed_and_a_new_secret_takes_over(desk: Desk, receiver: Receiver) -> None:
    """The library verifies it; either secret works for a day, then only the new one."""
    made = desk.add(f"{receiver.origin}/hooks?to=me")
    receiver.secret = made.secret
    desk.deliver(1)
    with desk.database.write() as connection:
        newer = events.rotate(connection, made, desk.now())
    desk.deliver(2)
    receiver.secret = newer
    desk.deliver(3)
    desk.late = DAY_MICROS
    desk.deliver(4)

    assert [event["data"]["number"] for event in receiver.taken.values()] == [1, 2, 3]
    assert [one.state for one in desk.stored()] == [DELIVERED] * 3 + [WAITING], "the last is from tomorrow"
    first = receiver.requests[0]
    assert (first.method, first.target) == ("POST", "/hooks?to=me")
    assert first.headers["webhook-id"] == desk.stored()[0].id
    assert [one.headers["webhook-signature"].count("v1,") for one in receiver.requests] == [1, 2, 2, 1]
    told = {"type": "health.changed", "timestamp": json.loads(desk.stored()[0].payload)["timestamp"]}
    assert json.loads(first.body) == told | {"data": {"number": 1}}
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        Webhook(newer).verify(first.body, first.headers)
    assert made.secret not in repr(made)


def test_a_failing_endpoint_is_retried_for_three_days_then_disabled(desk: Desk, receiver: Receiver) -> None:
    """Retries become less frequent and keep their id; after a replay the endpoint is active again."""
    made = desk.add(receiver.origin)
    receiver.otherwise = lambda _: Respond(500)
    desk.happen(number=1)
    while desk.stored()[0].state == WAITING:
        desk.pass_on()
        desk.deliver()
    desk.happen(number=2)
    (given_up,) = desk.stored()

    assert (given_up.state, given_up.failure) == (GIVEN_UP, "it answered 500")
    assert desk.now() - given_up.wanted_at >= 3 * DAY_MICROS
    assert 70 < given_up.attempts < 170
    assert {one.headers["webhook-id"] for one in receiver.requests} == {given_up.id}
    assert desk.state(made) == "disabled"

    desk.late, receiver.otherwise, receiver.secret = 0, None, made.secret
    with desk.database.write() as connection:
        events.replay(connection, given_up, desk.now())
    desk.deliver()
    assert ([*receiver.taken], desk.state(made)) == ([given_up.id], "active")
    (taken,) = desk.stored()
    assert (taken.state, taken.attempts, taken.failure) == (DELIVERED, 1, None)


def test_a_refused_event_does_not_block_others(desk: Desk, receiver: Receiver) -> None:
    """The endpoint gets the other events, and stays active when the refused one is given up."""
    desk.send_with(retry_s=600, give_up_s=3600)
    made = desk.add(receiver.origin)
    receiver.otherwise = lambda request: Respond(400 if request.json()["data"]["number"] == 1 else 200)
    desk.deliver(1, 2, 3)
    assert [one.state for one in desk.stored()] == [WAITING, DELIVERED, DELIVERED]
    while desk.stored()[0].state == WAITING:
        desk.pass_on()
        desk.deliver(9)

    assert (desk.state(made), desk.stored()[0].failure) == ("active", "it answered 400")


def test_an_unreachable_endpoint_gets_one_event_at_a_time(desk: Desk, receiver: Receiver) -> None:
    """A missing answer or a requested wait delays everything due there; a 410 disables the endpoint."""
    made = desk.add(receiver.origin)
    for number in range(5):
        desk.happen(number=number)
    receiver.script(Drop(), Respond(429, headers={"Retry-After": "60"}), Respond(410))
    for requests in (1, 2):
        desk.deliver()
        assert len(receiver.requests) == requests
        desk.pass_on()
    wait_s = (min(one.due_at for one in desk.stored()) - desk.stored()[0].wanted_at) / SECOND_MICROS
    desk.deliver()

    assert (wait_s >= 60, len(receiver.requests), desk.state(made)) == (True, 3, "disabled")
    assert {one.state for one in desk.stored()} == {GIVEN_UP}


def test_answers_are_bounded_and_redirects_not_followed(desk: Desk, receiver: Receiver) -> None:
    """A slow, endless, missing or invalid answer or a redirect is a failure in plain words."""
    desk.add(receiver.origin)
    late, redirects = "no whole answer within 0.3 s", "it answered 307: redirects are not followed"
    with Server() as elsewhere:
        desk.happen()
        for step, failure in (
            (Drip(0, 65_536), "the answer is too large"),
            (Respond(307, headers={"Location": elsewhere.origin}), redirects),
            (Drip(0.001), late),
            (Hang(), late),
        ):
            desk.send_with(timeout_s=0.3 if failure == late else 30)
            receiver.script(step)
            desk.deliver()
            assert desk.stored()[0].failure == failure
            desk.pass_on()
        assert elsewhere.connections == 0


PRIVATE = ("127.0.0.1", "0", "[::1]", "[::ffff:7f00:1]", "localhost", "2130706433", "0x7f.1", "127.1", "inside.example")
"""Addresses in several notations; tests/service/agents/test_egress.py covers which ones are private."""
UNUSABLE = (
    *("ftp://hooks.example/", "//hooks.example", "https://user:secret@hooks.example/", "https://h\u00f6oks.example/"),
    *("https://hooks.example/ x", "https://hooks.example\\@127.0.0.1/", "https://hooks.example/\nHost: x"),
)


def test_private_addresses_are_refused(desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any notation, and names that resolve to one, are refused both at configuration and at delivery.

    An address that two parsers could read differently is refused.
    """
    for url in UNUSABLE:
        with pytest.raises(EndpointError, match="must read https://host/path"):
            addresses_of(url, LOOPBACK)

    resolve = socket.getaddrinfo
    inside = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 443)) for host in ("10.0.0.1", "127.0.0.1")]
    known = lambda name, *more, **given: inside if name == "inside.example" else resolve(name, *more, **given)  # noqa: E731
    monkeypatch.setattr(socket, "getaddrinfo", known)
    desk.send_with(allow_private=())
    for host in PRIVATE:
        for scheme, lacks in (("https", "has no public address"), ("http", "needs https://")):
            with pytest.raises(EndpointError, match=lacks):
                addresses_of(f"{scheme}://{host}:{receiver.port}/", ())
    for host in ("127.0.0.1", "[::ffff:7f00:1]", "localhost", "inside.example"):
        for scheme in ("https", "http"):
            desk.add(f"{scheme}://{host}:{receiver.port}/")
    desk.deliver(1)

    assert [one.attempts for one in desk.stored()] == [1] * 8
    assert all("the operator can allow it" in str(one.failure) for one in desk.stored())
    assert receiver.connections == 0


def test_a_name_is_resolved_once_and_must_match_tls(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checked address is the one connected to (DNS rebinding), and the certificate must match the name."""
    certificate = make_certificate(tmp_path, "DNS:hooks.example")
    resolve, asked = socket.getaddrinfo, []

    def rebinding(name: str, port: Any, *more: Any, **given: Any) -> Any:
        if not name.endswith(".example"):
            return resolve(name, port, *more, **given)
        asked.append(name)
        # From the second lookup on it leads to another machine.
        address = "127.0.0.1" if asked.count(name) == 1 else "127.0.0.2"
        return resolve(address, port, *more, **given)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    desk.send_with(allow_private=(ip_network("127.0.0.1"),))
    receiver = Receiver()
    receiver.tls = certificate.server_context()
    with receiver:
        receiver.secret = desk.add(f"https://hooks.example:{receiver.port}/", ("run.ended",)).secret
        desk.happen("run.ended")
        desk.deliver()
        assert asked == ["hooks.example"]
        assert len(receiver.taken) == 1
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"

        asked.clear()
        wrong = desk.add(f"https://other.example:{receiver.port}/", ("run.started",))
        desk.happen("run.started")
        desk.deliver()
    failed = next(one for one in desk.stored() if one.endpoint_id == wrong.id)
    assert "its certificate cannot be trusted" in str(failed.failure)
    assert len(receiver.requests) == 1


def test_the_number_of_endpoints_is_limited(desk: Desk) -> None:
    """Types must exist, and another organization has its own limit. Old events are removed, whatever their result."""
    with pytest.raises(EndpointError, match=r"choose at least one type.*run\.started"):
        desk.add("https://a.example/", ("run.exploded",))
    for number in range(MAX_ENDPOINTS):
        desk.add(f"https://a.example/{number}", ALL if number else ("run.ended",))
    with pytest.raises(EndpointError, match="at most 10 endpoints"):
        desk.add("https://a.example/more")
    desk.add("https://a.example/", owner=organization(desk.database, "other"))

    desk.happen("run.ended", number=1)
    desk.late = DAY_MICROS
    desk.happen("health.changed", number=2)
    with desk.database.write() as connection:
        assert events.remove(connection, desk.now() - SECOND_MICROS) == MAX_ENDPOINTS
        assert events.by_id(connection, "evt_\0") is events.endpoint(connection, "ep_\0") is None
    assert [json.loads(one.payload)["data"]["number"] for one in desk.stored()] == [2] * (MAX_ENDPOINTS - 1)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_change_succeeds_while_an_endpoint_is_removed(desk: Desk) -> None:
    """The change waits for the removal and then succeeds, without an event for the removed endpoint."""
    made = desk.add("https://a.example/")
    with ThreadPoolExecutor(1) as pool:
        with desk.database.write() as connection:
            events.remove_endpoint(connection, made.id)
            happening = pool.submit(desk.happen)
            waits = sa.text("SELECT 1 FROM pg_locks WHERE NOT granted")
            eventually(lambda: bool(connection.execute(waits).all()), "the change waits")
        happening.result()

    assert desk.stored() == []


def test_a_killed_service_repeats_events_with_the_same_id(start: Make, receiver: Receiver) -> None:
    """Kill -9 between the answer and its record repeats the same id, which the receiver recognizes."""
    api = start(settings=SETTINGS)
    receiver.secret = api.service.admin("events", "endpoints", "add", receiver.origin, "--org", "acme")["secret"]
    gate = threading.Event()

    def hold(request: Received) -> Step:
        assert gate.wait(60)
        return receiver.answer(request)

    receiver.otherwise = hold
    run_id = api.start("write once")
    receiver.wait_for(1)
    api.service.kill()
    gate.set()
    api.service.restart()
    ended = api.ended(run_id)
    eventually(lambda: bool(receiver.told("run.ended")), "the end is told")

    (begun,), (told,) = receiver.told("run.started"), receiver.told("run.ended")
    assert (begun["run_id"], begun["status"], begun["turn"]) == (run_id, "working", 1)
    assert (told["outcome"], told["reason"], told["status"]) == ("completed", None, "completed")
    assert not [name for name in ("run_id", "branch_name", "repository", "created_at") if told[name] != ended[name]]
    assert len(receiver.taken) == 2 < len(receiver.requests)

    def states() -> set[str]:
        return {one["state"] for one in api.service.admin("events", "list", "--org", "acme")["events"]}

    eventually(lambda: states() == {DELIVERED}, "both are recorded")


def test_an_operator_lists_replays_and_removes_endpoints(tenant: Make, idle: Api) -> None:
    """The command line prints a secret once, and each act is in the audit trail."""
    api = tenant(on=idle.service)
    admin, ours = api.service.admin, ("--org", api.organization["slug"])
    add = ("events", "endpoints", "add", "http://127.0.0.1:9/", *ours, "--allow-private", "127.0.0.1")
    made = admin(*add, "--type", "invitation.accepted")

    admin("invitation", "send", "ada@acme.example", *ours)
    mail = (api.service.outbox / f"{api.organization['id']}.eml").read_text()
    admin("org", "accept-invitation", re.findall(r"rwt_[\w-]+", mail)[0])
    (event,) = admin("events", "list", *ours)["events"]
    assert admin("events", "show", event["id"])["payload"]["data"]["email"] == "ada@acme.example"
    admin("events", "replay", event["id"])
    newer = admin("events", "endpoints", "rotate", made["id"])["secret"]
    (kept,) = (each for each in admin("events", "endpoints", "list")["endpoints"] if each["id"] == made["id"])
    assert (kept["state"], kept["allow_private"]) == ("active", ["127.0.0.1/32"])
    assert not {made["secret"], newer} & {str(value) for value in kept.values()}
    admin("events", "endpoints", "remove", made["id"])
    assert admin("events", "list", *ours)["events"] == []
    trail = {(each["action"], each["target"]) for each in admin("audit", "list", *ours)["entries"]}
    acts = {(f"endpoint.{act}", made["id"]) for act in ("add", "rotate", "remove")}
    assert acts | {("event.replay", event["id"])} <= trail
    assert made["secret"] not in api.service.log
