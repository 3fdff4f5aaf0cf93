"""The database of either kind: of simultaneous writers, each succeeds or gets the reason."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from service.agents.options import Agent
from service.clock import now_micros
from service.egress.usage import Usage
from service.lab import history
from service.store import (
    agents,
    dispatch,
    events,
    hosts,
    organizations,
    postings,
    rate_limits,
    repositories,
    runs,
    schema,
    tokens,
    turn_files,
    turns,
    usage,
    workers,
)
from service.store.database import Database
from service.store.hosts import Host
from service.store.organizations import Offer
from service.store.rate_limits import RateLimiter
from service.store.repositories import Repository
from service.store.runs import Filters
from service.store.schema import HAS_QUESTION, WAS_CANCELLED
from service.store.turns import TurnOutcome
from service.store.workers import Worker
from tests.service.conftest import BOTH, NOW, accepted, order, organization
from tests.service.postgres import Cluster
from tests.waiting import present


@BOTH
def test_simultaneous_runs_are_ordered_by_commit(database: Database) -> None:
    """Of eight writers with one clock, each gets a run newer than all before it."""
    owner, start = organization(database), threading.Barrier(8)

    def accept(_: int) -> None:
        start.wait()
        for _ in range(5):
            with database.write() as connection:
                made = runs.accept(connection, order(owner), NOW)
                assert runs.page(connection, Filters(owner), None, 1)[0].id == made.id

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(accept, range(8)))
    with database.read() as connection:
        there = runs.page(connection, Filters(owner), None, 100)
        assert runs.by_id(connection, f"{there[0].id}\0") is None, "PostgreSQL takes no such parameter"

    assert len({run.created_at for run in there}) == 40


def test_only_large_counts_are_cached(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the latest large count is cached, for its own organization: first acme's, later the other one's."""
    monkeypatch.setattr(runs, "EXACT_BELOW", 3)
    monkeypatch.setattr(runs, "_MAX_KEPT", 1)
    now_s, found = [0.0], list[list[int]]()
    counts, owners = runs.RunCounter(lambda: now_s[0]), [accepted(database, "acme").organization_id for _ in range(3)]
    owners = [owners[0], accepted(database, "other").organization_id]
    for now_s[0] in (0.0, 0.0, 0.001, 0.001):
        with database.read() as connection:
            found.append([counts.count(connection, Filters(one)) for one in owners])
        for slug in ("acme", "other"):
            accepted(database, slug)

    assert found == [[3, 1], [3, 2], [5, 3], [6, 4]]


