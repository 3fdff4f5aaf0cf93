"""The campaign: many runs, workers killed at random, and at the end everything is as if none had died."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lab import Received, Respond, Step, free_port
from tests.service.conftest import Api
from tests.service.deployment import Deployment, deployment
from tests.service.git_hosts import marked
from tests.service.processes import running
from tests.service.receiver import Receiver
from tests.service_process import Node, demo_setup
from tests.waiting import COLD_START_S, eventually

REPOSITORIES = ("acme/api", "acme/web")
DEADLINE_S = 1500
SETTINGS = "[execution]\nworker_ttl_s = 3\ndrain_s = 1\n[limits]\nrequests_per_minute = 1000000\n"
SETTINGS += '[events]\nretry_s = 0.2\nallow_private = ["127.0.0.1"]\n'
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


@contextlib.contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let something go on in a thread until the block ends and sets the event."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, over)
        try:
            yield
        finally:
            over.set()
        working.result()


class Killer:
    """Kills the process at random moments and starts it again."""

    def __init__(self, node: Node, seed: int, pause_s: tuple[float, float], most: int = 1_000_000) -> None:
        self.node, self.most, self.kills = node, most, 0
        self._random, self._pause_s = random.Random(seed), pause_s

    def kill(self, over: threading.Event) -> None:
        """Until that is over, or so many were killed."""
        while self.kills < self.most and not over.wait(self._random.uniform(*self._pause_s)):
            # Nothing would ever end if it were not let work for a while.
            wanted, deadline = ended_by(self.node) + self._random.randint(0, 5), time.monotonic() + 10
            while ended_by(self.node) < wanted and time.monotonic() < deadline and not over.is_set():
                over.wait(0.1)
            self.node.kill()
            self.kills += 1
            self.node.start()


def ended_by(node: Node) -> int:
    """Return how many turns a process, and those in its place before it, have ended."""
    return sum(" turn " in line and ("completed" in line or "failed" in line) for line in node.log.splitlines())


class Caller:
    """Asks the service, and asks again when there is no answer: a POST without an answer may have been accepted."""

    def __init__(self, client: Callable[[], Api], agent: str = "dawdler") -> None:
        self._client, self._agent = client, agent
        self.accepted: dict[str, list[str]] = {}
        """Run to the instructions of its turns."""

    def start(self, instructions: str, repository: str, branch: str | None = None) -> None:
        body = {"repository": repository, "inputs": {"instructions": instructions}, "branch_name": branch}
        answer = self._insist(lambda api: api.post(f"/external/agents/{self._agent}/runs", body))
        assert answer.status_code == 201, answer.text
        self.accepted[str(answer.json()["execution_id"])] = [instructions]

    def follow(self, run: dict[str, Any], instructions: str) -> None:
        """Give an ended run another turn, unless an unanswered request has done so already."""
        body = {"instructions": instructions, "repository": run["repository"], "run_id": run["run_id"]}
        answer = self._insist(lambda api: api.post("/external/runs", body))
        assert answer.status_code in {201, 409}, answer.text
        self.accepted[run["run_id"]].append(instructions)

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return every run by its id."""
        return {run["run_id"]: run for run in self._insist(lambda api: list(api.runs()))}

    def all_ended(self) -> dict[str, dict[str, Any]]:
        """Wait until every run that the service knows has ended."""
        runs: dict[str, dict[str, Any]] = {}

        def are_ended() -> bool:
            runs.update(self.listed())
            return all(run["status"] in {"completed", "failed"} for run in runs.values())

        eventually(are_ended, "all runs end", DEADLINE_S, pause_s=0.2)
        return runs

    def _insist(self, ask: Callable[[Api], Any]) -> Any:
        answers: list[Any] = []

        def is_answered() -> bool:
            # A page that is none, with a 503, has no runs either.
            with contextlib.suppress(httpx.TransportError, KeyError):
                answers.append(ask(self._client()))
            return bool(answers) and getattr(answers[-1], "status_code", 200) != 503

        eventually(is_answered, "there is an answer", COLD_START_S, pause_s=0.05)
        return answers[-1]


