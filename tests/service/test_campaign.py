"""The campaign: many runs, workers killed at random, and at the end everything is as if none had died."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lab import free_port
from tests.service.deployment import Deployment, deployment
from tests.service.processes import naming
from tests.service_process import Node, demo_setup, git

WORKERS = 4
REPOSITORIES = ("acme/api", "acme/web")
DEADLINE_S = 1500
SETTINGS = '[execution]\nsandbox = "prefer"\nworker_ttl_s = 3\ndrain_s = 1\n[limits]\nrequests_per_minute = 1000000\n'
# Takes its time, so that it is often at work when its worker is killed; starts what would stay if left alone.
DAWDLER = """
import json, os, pathlib, random, subprocess, sys, time
task = json.load(sys.stdin)
subprocess.Popen(["sleep", "3600"], start_new_session=True)
time.sleep(random.random())
if task["instructions"].startswith("fail"): sys.exit(3)
folder = pathlib.Path("notes"); folder.mkdir(exist_ok=True)
(folder / f"{task['run_id']}-{task['turn']}").write_text(task["instructions"])
"""


@dataclass
class Record:
    """What the campaign asked for, and what happened."""

    accepted: dict[str, list[str]] = field(default_factory=dict)
    """Run to the instructions of its turns."""
    kills: int = 0


@contextlib.contextmanager
def killing(nodes: list[Node], record: Record, rng: random.Random, most: int) -> Iterator[None]:
    """Kill one of the processes at random moments and start it again, until the block ends or so many were killed."""
    over = threading.Event()

    def kill() -> None:
        while record.kills < most and not over.wait(rng.uniform(0, 1.5)):
            node = rng.choice(nodes)
            # Where there is one process, nothing would ever end if it were not let work for a while.
            wanted, deadline = ended_by(node) + (rng.randint(0, 5) if len(nodes) == 1 else 0), time.monotonic() + 10
            while ended_by(node) < wanted and time.monotonic() < deadline and not over.is_set():
                over.wait(0.1)
            node.kill()
            record.kills += 1
            node.start()

    with ThreadPoolExecutor(1) as pool:
        killer = pool.submit(kill)
        try:
            yield
        finally:
            over.set()
        killer.result()


def ended_by(node: Node) -> int:
    """Return how many turns a process, and those in its place before it, have ended."""
    return sum(" turn " in line and ("completed" in line or "failed" in line) for line in node.log.splitlines())


class Caller:
    """Asks the service, and asks again when there is no answer: a POST without an answer may have been accepted."""

    def __init__(self, made: Deployment, node: Node, record: Record) -> None:
        self._made = made
        self._unit = node
        self._record = record

    def start(self, instructions: str, repository: str, branch: str | None) -> str:
        """Start a run and return its id."""
        body = {"repository": repository, "inputs": {"instructions": instructions}, "branch_name": branch}
        answer = self._ask("POST", "/external/agents/dawdler/runs", json=body)
        assert answer.status_code == 201, answer.text
        run_id = str(answer.json()["execution_id"])
        self._record.accepted[run_id] = [instructions]
        return run_id

    def follow(self, run: dict[str, Any], instructions: str) -> None:
        """Give an ended run another turn, unless an unanswered request has done so already."""
        body = {"instructions": instructions, "repository": run["repository"], "run_id": run["run_id"]}
        answer = self._ask("POST", "/external/runs", json=body)
        assert answer.status_code in {201, 409}, answer.text
        self._record.accepted[run["run_id"]].append(instructions)

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return every run by its id."""
        found: dict[str, dict[str, Any]] = {}
        token: dict[str, str] | None = {}
        while token is not None:
            page = self._ask("GET", "/external/runs", params={"page_size": "100"} | token).json()
            found |= {run["run_id"]: run for run in page["runs"]}
            token = {"page_token": page["next_token"]} if page["next_token"] else None
        return found

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError), self._made.client(self._unit).http as client:
                answer = client.request(method, path, **options)
                if answer.status_code != 503:
                    return answer
            threading.Event().wait(0.1)
        raise AssertionError("no answer any more")


def all_ended(caller: Caller) -> dict[str, dict[str, Any]]:
    """Wait until every run that the service knows has ended."""
    deadline = time.monotonic() + DEADLINE_S
    while any(run["status"] not in {"completed", "failed"} for run in caller.listed().values()):
        assert time.monotonic() < deadline, "not all runs end"
        threading.Event().wait(0.5)
    return caller.listed()


