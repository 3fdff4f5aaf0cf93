"""The receiver on a database of each kind: one decision for a delivery, and no run where one is refused."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.api.bodies import Reserve, read_bytes
from service.api.errors import HttpError
from service.clock import now_micros
from service.forge.accounts import OwnAccounts
from service.settings import Settings, TriggerSettings
from service.store import audit, deletions, deliveries, hosts, organizations, repositories, runs, turns
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from service.triggers.events import read
from service.triggers.receiver import Receiver, UnknownRepositoryError, WebhookDelivery
from service.triggers.rules import TriggerRule
from tests.service.payloads import github
from tests.service.test_triggers import rule


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database of each kind."""
    is_sqlite = request.param == "sqlite"
    made = Database(f"sqlite:///{tmp_path / 'd.sqlite'}" if is_sqlite else request.getfixturevalue("postgres_url"))
    made.migrate()
    yield made
    made.close()


def tenants(
    database: Database, *slugs: str, active_runs: int = 1000, more: Any = (), **settings: Any
) -> Callable[..., list[str]]:
    """Configure one repository for each organization; return what delivers to all of them."""
    with database.write() as connection:
        for slug in slugs:
            owner = organizations.create(connection, name=slug, slug=slug, now=now_micros())
            made = Repository(
                "api", "github", "acme/api", "/srv/api.git", triggers=(TriggerRule(**rule(agent="reviewer")), *more)
            )
            repositories.put(connection, owner.id, made, now_micros())
    whole = Settings(triggers=TriggerSettings(github_secret_env="S", **settings))
    whole = whole.model_copy(update={"limits": whole.limits.model_copy(update={"active_runs": active_runs})})

    def deliver(
        delivery: str, sha: str = "f" * 40, proven: str = "S", action: str = "opened", own: Any = (), **given: Any
    ) -> list[str]:
        event = read("github", {"x-github-event": "pull_request"}, json.dumps(github(action, sha, **given)).encode())
        assert event is not None
        receiver = Receiver(database, whole, now_micros)
        return [
            one.result
            for one in receiver.receive(
                WebhookDelivery("github", delivery, event, frozenset({proven}), None, frozenset(own))
            )
        ]

    return deliver


def test_processes_on_one_database_decide_once(database: Database) -> None:
    """Sixteen at a time, for two organizations with the same repository: one run each."""
    deliver = tenants(database, "acme", "other")
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda _: deliver("the same"), range(16)))
    with database.read() as connection:
        entries = deliveries.latest(connection, 100)
        trail = audit.latest(connection, 100, action="trigger")

    assert sorted(map(tuple, results)) == sorted([("started", "started")] + [("duplicate", "duplicate")] * 15)
    assert [(one.result, one.agent) for one in entries] == [("started", "reviewer")] * 2
    assert {one.target for one in trail} == {one.run_id for one in entries}


def test_a_start_that_is_refused_leaves_no_run(database: Database) -> None:
    """Too many runs at work, too many this hour, an organization that is not active, another secret."""
    deliver = tenants(database, "acme", active_runs=1, repository_runs_an_hour=2)
    given = [deliver(f"d{index}", f"{index}" * 40, number=index) for index in (1, 2)]
    with database.write() as connection:
        (first,) = deliveries.latest(connection, 1, result="started")
        turns.cancel(connection, first.run_id or "", "done", now_micros())
    given += [deliver(f"d{index}", f"{index}" * 40, number=index) for index in (3,)]
    with database.write() as connection:
        turns.cancel_all(connection, first.organization_id, "done", now_micros())
    given.append(deliver("d4", "4" * 40, number=4))
    with database.write() as connection:
        organizations.change(connection, first.organization_id, active=False, entitlements=())
        counted = runs.count(connection, runs.Filters(first.organization_id))
    given.append(deliver("d5", "5" * 40, number=5))
    with pytest.raises(UnknownRepositoryError):
        deliver("d6", proven="T")

    assert given == [["started"], ["refused"], ["started"], ["limited"], ["refused"]]
    assert counted == 2