def run_campaign(caller: Caller, killer: Killer, runs: int, kills: int) -> None:
    """Start the runs and continue a quarter of them, until so many processes were killed."""
    draw = random.Random(runs)
    with meanwhile(killer.kill):
        for number in range(runs):
            # Every third shares a branch with others, every fifth fails.
            branch = f"shared/{number % 2}" if number % 3 == 0 else None
            caller.start(f"{'fail' if number % 5 == 4 else 'write'} {number}", draw.choice(REPOSITORIES), branch)
        ended = caller.all_ended()
        for run_id in list(caller.accepted)[::4]:
            caller.follow(ended[run_id], f"write again, {run_id}")
        caller.all_ended()
        while killer.kills < kills:
            caller.start("write until enough were killed", draw.choice(REPOSITORIES))
            caller.all_ended()


def check(made: Deployment, caller: Caller, receiver: Receiver) -> int:
    """Hold the service to its word; return how many turns needed more than one attempt."""
    runs = caller.listed()
    assert set(caller.accepted) <= set(runs), "a run that was answered with 201 is missing"
    found = marked(made.repositories[path] for path in REPOSITORIES)
    repeated, expected, wanted = 0, set(), Counter[tuple[str, int]]()
    for run_id in runs:
        turns = made.admin("run", run_id)["turns"]
        wanted.update((run_id, turn["turn"]) for turn in turns)
        repeated += sum(turn["attempt"] > 1 for turn in turns)
        for turn in turns:
            assert turn["status"] in {"completed", "failed"}
            expected |= {f"{run_id} turn {turn['turn']}"} if turn["status"] == "completed" else set()
            assert (turn["commit"] is not None) == (turn["status"] == "completed"), turn
        for turn, asked in zip(turns, caller.accepted.get(run_id, ()), strict=False):
            assert turn["status"] == ("failed" if asked.startswith("fail") else "completed"), (turn, asked)
    assert found == dict.fromkeys(expected, 1), "a turn was committed twice or not at all"
    for kind in ("run.started", "run.ended"):
        eventually(lambda kind=kind: len(receiver.told(kind)) >= wanted.total(), f"all {kind} are told", DEADLINE_S)
        told = Counter((one["run_id"], one["turn"]) for one in receiver.told(kind))
        assert told == wanted, f"{kind} is told once of each turn"
    assert receiver.refused == []
    return repeated


LONG = (pytest.mark.campaign, pytest.mark.timeout(3600))


# Among several machines over PostgreSQL, see test_outages.py and test_postgresql.py.
@pytest.mark.parametrize(
    ("runs", "kills"), [(6, 2), pytest.param(30, 20, marks=LONG), pytest.param(200, 20, marks=LONG)]
)
def test_no_death_of_a_worker_loses_or_doubles_anything(tmp_path: Path, runs: int, kills: int) -> None:
    """Every run ends, every turn has one commit and is told of once, no process and no folder is left."""
    (tmp_path / "dawdler.py").write_text(DAWDLER, "utf-8")
    folder = tmp_path / "deployment"
    setup = demo_setup(folder)
    setup["agents"].append({"name": "dawdler", "argv": ["{python}", str(tmp_path / "dawdler.py")]})
    with Receiver() as receiver, deployment(folder, settings=SETTINGS, setup=setup) as made:
        receiver.secret = made.admin("events", "endpoints", "add", receiver.origin, "--org", "acme")["secret"]
        draw = random.Random(kills)

        def flawed(request: Received) -> Step:
            """Of every fifth event: say that it was not taken, or do not take it."""
            is_flawed = draw.random() < 0.2
            answer = Respond(503) if is_flawed and draw.random() < 0.5 else receiver.answer(request)
            return Respond(503) if is_flawed else answer

        receiver.otherwise = flawed
        # A kill takes the API with it. The address is its own: while it is dead, no other connection takes the port.
        address = ("--host", "127.77.0.1", "--port", str(free_port()))
        api = made.begin("serve", *address, "--workers", str(min(4, runs // 3)))
        caller = Caller(lambda: made.client(api))
        # The short one starts few processes, also where a slow machine gives time for many kills.
        killer = Killer(api, runs, (0, 1.5), kills if runs < 10 else 1_000_000)
        run_campaign(caller, killer, runs, kills)
        repeated = check(made, caller, receiver)
    # What the last of the killed left is swept up at the next start.
    api.start()
    assert api.stop() == 0

    assert made.leftovers() == []
    assert running(naming=str(tmp_path)) == []
    assert killer.kills >= kills
    print(f"{runs} runs, {killer.kills} kills, {repeated} turns taken up again")
