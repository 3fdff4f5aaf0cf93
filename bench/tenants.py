"""What one tenant of the service costs another: a full queue, slow code hosts, large bodies; and many branches."""

import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.figures import Figure, in_turn, timed
from bench.service import calling, serving, set_up
from service.setup import AgentEntry, HostEntry, OrganizationEntry, RepositoryEntry, TokenEntry
from service.store.database import Database

QUEUED = 200
ONBOARDINGS = 80
BRANCHES = 5000
FEW = 5
ROUNDS = 40
_BODIES = 4
_AGENTS = (
    AgentEntry(name="slow", argv=("/bin/sleep", "2")),
    AgentEntry(name="quick", argv=("/bin/sh", "-c", "date +%s%N > changed")),
)


def measure(_count: int) -> Iterator[Figure]:
    """Each over a real socket from one process over SQLite with two places; the bars are the promises."""
    with tempfile.TemporaryDirectory() as folder, _silent_host() as port:
        data_dir = Path(folder)
        first, second = _fill(data_dir, port)
        with (
            serving(data_dir) as base_url,
            calling(base_url, first) as one,
            calling(base_url, second) as other,
            calling(base_url.removesuffix("/v1"), second) as probe,
        ):
            many, few = in_turn(_turn(other, "many"), _turn(other, "few"), rounds=9)
            yield Figure(f"a turn at {BRANCHES:,} branches", many, f"a turn at {FEW}", few, bar=1.5)
            alone = statistics.median(timed(lambda: _list(other)) for _ in range(ROUNDS))
            yield Figure("a tenant's list", alone, "50 ms", 0.05)
            listed = _beside(lambda: _post_large(base_url, first), lambda: _list(other), _BODIES)
            yield Figure("another tenant's list beside 1 MB bodies", listed, "50 ms", 0.05, bar=1.0)
            alive = _beside(lambda: _onboard(base_url, first), lambda: probe.get("/livez"), ONBOARDINGS)
            yield Figure(f"/livez beside {ONBOARDINGS} slow onboardings", alive, "100 ms", 0.1, bar=1.0)
            turn = timed(lambda: _ended(other, _start(other, "slow", "few")))
            for _ in range(QUEUED):
                _start(one, "slow", "few")
            waited = timed(lambda: _left_queue(other, _start(other, "slow", "few")))
            yield Figure(f"a run's start behind {QUEUED} of another tenant", waited, "one turn", turn, bar=1.0)


def _fill(data_dir: Path, port: int) -> tuple[str, str]:
    """Make two organizations on two repositories; return their tokens."""
    repositories = tuple(
        RepositoryEntry(name=name, platform="github", path=f"bench/{name}", url=str(repository(data_dir / name, count)))
        for name, count in (("few", FEW), ("many", BRANCHES))
    )
    host = HostEntry(platform="gitlab", host="127.0.0.1", api_url=f"http://127.0.0.1:{port}/api/v4")
    entries = tuple(
        OrganizationEntry(name=name, tokens=(TokenEntry(alias="bench"),), repositories=repositories, hosts=(host,))
        for name in ("First", "Second")
    )
    database = Database(f"sqlite:///{data_dir / 'service.sqlite'}")
    (_, first), (_, second) = set_up(database, entries, *_AGENTS)
    database.close()
    return first, second


def repository(folder: Path, branches: int) -> Path:
    """Make a bare repository with so many branches, packed as code hosts pack them."""
    head = "committer A <a@b.invalid> 1735689600 +0000\ndata 1\nx\n"
    stream = f"commit refs/heads/main\n{head}M 100644 inline file\ndata 1\nx\n\n"
    for number in range(branches):
        stream += f"commit refs/heads/b/{number}\n{head}from refs/heads/main\nM 100644 inline f{number}\ndata 1\nx\n\n"
    init = ["git", "init", "--quiet", "--bare", "--initial-branch=main", str(folder)]
    subprocess.run(init, check=True)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=folder, input=stream.encode(), check=True)
    subprocess.run(["git", "pack-refs", "--all"], cwd=folder, check=True)
    return folder


@contextmanager
def _silent_host() -> Iterator[int]:
    """A code host that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:
        yield int(server.getsockname()[1])


def _start(client: httpx.Client, agent: str, repository: str) -> str:
    answer = client.post(f"/external/agents/{agent}/runs", json={"repository": repository})
    return str(answer.raise_for_status().json()["execution_id"])


def _status(client: httpx.Client, run_id: str) -> str:
    runs = client.get("/external/runs", params={"page_size": "100"}).raise_for_status().json()["runs"]
    return str(next(run["status"] for run in runs if run["run_id"] == run_id))


def _left_queue(client: httpx.Client, run_id: str) -> None:
    while _status(client, run_id) == "queued":
        time.sleep(0.02)


def _ended(client: httpx.Client, run_id: str) -> None:
    while _status(client, run_id) not in {"completed", "failed"}:
        time.sleep(0.02)


def _turn(client: httpx.Client, repository: str) -> Callable[[], float]:
    return lambda: timed(lambda: _ended(client, _start(client, "quick", repository)))


def _beside(burden: Callable[[], object], ask: Callable[[], object], at_once: int) -> float:
    """Return the median time of an answer while another process's threads repeat something else."""

    def repeat() -> None:
        while True:
            burden()

    def burdens() -> None:
        for _ in range(at_once):
            threading.Thread(target=repeat).start()

    # Not threads of this one: they would take its time, and not only the service's.
    other = multiprocessing.get_context("fork").Process(target=burdens, daemon=True)
    other.start()
    try:
        time.sleep(1)
        return statistics.median(timed(ask) for _ in range(ROUNDS))
    finally:
        other.kill()
        other.join()


_LARGE = json.dumps({"instructions": "x", "repository": {}, "metadata": {"x": "y" * ((1 << 20) - 100)}})


def _post_large(base_url: str, token: str) -> None:
    with calling(base_url, token) as client:
        while True:
            client.post("/external/runs", content=_LARGE, headers={"Content-Type": "application/json"})


def _list(client: httpx.Client) -> None:
    client.get("/external/runs").raise_for_status()


def _onboard(base_url: str, token: str) -> None:
    with calling(base_url, token) as client:
        client.post("/external/gitlab/projects", json={"project_path": f"group/p{os.urandom(4).hex()}"})