def test_each_rule_takes_a_commit_once(database: Database) -> None:
    """Two rules may start one agent on one commit; a newer head ends both."""
    label = TriggerRule(agent="reviewer", instructions="Mend it.", on=("labeled",), labels=("mend",))
    deliver = tenants(database, "acme", more=(label,))
    given = [
        deliver("d1"),
        deliver("d2", action="labeled", labels=["mend"]),
        deliver("d3", action="labeled", labels=["mend"]),
    ]
    newer = deliver("d4", "e" * 40, action="synchronize", at=5)
    with database.read() as connection:
        found = [one.run_id or "" for one in deliveries.latest(connection, 9, result="started")]
        still_open = turns.open_among(connection, found)

    assert given == [["started"], ["started"], ["repeated"]]
    assert (newer, still_open) == (["started"], {found[-1]})


def test_a_run_that_is_deleted_leaves_no_trace_in_deliveries_and_starts_no_other(database: Database) -> None:
    """The decision stays, without the run."""
    deliver = tenants(database, "acme", "other")
    deliver("d1")
    with database.write() as connection:
        first, theirs = (one.run_id or "" for one in deliveries.latest(connection, 9, result="started"))
        deletions.delete_run(connection, first, now_micros())
        left = [one.run_id for one in deliveries.latest(connection, 9)]

    assert left == [None, theirs]
    assert [deliver("d1"), deliver("d2")] == [["duplicate"] * 2, ["repeated"] * 2]


def test_a_delivery_that_was_kept_until_it_is_forgotten_starts_nothing(database: Database) -> None:
    """Its signature holds for ever, and the name of a delivery is not signed."""
    deliver = tenants(database, "acme")
    given = [deliver("d1", updated_at="2020-01-01T10:00:00Z")]
    with database.write() as connection:
        deliveries.remove(connection, now_micros() + 1)
    given += [deliver("d2", updated_at="2020-01-01T10:00:00Z"), deliver("d3")]

    assert given == [["stale"], ["stale"], ["started"]]


def test_what_the_account_of_a_token_does_is_the_service_s_own(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code host is asked whose the token is, once; where it does not say it, nothing is known."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(200 if len(asked) == 1 else 403)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"login": "Acme-Bot"}')

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    deliver = tenants(database, "acme")
    monkeypatch.setenv("TOKEN_HERE", "t1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever, 0.05)
        with database.write() as connection:
            owner = organizations.by_slug(connection, "acme")
            assert owner is not None
            url = f"http://127.0.0.1:{server.server_port}"
            hosts.connect(connection, owner.id, Host("github", "h", None, "api", url, None, "TOKEN_HERE"), now_micros())
        own = OwnAccounts(database)
        named = [own.of("github", "Acme/api") for _ in range(2)]
        monkeypatch.setenv("TOKEN_HERE", "t2")
        unknown = [own.of("github", "acme/api") for _ in range(2)]
        server.shutdown()

    assert named == [{"acme-bot"}] * 2
    assert unknown == [frozenset()] * 2
    assert asked == ["/user Bearer t1", "/user Bearer t2"]
    assert own.of("github", "acme/other") == frozenset()
    assert deliver("d1", sender="Acme-Bot", own=named[0]) == ["own"]


def test_large_bodies_that_nothing_is_known_of_share_a_reserve() -> None:
    """Small ones always get in; what was taken comes back, however the request ended."""
    reserve = Reserve(1 << 20)

    async def read_one(size: int, beside: int = 0) -> str:
        async def stream() -> Any:
            for _ in range(size >> 16):
                yield bytes(1 << 16)
            if beside:
                others.append(await read_one(beside))

        request: Any = SimpleNamespace(stream=stream)
        try:
            return str(len(await read_bytes(request, 2 << 20, reserve)))
        except HttpError as error:
            return error.error_code

    others: list[str] = []
    held = [asyncio.run(read_one(1 << 20, one)) for one in (1 << 19, 3 << 18, 1 << 18, 3 << 20)]
    assert (held, others) == ([str(1 << 20)] * 4, [str(1 << 19), "too_busy", str(1 << 18), "too_busy"])
    assert asyncio.run(read_one(5 << 18)) == str(5 << 18)