def test_cached_counts_are_looked_up_without_python_code(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads could switch there, and one that empties the cache during another's lookup can crash the interpreter."""
    monkeypatch.setattr(runs, "EXACT_BELOW", 1)
    owner, counts = accepted(database).organization_id, runs.RunCounter(lambda: 0.0)
    monkeypatch.setattr(Filters, "__eq__", lambda *_: pytest.fail("filters were compared"))
    with database.read() as connection:
        assert [counts.count(connection, Filters(owner)) for _ in range(2)] == [1, 1]


def test_a_name_belongs_to_one_repository(database: Database) -> None:
    """Within an organization, a path in other case is the same repository, and another path another."""
    owner, other = organization(database), organization(database, "other")
    with database.write() as connection:

        def put(path: str, of: str = owner) -> list[str]:
            repositories.save(connection, of, Repository("api", "github", path, "/a"), NOW)
            return [repository.path for repository in repositories.of(connection, of)]

        assert [put("acme/api"), put("Acme/API"), put("acme/web", other)] == [["acme/api"], ["Acme/API"], ["acme/web"]]
        with pytest.raises(ValueError, match="the name 'api' belongs to Acme/API; choose another name"):
            put("acme/web")


def test_a_turns_files_are_stored_and_replaced(database: Database) -> None:
    """A diff is replaced, a log grows, and an attempt that was taken over changes neither."""
    owner = organization(database)
    with database.write() as connection:
        key = (runs.accept(connection, order(owner), NOW).id, 1)
        for content in (b"first", b"second"):
            turn_files.save(connection, key, 0, "diff", content)
        for piece in (b"one\n", b"two\n"):
            turn_files.append_log(connection, key, 0, piece)
        pieces = [turn_files.read_log(connection, key, offset, 4) for offset in (0, 2, 4, 8)]
        turns.claim(connection, *key, "heir", NOW)
        turn_files.save(connection, key, 0, "diff", b"late")
        turn_files.append_log(connection, key, 0, b"late")
        turn_files.append_log(connection, key, 1, b"three\n")
        turn_files.pack_log(connection, key)

        assert pieces == [b"one\n", b"e\ntw", b"two\n", b""]
        assert turn_files.read_log(connection, key, 0, 100) == b"one\ntwo\nthree\n"
        assert (turn_files.log_size(connection, key), turn_files.log_size(connection, ("run_none", 1))) == (14, None)
        assert turn_files.content(connection, key, "diff") == b"second"
        assert turn_files.content(connection, key, "run.diff") is None


@BOTH
def test_only_a_turns_latest_attempt_ends_it(database: Database) -> None:
    """An attempt that was taken over cannot end it, updated_at never decreases, and one continuation wins."""
    owner, start = organization(database), threading.Barrier(6)
    with database.write() as connection:
        run = runs.accept(connection, order(owner), NOW)
        runs.touch(connection, run.id, NOW - 5_000_000, status="working")
        changed = present(runs.by_id(connection, run.id))
        first, second = (present(turns.claim(connection, run.id, 1, name, NOW))[1].attempt for name in ("a", "b"))
        outcomes = [TurnOutcome("failed", attempt=first), TurnOutcome("completed", attempt=second)]
        done = [turns.end(connection, run.id, 1, one, NOW) for one in (*outcomes, TurnOutcome("failed"))]
        ended = present(runs.by_id(connection, run.id))

    def follow(_: int) -> bool:
        start.wait()
        with database.write() as connection:
            return runs.resume(connection, ended, order(owner), NOW) is not None

    assert changed.updated_at == run.updated_at + 1
    assert (done, ended.status) == ([False, True, False], "completed")
    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(follow, range(6))) == [False] * 5 + [True]


def test_a_trial_starts_once(database: Database) -> None:
    """The trial has the signup's terms if the offer is unchanged, and otherwise the standard ones (spec 3)."""
    offer = Offer("TRIAL", "partner", price="49 EUR")
    for change, state in ((offer, "offer"), (replace(offer, price="59 EUR"), "standard"), (None, "standard")):
        owner = organization(database, f"{state}-{change is None}")
        with database.write() as connection:
            organizations.put_offer(connection, offer)
            organizations.sign_up(connection, owner, None if change is None else "TRIAL")
            before = present(organizations.trial_of(connection, owner)).state
            organizations.put_offer(connection, change or offer)
            organizations.start_trial(connection, owner, NOW)
            started = present(organizations.trial_of(connection, owner))
            organizations.put_offer(connection, replace(offer, retired=True))
            organizations.start_trial(connection, owner, NOW + 1)

            assert (before, started.state, started.started_at) == ("waiting", state, NOW)
            assert organizations.trial_of(connection, owner) == started


