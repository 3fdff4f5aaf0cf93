"""Unique constraints on PostgreSQL: whatever two processes do at once, each of them succeeds or is told why."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
import sqlalchemy as sa

from service.clock import now_micros
from service.egress.usage import Usage
from service.store import (
    agents,
    hosts,
    organizations,
    postings,
    repositories,
    runs,
    schema,
    tokens,
    trials,
    turn_files,
    turns,
    usage,
)
from service.store import workers as worker_store
from service.store.agents import Agent
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from service.store.runs import TurnRequest
from service.store.trials import Offer
from service.store.workers import Worker
from tests.service.postgres import Cluster

AT_ONCE = 8


@pytest.fixture(scope="module")
def database(postgres: Cluster, tables: str) -> Iterator[Database]:
    """A PostgreSQL for all of these tests: each has a house of its own."""
    made = Database(postgres.create("races", tables))
    yield made
    made.close()


class House:
    """An organization with a run, and what processes may write of it at once."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.number = count()
        with database.write() as connection:
            self.owner = organizations.create(connection, name="Acme", now=now_micros()).id
            request = TurnRequest(self.owner, "a", "github", "acme/api", "/srv/api.git", None, "go")
            self.run = runs.accept(connection, request, now_micros())

    def organizations(self, connection: sa.Connection) -> None:
        organizations.create(connection, name="Same", now=now_micros())

    def tokens(self, connection: sa.Connection) -> None:
        tokens.create(connection, self.owner, scopes=("admin",), alias="same", now=now_micros())

    def offers(self, connection: sa.Connection) -> None:
        trials.put_offer(connection, Offer("SAME", "partner"))

    def hosts(self, connection: sa.Connection) -> None:
        hosts.connect(connection, self.owner, Host("github", "g", None, "api", "https://g", None, None), now_micros())

    def repositories(self, connection: sa.Connection) -> None:
        repositories.put(connection, self.owner, Repository("api", "github", "acme/api", "/srv/a.git"), now_micros())

    def default_branches(self, connection: sa.Connection) -> None:
        repositories.note_default_branch(connection, "/srv/a.git", f"branch-{next(self.number)}")

    def agents(self, connection: sa.Connection) -> None:
        owner = self.owner if next(self.number) % 2 else None
        agents.put(connection, Agent("same", ("/bin/true",), 60, network=False, environment=()), owner, now_micros())

    def runs(self, connection: sa.Connection) -> None:
        runs.accept(
            connection, TurnRequest(self.owner, "a", "github", "acme/api", "/srv/api.git", "b", "go"), now_micros()
        )

    def turns(self, connection: sa.Connection) -> None:
        turns.cancel(connection, self.run.id, "over", now_micros())
        run = runs.by_id(connection, self.run.id)
        request = TurnRequest(self.owner, "a", "github", "acme/api", "/srv/api.git", None, "again")
        runs.resume(connection, run or self.run, request, now_micros())

    def turn_files(self, connection: sa.Connection) -> None:
        turn_files.put(connection, (self.run.id, 1), 0, "diff", b"said")

    def log_pieces(self, connection: sa.Connection) -> None:
        turn_files.append_log(connection, (self.run.id, 1), 0, b"said")

    def model_usage(self, connection: sa.Connection) -> None:
        turn = turns.of(connection, self.run.id)[0]
        usage.add(connection, turn, usage.ModelUse("/a", "anthropic", "m", Usage(input=1), 1), now_micros())

    def postings(self, connection: sa.Connection) -> None:
        request = postings.ForgeContent("status", {"state": "pending"}, "c" * 40)
        postings.want(connection, (self.run.id, 1), request, now_micros())

    def workers(self, connection: sa.Connection) -> None:
        worker_store.beat(connection, Worker(f"w{next(self.number)}", "m", "none", 1, 1, 1, 1), now_micros)

    def runwarden_meta(self, _connection: sa.Connection) -> None:
        self.database.secret("same")


@pytest.fixture
def house(database: Database) -> House:
    """A house with one organization."""
    return House(database)


CONTESTED = [name for name in vars(House) if name in schema.metadata.tables]


@pytest.mark.parametrize("table", CONTESTED)
def test_writers_at_once_do_not_fail_each_other(house: House, table: str) -> None:
    """All of them begin before the first commits, several times over."""
    act: Callable[[sa.Connection], None] = getattr(house, table)

    def write(gate: threading.Barrier) -> None:
        with house.database.write() as connection:
            connection.execute(sa.text("SELECT 1"))
            gate.wait()
            act(connection)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(3):
            gate = threading.Barrier(AT_ONCE)
            assert [future.exception() for future in [pool.submit(write, gate) for _ in range(AT_ONCE)]] == [
                None
            ] * AT_ONCE


def test_no_table_with_a_unique_key_was_forgotten() -> None:
    """Those that are not contested above have keys that only one process can have."""
    alone: dict[str, str] = {
        "invitations": "random ids and codes",
        "mails": "made with their invitation",
        "trials": "made with their organization",
        "audit": "random ids",
        "deliveries": "decided on one after the other: test_processes_on_one_database_decide_once",
        "deletions": "inserted unless it is there",
        "rate_limits": "inserted unless it is there, then updated",
    }
    assert sorted({*CONTESTED, *alone}) == sorted(schema.metadata.tables)
