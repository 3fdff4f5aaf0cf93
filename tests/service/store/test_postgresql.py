"""Many processes over one PostgreSQL: any API accepts, any worker executes, and no death loses or doubles anything."""

import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from dbos import DBOSClient

from service.agents.options import AgentOptions
from service.clock import now_micros
from service.egress.budget import Spending
from service.store import workers
from service.store.database import DATABASE_DOWN, Database
from service.store.postgresql import connector
from service.store.usage import TurnMeter
from tests.proxy import DatabaseLink
from tests.service.conftest import Api
from tests.service.deployment import Deployment, deployment
from tests.service.postgres import Cluster
from tests.service_process import Node, git
from tests.waiting import COLD_START_S, eventually

# An hour, so that a slow worker is never taken for dead.
SETTINGS = '[execution]\nsandbox = "none"\nworker_ttl_s = 3600\ndrain_s = 0.1\n[limits]\nrequests_per_minute = 100000\n'
HASTY = SETTINGS.replace("worker_ttl_s = 3600", "worker_ttl_s = 2")


@pytest.fixture(scope="module")
def shared(postgres: Cluster, tables: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An API without a worker, over its own PostgreSQL."""
    folder = tmp_path_factory.mktemp("deployment")
    with deployment(folder, postgres.create("many", tables), settings=SETTINGS) as made:
        made.api("first")
        yield made


@pytest.fixture
def many(shared: Deployment, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """The same service for one test, which stops the workers that the test starts."""
    shared.settings = getattr(request, "param", SETTINGS)
    yield shared
    while len(shared.nodes) > 1:
        shared.nodes.pop().stop()


hasty = pytest.mark.parametrize("many", [HASTY], indirect=True, ids=["hasty"])
"""Workers count each other as dead after two seconds."""


def commits(made: Deployment, run: dict[str, Any]) -> list[str]:
    return git("log", "--format=%s", f"main..{run['branch_name']}", cwd=made.repositories["acme/api"]).splitlines()


@hasty
def test_a_killed_workers_turn_is_taken_over(many: Deployment, tmp_path: Path) -> None:
    """Kill -9 of a worker stops its agent; the turn is taken over after its lease, and there is one commit."""
    client, worker, run_id, gate = begun(many, tmp_path)
    cancelled = client.start(f"wait {gate}")
    eventually(lambda: "sandbox:" in log_of(many, cancelled, "victim"), "its agent starts, too")
    worker.kill()
    assert client.post(f"/external/runs/{cancelled}/cancel", {}).status_code == 202
    assert client.follow(cancelled, "write it").status_code == 201
    eventually(lambda: not [left for left in many.leftovers() if "scribe" in left], "the agents are gone")
    gate.touch()
    many.begin("worker", machine="heir")
    client.reaches(run_id, "completed")
    client.reaches(cancelled, "completed")

    assert len(commits(many, client.run(run_id))) == 1
    assert many.admin("run", run_id)["turns"][0]["attempt"] == 2
    first, second = client.turns(cancelled)
    assert (first["outcome"], second["outcome"]) == ("cancelled", "completed")
    assert "attempt 2" not in log_of(many, cancelled, "heir")
    many.begin("worker", machine="victim")
    # Leftovers of other machines are removed when a worker starts there again.
    left = lambda: many.leftovers("victim")  # noqa: E731
    eventually(lambda: left() == [], "the victim's machine is tidy again", saw=left)


def begun(many: Deployment, tmp_path: Path) -> tuple[Api, Node, str, Path]:
    """Start a run that waits for a gate, and return it with its worker."""
    client = many.client(many.nodes[0])
    worker = many.begin("worker", machine="victim")
    gate = tmp_path / "gate"
    run_id = client.start(f"wait {gate}")
    eventually(lambda: "sandbox:" in log_of(many, run_id, "victim"), "the agent starts")
    return client, worker, run_id, gate


def log_of(many: Deployment, run_id: str, machine: str) -> str:
    return str(many.admin("run", run_id, "--log", machine=machine)["turns"][0]["log"])


@hasty
def test_a_frozen_worker_pushes_nothing(many: Deployment, tmp_path: Path) -> None:
    """A worker was frozen and its turn taken over; its late commit is not pushed, and the turn is the new worker's."""
    client, sleeper, run_id, gate = begun(many, tmp_path)
    sleeper.signal(signal.SIGSTOP)
    heir = many.begin("worker", machine="heir")
    eventually(lambda: "sandbox:" in log_of(many, run_id, "heir"), "the heir has taken the turn over")
    gate.touch()
    client.reaches(run_id, "completed")
    landed = commits(many, client.run(run_id))
    sleeper.signal(signal.SIGCONT)
    eventually(lambda: "not executed again" in sleeper.log or "pushed" in log_of(many, run_id, "victim"), "it wakes up")
    eventually(lambda: not list((many.machine("victim") / "work").iterdir()), "it has tidied up")
    eventually(lambda: heir.ready["worker"] in str(many.admin("status")["workers"]), "the heir is alive")

    assert commits(many, client.run(run_id)) == landed
    assert len(landed) == 1
    assert many.admin("run", run_id)["turns"][0]["attempt"] == 2


def test_a_stopping_worker_hands_its_turn_over(many: Deployment, tmp_path: Path) -> None:
    """After SIGTERM the turn continues elsewhere, without waiting for a lease of an hour.

    Although two workers are free, the second run of a branch waits for the first and builds on its commit.
    """
    client, worker, run_id, gate = begun(many, tmp_path)
    status = worker.stop()
    gate.touch()
    many.begin("worker", machine="heir")
    client.reaches(run_id, "completed")

    assert status == 0
    assert "turns were interrupted" in worker.log
    assert len(commits(many, client.run(run_id))) == 1
    assert many.leftovers("victim") == []

    many.begin("worker", machine="two")
    first = client.start(f"wait {tmp_path / 'other-gate'}", branch_name="shared")
    client.reaches(first, "working")
    second = client.start("write second", branch_name="shared")
    client.reaches(client.start("write elsewhere", branch_name="own"), "completed")
    waiting = client.run(second)["status"]
    (tmp_path / "other-gate").touch()
    client.reaches(second, "completed")

    assert waiting == "queued"
    assert [subject.split()[1] for subject in commits(many, client.run(second))] == ["write", "wait"]


def test_an_unowned_turn_is_requeued(many: Deployment, tmp_path: Path) -> None:
    """The worker died after it was taken for dead, or after the turn continued elsewhere.

    Another worker takes it up.
    """
    client, worker, first, gate = begun(many, tmp_path)
    second = client.start(f"wait {gate}")
    eventually(lambda: "sandbox:" in log_of(many, second, "victim"), "its agent starts, too")
    worker.kill()
    # The queue takes it for finished.
    DBOSClient(system_database_engine=many.database.engine).cancel_workflow(f"{second}:1")
    gate.touch()
    many.begin("worker", machine="heir")
    client.reaches(second, "completed")
    held = client.run(first)["status"]
    with many.database.write() as connection:
        workers.forget(connection, worker.ready["worker"])
    client.reaches(first, "completed")

    assert held == "working", "its worker is on record"
    for run_id in (first, second):
        assert len(commits(many, client.run(run_id))) == 1
        assert many.admin("run", run_id)["turns"][0]["attempt"] == 2


def test_a_silent_network_fails_only_one_call(
    postgres: Cluster, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A call whose packets are lost fails after a timeout, and waiting work continues when the database is back.

    Model usage during the outage is recorded afterwards, and its turn does not fail.
    """
    turn: Any = SimpleNamespace(run_id="run_1", number=1)
    agent: Any = SimpleNamespace(key="a", options=AgentOptions())
    link = DatabaseLink(postgres.port)
    url = postgres_url.replace(f":{postgres.port}/", f":{link.port}/")
    with closing(Database(url)) as database, ThreadPoolExecutor(1) as pool:
        spent = pool.submit(TurnMeter(database, turn, agent, now_micros).spent)
        eventually(lambda: "waits for the database" in caplog.text, "it waits")
        with link:
            assert spent.result(60) == Spending()
            with closing(connector(sa.make_url(url))()) as connection:
                connection.answer_s = 0.2
                link.become("loses")
                with pytest.raises(psycopg.OperationalError, match="did not answer"):
                    connection.execute("SELECT 1")

                assert connection.closed
            link.become("carries")
            with database.read() as again:
                assert again.scalar(sa.text("SELECT 1")) == 1


def test_a_session_ended_by_the_server_is_an_outage(postgres_url: str) -> None:
    """A frozen worker's locks are released; when it continues, it tries again instead of failing its turn."""
    with closing(Database(postgres_url)) as database, database.read() as connection:
        frozen = connection.execute(sa.select(sa.func.pg_backend_pid())).scalar_one()
        connection.execute(sa.text("SET idle_in_transaction_session_timeout = 1"))

        def is_ended() -> bool:
            with database.read() as other:
                living = sa.text(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {frozen}")
                return other.execute(living).scalar() == 0

        eventually(is_ended, "the server ends the session")
        with pytest.raises(DATABASE_DOWN):
            connection.execute(sa.text("SELECT 1"))


def test_a_worker_without_file_descriptors_requeues_its_turn(many: Deployment, tmp_path: Path) -> None:
    """The machine is at fault, so the turn waits until files can be opened again."""
    client = many.client(many.nodes[0])
    many.settings = SETTINGS.replace("drain_s", "put_back_s = 0.5\ndrain_s")
    worker = many.begin("worker", machine="poor")
    # The turn starts before the shortage, since a worker cannot even begin one without a file to open.
    run_id = client.start(f"wait {tmp_path / 'gate'}")
    eventually(lambda: "scribe at work" in str(many.admin("run", run_id, "--log")), "it works", COLD_START_S)
    limits = resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    (tmp_path / "gate").touch()
    eventually(lambda: "is returned to the queue" in worker.log, "the worker puts it back", saw=lambda: worker.log)
    resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, limits)

    assert client.ended(run_id)["status"] == "completed"


def test_a_start_waits_for_its_database(postgres: Cluster, postgres_url: str, tmp_path: Path) -> None:
    """The start logs that once, and becomes ready when the database is there."""
    link = DatabaseLink(postgres.port)
    node = Node(["worker", "--database", postgres_url.replace(str(postgres.port), str(link.port), 1)], tmp_path, {})
    with ThreadPoolExecutor() as pool:
        started = pool.submit(node.start)
        eventually((node.data_dir / "serve.log").exists, "the start begins", COLD_START_S)
        eventually(lambda: "waits for the database" in node.log, "it waits", COLD_START_S)
        with link:
            started.result()
            node.stop()

    assert node.log.count("waits for the database") == 1


def test_closed_connections_are_replaced_before_use(postgres: Cluster) -> None:
    """No caller sees an error after a restart of the server, however many connections were idle."""
    with postgres.temporary() as url, closing(Database(url)) as database:
        with database.read() as first, database.read() as second:
            sessions = [c.execute(sa.select(sa.func.pg_backend_pid())).scalar_one() for c in (first, second)]
        with psycopg.connect(postgres.url(), autocommit=True) as operator:
            for session in sessions:
                operator.execute("SELECT pg_terminate_backend(%s, 10000)", [session])

        with database.read() as first, database.write() as second:
            new = {c.execute(sa.select(sa.func.pg_backend_pid())).scalar_one() for c in (first, second)}

    assert len(new) == 2
    assert not new & {*sessions}


def test_a_server_that_closes_new_connections_is_an_outage(postgres: Cluster) -> None:
    """A caller tries again, as after any other connection that the server closed."""
    with postgres.temporary() as url, closing(Database(url)) as database:
        with database.read() as connection:
            connection.execute(sa.text("SELECT 1"))

        @sa.event.listens_for(database.engine, "connect")
        def close(connection: psycopg.Connection[Any], _record: object) -> None:
            with psycopg.connect(postgres.url(), autocommit=True) as operator:
                operator.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])

        database.engine.dispose()
        with pytest.raises(DATABASE_DOWN), database.read() as connection:
            connection.execute(sa.text("SELECT 1"))