def run_campaign(made: Deployment, nodes: list[Node], api: Node, runs: int, kills: int, rng: random.Random) -> Record:
    """Start the runs and continue a quarter of them, until so many processes were killed; return the record."""
    record = Record()
    caller = Caller(made, api, record)
    # The short one starts few processes, also where a slow machine gives time for many kills.
    with killing(nodes, record, rng, kills if runs < 10 else 1_000_000):
        for number in range(runs):
            # Every third shares a branch with others, every fifth fails.
            branch = f"shared/{number % 2}" if number % 3 == 0 else None
            caller.start(f"{'fail' if number % 5 == 4 else 'write'} {number}", rng.choice(REPOSITORIES), branch)
        ended = all_ended(caller)
        for run_id in list(record.accepted)[::4]:
            caller.follow(ended[run_id], f"write again, {run_id}")
        all_ended(caller)
        while record.kills < kills:
            caller.start("write until enough were killed", rng.choice(REPOSITORIES), None)
            all_ended(caller)
    return record


def check(made: Deployment, api: Node, record: Record) -> int:
    """Hold the service to its word; return how many turns needed more than one attempt."""
    runs = Caller(made, api, record).listed()
    assert set(record.accepted) <= set(runs), "a run that was answered with 201 is missing"
    form = "--format=%(trailers:key=Runwarden-Run,valueonly,separator=%x2C)"
    logs = [git("log", "--branches", form, cwd=made.repositories[path]) for path in REPOSITORIES]
    found = Counter(line for log in logs for line in log.splitlines() if line)
    repeated = 0
    expected = set()
    for run_id in runs:
        turns = made.admin("run", run_id)["turns"]
        repeated += sum(turn["attempt"] > 1 for turn in turns)
        for turn in turns:
            assert turn["status"] in {"completed", "failed"}
            expected |= {f"{run_id} turn {turn['turn']}"} if turn["status"] == "completed" else set()
            assert (turn["commit"] is not None) == (turn["status"] == "completed"), turn
        for turn, asked in zip(turns, record.accepted.get(run_id, ()), strict=False):
            assert turn["status"] == ("failed" if asked.startswith("fail") else "completed"), (turn, asked)
    assert set(found) == expected
    assert set(found.values()) == {1}, "a turn was committed twice"
    return repeated


LONG = (pytest.mark.campaign, pytest.mark.timeout(3600))


@pytest.mark.parametrize(
    ("kind", "runs", "kills"),
    [
        # Among several machines, each way to lose a worker has a test of its own (test_postgresql.py).
        ("sqlite", 6, 2),
        *(pytest.param(kind, runs, 12, marks=LONG) for kind in ("sqlite", "postgresql") for runs in (30, 200)),
    ],
)
def test_no_death_of_a_worker_loses_or_doubles_anything(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, runs: int, kills: int, record_testsuite_property: Any
) -> None:
    """Every run ends, every turn has exactly one commit, no process and no folder is left."""
    url = None if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    (tmp_path / "dawdler.py").write_text(DAWDLER, "utf-8")
    folder = tmp_path / "deployment"
    setup = demo_setup(folder)
    setup["agents"].append({"name": "dawdler", "argv": ["{python}", str(tmp_path / "dawdler.py")]})
    rng = random.Random(runs)
    count = min(WORKERS, runs // 3)
    began = time.monotonic()
    with deployment(folder, url, settings=SETTINGS, setup=setup) as made:
        if url is None:
            # One process that serves and executes: a kill takes the API with it.
            # The address is its own: while the process is dead, no other connection takes the port.
            address = ("--host", "127.77.0.1", "--port", str(free_port()))
            api = made.begin("serve", *address, "--workers", str(count))
            nodes = [api]
        else:
            api = made.api()
            workers = [made.begin("worker", "--workers", "1", machine=f"worker{n}") for n in range(count)]
            nodes = [api, *workers]
        record = run_campaign(made, nodes, api, runs, kills, rng)
        repeated = check(made, api, record)
        took_s = time.monotonic() - began
    # The last of the killed are swept up by those who lived, at the latest when they start.
    for node in nodes:
        node.start()
    assert [node.stop() for node in nodes] == [0] * len(nodes)

    assert made.leftovers() == []
    assert naming(str(tmp_path)) == []
    assert record.kills >= kills
    figures = f"{kind}: {runs} runs, {record.kills} kills, {repeated} turns taken up again, {took_s:.0f} s"
    record_testsuite_property("campaign", figures)
    print(figures)
