"""Two other terminal programs next to the console, and two queues on PostgreSQL next to the service's.

`make bench-peers` installs them, each in an environment of its own, and measures.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from bench.busy import peer
from bench.figures import Figure, in_turn
from bench.first_paint import painted, visit
from bench.service import calling, organization, serving, set_up
from bench.tenants import repository
from bench.terminal import CONSOLE, RUNS, Terminal, cpu_s, environment, filled, ready
from service.clock import SECOND_MICROS, now_micros
from service.setup import AgentEntry
from service.store.database import Database
from service.store.schema import turns
from tests.service.postgres import cluster

ENVIRONMENTS = Path(sys.prefix, "peers")
PROGRAMS = {"harlequin": rb"Data Catalog", "posting": rb"Collection"}
"""What each shows first."""
ROUNDS, JOBS, REST_S = 7, 50, 30.0
QUEUES = {
    "procrastinate": """
from procrastinate import App, PsycopgConnector
async def connected(url, begun):
    app = App(connector=PsycopgConnector(conninfo=url))
    @app.task(name="nothing")
    async def nothing():
        begun()
    await app.open_async()
    await app.schema_manager.apply_schema_async()
    return app.run_worker_async(install_signal_handlers=False), nothing.defer_async
""",
    "pgqueuer": """
import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
async def connected(url, begun):
    queue, other = [PgQueuer(AsyncpgDriver(await asyncpg.connect(url))) for _ in range(2)]
    await queue.qm.queries.install()
    @queue.entrypoint("nothing")
    async def nothing(job):
        begun()
    return queue.run(), lambda: other.qm.queries.enqueue("nothing", None)
""",
}
"""`connected(URL, BEGUN)` returns a worker, whose jobs only call BEGUN, and a function that accepts such a job."""
MEASURED = """
import asyncio, json, os, sys, time
async def main():
    begun = asyncio.Queue()
    worker, accept = await connected(sys.argv[1], lambda: begun.put_nowait(time.perf_counter()))
    working = asyncio.create_task(worker)
    taken = []
    for _ in range(int(sys.argv[2])):
        # A worker at rest, as the service's is.
        await asyncio.sleep(0.2)
        asked = time.perf_counter()
        await accept()
        accepted = time.perf_counter()
        taken.append((accepted - asked, await begun.get() - asked))
    print(json.dumps(taken), flush=True)
    os._exit(0)
asyncio.run(main())
"""


def measure(count: int) -> Iterator[Figure]:
    """Nothing unless `make bench-peers` has installed them."""
    if Path(sys.prefix, ".peers").exists():
        yield from _programs(count)
        yield from _queues()


def _programs(count: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        env = filled(folder, count)
        visit(env)
        shown = {"": ([str(CONSOLE)], RUNS)}
        shown |= {name: ([str(_program(name, name))], pattern) for name, pattern in PROGRAMS.items()}
        starting = [lambda argv=argv, first=first: painted(argv, env, first) for argv, first in shown.values()]
        ours, *theirs = in_turn(*starting, rounds=ROUNDS)
        for name, other in zip(PROGRAMS, theirs, strict=True):
            yield Figure(f"first painted rows of {count:,} cached runs", ours, name, other, bar=0.35)
    resting = []
    with tempfile.TemporaryDirectory() as folder, peer(1_000) as base_url:
        env = environment(folder, base_url)
        for argv, first in shown.values():
            with Terminal(argv, env) as terminal:
                terminal.until(first)
                ready(terminal, 10.0)
                before = cpu_s(terminal.process.pid)
                terminal.written_in(REST_S)
                resting.append((cpu_s(terminal.process.pid) - before) / REST_S)
    ours, *theirs = resting
    for name, other in zip(PROGRAMS, theirs, strict=True):
        yield Figure("the console at rest, of a core", ours, name, max(other, 1e-9), "%", 100)


def _queues() -> Iterator[Figure]:
    with cluster() as server, tempfile.TemporaryDirectory() as folder:
        ours = _service(Path(folder), server.create("runwarden"))
        for name, source in QUEUES.items():
            argv = [str(_program(name, "python")), "-c", source + MEASURED, server.create(name), str(JOBS)]
            done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
            theirs = _medians(json.loads(done.stdout))
            for what, mine, other in zip(("accept a run", "until its turn begins"), ours, theirs, strict=True):
                yield Figure(f"{what}, on PostgreSQL", mine, f"a job of {name}", other)


def _service(root: Path, url: str) -> tuple[float, ...]:
    """Return how long a run that does nothing takes to be accepted, over HTTP, and to begin: from the request on."""
    database, agent = Database(url), AgentEntry(name="nothing", argv=("/bin/true",))
    [(_, token)] = set_up(database, [organization("Bench", str(repository(root / "origin", 1)))], agent)
    taken = []
    with serving(root, "--database", url) as base_url, calling(base_url, token) as client:
        for _ in range(JOBS):
            asked = now_micros()
            accepting = client.post("/external/agents/nothing/runs", json={"repository": "api"})
            accepted = now_micros()
            run_id = accepting.raise_for_status().json()["execution_id"]
            while client.get(f"/external/runs/{run_id}").json()["status"] in {"queued", "working"}:
                time.sleep(0.05)
            with database.read() as connection:
                begun = connection.execute(sa.select(turns.c.started_at).where(turns.c.run_id == run_id)).scalar_one()
            taken.append(((accepted - asked) / SECOND_MICROS, (begun - asked) / SECOND_MICROS))
    database.close()
    return _medians(taken)


def _medians(taken: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(map(statistics.median, zip(*taken, strict=True)))


def _program(peer: str, name: str) -> Path:
    return ENVIRONMENTS / peer / "bin" / name