@contextlib.contextmanager
def asked_of(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """Return the statements sent to a database, with their parameters."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    sa.event.listen(database.engine, "before_cursor_execute", note)
    yield asked
    sa.event.remove(database.engine, "before_cursor_execute", note)


def test_a_minutes_requests_pass_at_once(database: Database) -> None:
    """Twelve pass at once, the thirteenth waits five seconds, and others have their own limit.

    It is in the database, so a new process or a clock set back does not reset it.
    """
    now_s = [NOW / 1_000_000]

    def limiter(per_minute: int) -> RateLimiter:
        return RateLimiter(database, per_minute, lambda: round(now_s[0] * 1_000_000), lambda: now_s[0])

    rate = limiter(12)
    at_once = [rate.wait_s("org") for _ in range(13)]
    now_s[0] += 4.9
    early = rate.wait_s("org")
    now_s[0] += 0.2

    assert at_once == [None] * 12 + [5]
    assert (early, rate.wait_s("org"), rate.wait_s("org"), rate.wait_s("other")) == (1, None, 5, None)
    for owner, seconds in (("restart", 0), ("clock set back", -3600)):
        assert limiter(1).wait_s(owner) is None
        now_s[0] += seconds
        assert limiter(1).wait_s(owner) == 60


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_simultaneous_processes_share_the_limit(database: Database) -> None:
    """Eight connections to PostgreSQL take at the same moment and get exactly ten of ten."""
    start = threading.Barrier(8)

    def ask(_: int) -> int:
        start.wait()
        taken = 0
        for _ in range(5):
            with database.write() as connection:
                taken += rate_limits.take(connection, "org", 1, 10, lambda: NOW)[0]
        return taken

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 10


@pytest.fixture(scope="module")
def contested(postgres: Cluster, tables: str) -> Iterator[Database]:
    """A PostgreSQL for all writers at once; each test has its own organization."""
    with contextlib.closing(Database(postgres.create("races", tables))) as made:
        yield made


def _continue(connection: sa.Connection, owner: str, run: runs.Run, _: int) -> None:
    turns.cancel(connection, run.id, "over", NOW)
    runs.resume(connection, runs.by_id(connection, run.id) or run, order(owner), NOW)


HOST = Host("github", "g", None, "api", "https://g", None, None)
AGENT = Agent("same", ("/bin/true",), 60, network=False, environment=())
PENDING = {"state": "pending"}
USE = usage.ModelUse("/a", "anthropic", "m", Usage(input=1), 1)
Act = Callable[[sa.Connection, str, runs.Run, int], object]
ACTS: dict[str, Act] = {
    "organizations": lambda c, owner, run, n: organizations.create(c, name="Same", now=NOW),
    "tokens": lambda c, owner, run, n: tokens.create(c, owner, scopes=("admin",), alias="same", now=NOW),
    "offers": lambda c, owner, run, n: organizations.put_offer(c, Offer("SAME", "partner")),
    "hosts": lambda c, owner, run, n: hosts.connect(c, owner, HOST, NOW),
    "repositories": lambda c, owner, run, n: repositories.save(c, owner, Repository("a", "github", "a/b", "/a"), NOW),
    "default_branches": lambda c, owner, run, n: repositories.note_default_branch(c, "/srv/a.git", f"branch-{n}"),
    "agents": lambda c, owner, run, n: agents.save(c, replace(AGENT, organization_id=owner if n % 2 else None), NOW),
    "runs": lambda c, owner, run, n: runs.accept(c, order(owner, branch="b"), NOW),
    "turns": _continue,
    "turn_files": lambda c, owner, run, n: turn_files.save(c, (run.id, 1), 0, "diff", b"said"),
    "artifacts": lambda c, owner, run, n: turn_files.put_artifact(c, (run.id, 1), 0, "a", 4, b"said"),
    "log_pieces": lambda c, owner, run, n: turn_files.append_log(c, (run.id, 1), 0, b"said"),
    "model_usage": lambda c, owner, run, n: usage.add(c, turns.of(c, run.id)[0], USE, NOW),
    "usage_days": lambda c, owner, run, n: usage.add(c, turns.of(c, run.id)[0], USE, NOW),
    "postings": lambda c, owner, run, n: postings.want(c, (run.id, 1), "status", PENDING, NOW, "c" * 40),
    "workers": lambda c, owner, run, n: workers.beat(c, Worker(f"w{n}", "m", "none", 1, 1, 1, 1), now_micros),
}
"""For each table with a unique key: a write that processes may do simultaneously."""


@pytest.mark.parametrize("table", [*ACTS, "runwarden_meta"])
def test_simultaneous_writers_do_not_fail(contested: Database, table: str) -> None:
    """All begin before the first commits, first without the row, then with it."""
    owner, numbers, at_once = organization(contested, f"org-{table.replace('_', '-')}"), count(), 8
    with contested.write() as connection:
        run = runs.accept(connection, order(owner), NOW)

    def write(gate: threading.Barrier) -> None:
        with contested.write() as connection:
            connection.execute(sa.text("SELECT 1"))
            gate.wait()
            if table == "runwarden_meta":
                contested.secret("same")
            else:
                ACTS[table](connection, owner, run, next(numbers))

    with ThreadPoolExecutor(at_once) as pool:
        for _ in range(2):
            gate = threading.Barrier(at_once)
            failures = [future.exception() for future in [pool.submit(write, gate) for _ in range(at_once)]]
            assert failures == [None] * at_once


def test_every_unique_key_is_tested() -> None:
    """Tables that are not tested above have keys that only one process can create."""
    alone = {
        "invitations": "random ids and codes",
        "trials": "made with their organization",
        "audit": "random ids",
        "deliveries": "decided on one after the other: test_processes_on_one_database_decide_once",
        "deletions": "inserted unless it is there",
        "event_endpoints": "random ids",
        "events": "random ids",
        "host_tokens": "inserted unless it is there, then updated: test_a_token_is_rotated_once_before_it_expires",
        "members": "inserted unless it is there",
        "messages": "random ids",
        "model_outages": "inserted unless it is there, or deleted",
        "rate_limits": "inserted unless it is there, then updated",
        "schedules": "made with their repository: test_each_time_of_a_schedule_starts_one_run",
        "sessions": "random values",
    }
    assert sorted({*ACTS, "runwarden_meta", *alone}) == sorted(schema.metadata.tables)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_frequent_queries_do_not_scan_ended_rows(database: Database) -> None:
    """With four thousand ended runs and events, neither a worker's rounds nor a page of a list scans them."""
    owner = organization(database)
    history.make(database, history.HistoryRequest(organization="acme", runs=4_000, span="1d", repositories=2), NOW)
    with database.write() as connection:
        endpoint = events.add_endpoint(connection, owner, "https://a.example/", events.TYPES, (), NOW).id
        told = "SELECT 'evt_' || id, :at, id, 'run.ended', '{}', 'delivered', 1, 1, 1, 1 FROM runs"
        columns = "id, endpoint_id, run_id, type, payload, state, attempts, occurred_at, wanted_at, due_at"
        connection.execute(sa.text(f"INSERT INTO events ({columns}) {told}"), {"at": endpoint})
        connection.execute(sa.text("ANALYZE"))
    with database.read() as connection:
        with asked_of(database) as asked:
            dispatch.due_jobs(connection, NOW)
            events.first_due(connection, endpoint, NOW)
            events.latest(connection, 11, owner)
            dispatch.next_turns(connection, 4, None, 0)
            turns.open_runs(connection)
            runs.has_more_active(connection, owner, 1000)
            for filters in (Filters(owner), Filters(owner, "failed"), Filters(None), Filters(None, "failed")):
                runs.page(connection, filters, None, 26)
            runs.is_worked_on(connection, "/srv/api.git", "main")
            runs.active(connection, Filters(None), 26)
            usage.totals(connection, None, owner, 0, 1)
            turns.last_turns(connection, owner, HAS_QUESTION, 100)
            turns.last_turns(connection, owner, WAS_CANCELLED, 1000)
        plans = [
            "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            for statement, parameters in asked
        ]

    assert len(plans) >= 6
    assert not [plan for plan in plans for name in ("runs", "turns", "events") if f"Seq Scan on {name}" in plan]
