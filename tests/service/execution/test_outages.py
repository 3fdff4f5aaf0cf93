"""Campaigns against a PostgreSQL that dies, hangs and returns while workers die; each turn still ends once."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.proxy import DatabaseLink
from tests.service.conftest import UNBOXED, Api, member, placed
from tests.service.deployment import Deployment, deployment
from tests.service.execution.test_campaign import Caller
from tests.service.git_hosts import marked
from tests.service.postgres import Cluster
from tests.service_process import Node, make_repository
from tests.waiting import eventually

SETTINGS = f"{UNBOXED}drain_s = 1\n[limits]\nrequests_per_minute = 1000000\n"
ORGANIZATIONS = 6
PLACES = 2
"""The slots of each worker."""
SETTLED_S = 60
"""Within this time of the database's return, every turn is taken up again."""
SEEDS = [int(seed) for seed in os.environ.get("RUNWARDEN_OUTAGE_SEEDS", "1,2,3,4,5,6,7,8,9,10").split(",")]
MAX_S = 1500
OPEN = "status IN ('queued', 'working')"
TURNS = int(os.environ.get("RUNWARDEN_OUTAGE_TURNS", "300"))


def setup(folder: Path, gate: Path) -> dict[str, Any]:
    """Six organizations with a repository each, and agents that write their instructions, at once or at a gate."""
    organizations = []
    for name in (f"org{number}" for number in range(ORGANIZATIONS)):
        bare = make_repository(folder / name / "api", {"README.md": "# api\n"})
        organizations.append(member(name, repositories=[placed(bare, f"{name}/api")]))
    agents = [
        {"name": "dawdler", "argv": ["sh", "-c", "sleep 0.$(($$ % 4)); cat > turn.json"]},
        {"name": "waiter", "argv": ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.2; done; cat > turn.json"]},
    ]
    return {"organizations": organizations, "agents": agents}


class Storms:
    """Breaks the database, its network, and the workers."""

    def __init__(self, server: Cluster, url: str, link: DatabaseLink, workers: list[Node], seed: int) -> None:
        self._server, self._url, self._link, self._workers = server, url, link, workers
        self._random = random.Random(seed)

    def storm(self) -> None:
        """Cause one to three outages in a row with worker faults in between, and wait until all turns are taken up."""
        struck = self._random.sample(self._workers, self._random.randint(0, len(self._workers)))
        with ThreadPoolExecutor(len(self._workers)) as pool:
            strikes = [pool.submit(self._strike, worker, random.Random(self._random.random())) for worker in struck]
            for _ in range(self._random.choice((1, 1, 2, 3))):
                self._outage(self._random.choice(("immediate", "immediate", "fast", "holds", "loses")))
                time.sleep(self._random.uniform(0, 2))
            self._settle()
            for each in strikes:
                each.result()
        self._settle()

    def _outage(self, kind: Any) -> None:
        """Break the database for a while."""
        is_crash = kind in {"immediate", "fast"}
        self._server.stop(kind) if is_crash else self._link.become(kind)
        time.sleep(self._random.uniform(0.5, 14))
        self._server.start() if is_crash else self._link.become("carries")

    def _strike(self, worker: Node, draw: random.Random) -> None:
        """Kill or freeze a worker, and bring it back as its supervisor would."""
        time.sleep(draw.uniform(0, 12))
        is_frozen = draw.random() < 1 / 3
        worker.signal(signal.SIGSTOP) if is_frozen else worker.kill()
        time.sleep(draw.uniform(0, 15))
        if is_frozen:
            worker.signal(signal.SIGCONT)
        else:
            eventually(lambda: is_started(worker), "the worker starts", MAX_S, pause_s=1)

    def _settle(self) -> None:
        """Wait until each turn that had a slot has ended or was taken up again."""
        before = open_turns(self._url)

        def is_settled() -> bool:
            now = open_turns(self._url)
            return not [run_id for run_id in before if run_id in now and now[run_id][1] == before[run_id][1]]

        def saw() -> object:
            held = "SELECT workflow_uuid, status, executor_id FROM dbos.workflow_status WHERE completed_at IS NULL"
            return open_turns(self._url), rows(self._url, held), rows(self._url, "SELECT * FROM workers")

        eventually(is_settled, "each turn ends or is taken up again", SETTLED_S, saw=saw, pause_s=0.1)


def is_started(worker: Node) -> bool:
    """Start a worker; without a database it exits, perhaps before this returns."""
    with contextlib.suppress(AssertionError, ProcessLookupError):
        worker.start()
        return True
    return False


@contextlib.contextmanager
def world(tmp_path: Path, server: Cluster, url: str, workers: int) -> Iterator[tuple[Deployment, DatabaseLink]]:
    """An API and workers over a database, each with its own network to it."""
    folder = tmp_path / "deployment"
    with DatabaseLink(server.port) as link:
        their_url = url.replace(f":{server.port}/", f":{link.port}/")
        document = setup(folder, tmp_path / "gate")
        with deployment(folder, their_url, settings=SETTINGS, setup=document) as made:
            made.api()
            for number in range(workers):
                made.begin("worker", "--workers", str(PLACES), machine=f"worker{number}")
            yield made, link


def start(made: Deployment, turns: int, agent: str = "dawdler") -> None:
    """Start turns of one organization after the other, every fifth on a shared branch."""
    callers = [Caller(lambda owner=owner: Api(made.nodes[0], owner), agent) for owner in made.organizations]
    for number in range(turns):
        branch = "shared" if number % 5 == 0 and agent == "dawdler" else None
        callers[number % ORGANIZATIONS].start("go", f"org{number % ORGANIZATIONS}/api", branch)


def rows(url: str, asked: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(asked).fetchall()


def open_turns(url: str) -> dict[str, tuple[Any, ...]]:
    """Return run, attempt, worker and status of each turn that has a slot, by its run."""
    asked = f"SELECT run_id, attempt, executor, status FROM turns WHERE dispatched_at IS NOT NULL AND {OPEN}"
    return {row[0]: row for row in rows(url, asked)}


def ended(url: str) -> bool:
    return rows(url, f"SELECT count(*) FROM turns WHERE {OPEN}") == [(0,)]


def check_end(made: Deployment, url: str, turns: int, gate: Path) -> None:
    """Use all slots at once, and check the service's promises."""
    places = PLACES * (len(made.nodes) - 1)
    start(made, places, "waiter")
    working = "SELECT count(*) FROM turns WHERE status = 'working'"
    eventually(lambda: rows(url, working) == [(places,)], f"{places} places are taken", pause_s=0.1)
    gate.touch()
    eventually(lambda: ended(url), "all turns end", pause_s=0.1)
    outcomes = rows(url, "SELECT run_id, number, status, failure FROM turns")

    assert [row for row in outcomes if row[2] != "completed"] == []
    assert len(outcomes) >= turns + places
    bares = [Path(one["repositories"][0]["url"]) for one in made.organizations]
    assert marked(bares) == {f"{run_id} turn {number}": 1 for run_id, number, *_ in outcomes}


def test_a_database_restart_costs_no_turn(tmp_path: Path, postgres: Cluster, postgres_url: str) -> None:
    """The database crashes and restarts under a worker; requests get 503 until then, and each turn ends once."""
    url = postgres_url
    with world(tmp_path, postgres, url, 1) as (made, _):
        client = made.client(made.nodes[0])
        start(made, 8)
        eventually(lambda: open_turns(url) != {}, "a worker works")
        postgres.stop("immediate")
        refused = client.get("/external/runs")
        eventually(lambda: "waits for the database" in made.nodes[1].log, "the worker notices")
        postgres.start()
        eventually(lambda: client.get("/external/runs").status_code == 200, "the API answers again")
        eventually(lambda: ended(url), "all turns end", pause_s=0.1)
        check_end(made, url, 8, tmp_path / "gate")
        logs = "".join(node.log for node in made.nodes)

    assert (refused.status_code, refused.json()["error_code"]) == (503, "database_unavailable")
    assert refused.headers["Retry-After"] == "2"
    assert "Traceback" not in logs


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_turn_ends_once_despite_a_database_crash(
    tmp_path: Path, postgres: Cluster, postgres_url: str, seed: int
) -> None:
    """Each turn resumes within a minute of the database's return; none fails or is doubled, and no slot is lost."""
    workers, url = 2 + seed % 2, postgres_url
    with world(tmp_path, postgres, url, workers) as (made, link):
        storms = Storms(postgres, postgres_url, link, made.nodes[1:], seed)
        start(made, TURNS)
        for _ in range(TURNS // 30):
            if not ended(url):
                storms.storm()
        eventually(lambda: ended(url), "all turns end", MAX_S, saw=lambda: open_turns(url), pause_s=0.2)
        check_end(made, url, TURNS, tmp_path / "gate")
