"""Campaigns with many runs, workers killed at random and a failing code host, after which every result is complete."""

import contextlib
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lab import Drop, Received, Respond, Step, free_port
from tests.service.conftest import UNBOXED, Api, member, placed
from tests.service.deployment import Deployment, deployment, running
from tests.service.git_hosts import GitHttpHost, marked
from tests.service.servers import Receiver
from tests.service_process import Node, demo_setup, git, make_repository
from tests.waiting import COLD_START_S, eventually

REPOSITORIES = ("acme/api", "acme/web")
DEADLINE_S = 1500
SETTINGS = "[execution]\nworker_ttl_s = 3\ndrain_s = 1\n[limits]\nrequests_per_minute = 1000000\n"
SETTINGS += '[events]\nretry_s = 0.2\nallow_private = ["127.0.0.1"]\n'
# It works slowly enough to be killed often, and starts processes that would survive if they were left alone.
DAWDLER = """
import json, os, pathlib, random, subprocess, sys, time
task = json.load(sys.stdin)
subprocess.Popen(["sleep", "3600"], start_new_session=True)
time.sleep(random.random())
if task["instructions"].startswith("fail"): sys.exit(3)
folder = pathlib.Path("notes"); folder.mkdir(exist_ok=True)
(folder / f"{task['run_id']}-{task['turn']}").write_text(task["instructions"])
"""


class Killer:
    """Kills a process at random moments and starts it again."""

    def __init__(self, node: Node, seed: int, pause_s: tuple[float, float], most: int = 1_000_000) -> None:
        self.node, self.most, self.kills = node, most, 0
        self._random, self._pause_s = random.Random(seed), pause_s

    def kill(self, over: threading.Event) -> None:
        """Kill until `is_over`, or until this many were killed."""
        while self.kills < self.most and not over.wait(self._random.uniform(*self._pause_s)):
            # Nothing would ever finish without some undisturbed time.
            wanted, deadline = ended_by(self.node) + self._random.randint(0, 5), time.monotonic() + 10
            while ended_by(self.node) < wanted and time.monotonic() < deadline and not over.is_set():
                over.wait(0.1)
            self.node.kill()
            self.kills += 1
            self.node.start()


def ended_by(node: Node) -> int:
    """Return how many turns a process, and its predecessors, have finished."""
    return sum(" turn " in line and ("completed" in line or "failed" in line) for line in node.log.splitlines())


class Caller:
    """Sends requests, and repeats those without an answer: a POST without an answer may have been accepted."""

    def __init__(self, client: Callable[[], Api], agent: str = "dawdler") -> None:
        self._client, self._agent = client, agent
        self.accepted: dict[str, list[str]] = {}
        """The instructions of each run's turns."""

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
        """Wait until every run that the service lists has ended."""
        runs: dict[str, dict[str, Any]] = {}

        def are_ended() -> bool:
            runs.update(self.listed())
            return all(run["status"] in {"completed", "failed"} for run in runs.values())

        eventually(are_ended, "all runs end", DEADLINE_S, pause_s=0.2)
        return runs

    def _insist(self, ask: Callable[[Api], Any]) -> Any:
        answers: list[Any] = []

        def is_answered() -> bool:
            # A 503 has no runs, and is not a page.
            with contextlib.suppress(httpx.TransportError, KeyError):
                answers.append(ask(self._client()))
            return bool(answers) and getattr(answers[-1], "status_code", 200) != 503

        eventually(is_answered, "there is an answer", COLD_START_S, pause_s=0.05)
        return answers[-1]


def run_campaign(
    caller: Caller, killer: Killer, runs: int, kills: int, places: Sequence[str] = REPOSITORIES, fails: int = 5
) -> None:
    """Start the runs and continue a quarter of them, until this many processes were killed."""
    draw, over = random.Random(runs), threading.Event()
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as killing:
        working = pool.submit(killer.kill, over)
        killing.callback(over.set)
        for number in range(runs):
            # Every third shares a branch with others, and some fail.
            branch = f"shared/{number % 2}" if number % 3 == 0 else None
            caller.start(f"{'write' if (number + 1) % fails else 'fail'} {number}", draw.choice(places), branch)
        ended = caller.all_ended()
        for run_id in list(caller.accepted)[::4]:
            caller.follow(ended[run_id], f"write again, {run_id}")
        caller.all_ended()
        while killer.kills < kills:
            caller.start("write until enough were killed", draw.choice(places))
            caller.all_ended()
    working.result()


def check(made: Deployment, caller: Caller, receiver: Receiver | None, places: Sequence[str] = REPOSITORIES) -> int:
    """Check all promises of the service; return how many turns needed more than one attempt."""
    runs = caller.listed()
    assert set(caller.accepted) <= set(runs), "a run that was answered with 201 is missing"
    found = marked(made.repositories[path] for path in places)
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
    for kind in ("run.started", "run.ended") if receiver else ():
        eventually(lambda kind=kind: len(receiver.told(kind)) >= wanted.total(), f"all {kind} are told", DEADLINE_S)
        told = Counter((one["run_id"], one["turn"]) for one in receiver.told(kind))
        assert told == wanted, f"{kind} is told once of each turn"
    assert receiver is None or receiver.refused == []
    return repeated


# Among several machines over PostgreSQL, see test_outages.py and test_postgresql.py.
@pytest.mark.parametrize(
    ("runs", "kills"), [(6, 2), pytest.param(200, 20, marks=[pytest.mark.campaign, pytest.mark.timeout(3600)])]
)
def test_killed_workers_lose_and_repeat_nothing(tmp_path: Path, runs: int, kills: int) -> None:
    """Every run ends, every turn has one commit and one event, and no process or folder is left."""
    (tmp_path / "dawdler.py").write_text(DAWDLER, "utf-8")
    folder = tmp_path / "deployment"
    setup = demo_setup(folder)
    setup["agents"].append({"name": "dawdler", "argv": ["{python}", str(tmp_path / "dawdler.py")]})
    with Receiver() as receiver, deployment(folder, settings=SETTINGS, setup=setup) as made:
        receiver.secret = made.admin("events", "endpoints", "add", receiver.origin, "--org", "acme")["secret"]
        draw = random.Random(kills)

        def flawed(request: Received) -> Step:
            """Report an error for every fifth event, whether it was accepted or not."""
            is_flawed = draw.random() < 0.2
            answer = Respond(503) if is_flawed and draw.random() < 0.5 else receiver.answer(request)
            return Respond(503) if is_flawed else answer

        receiver.otherwise = flawed
        # A kill stops the API too. It has an address of its own: while it is dead, no other connection takes the port.
        address = ("--host", "127.77.0.1", "--port", str(free_port()))
        api = made.begin("serve", *address, "--workers", str(min(4, runs // 3)))
        caller = Caller(lambda: made.client(api))
        # The short campaign starts few processes, even if a slow machine leaves time for many kills.
        killer = Killer(api, runs, (0, 1.5), kills if runs < 10 else 1_000_000)
        run_campaign(caller, killer, runs, kills)
        repeated = check(made, caller, receiver)
    # The last killed process's remains are removed at the next start.
    api.start()
    assert api.stop() == 0

    assert made.leftovers() == []
    assert running(naming=str(tmp_path)) == []
    assert killer.kills >= kills
    print(f"{runs} runs, {killer.kills} kills, {repeated} turns taken up again")


TURNS = int(os.environ.get("RUNWARDEN_OUTAGE_TURNS", "300"))
WEATHER_S = 5.0
"""The last turns send a request every two minutes: in weather that only requests change, they would never end."""


def unsteady(host: GitHttpHost, seed: int) -> Callable[[Received], Step]:
    """Answers of a code host that fails every second of dozens of requests in a row, for some seconds."""
    draw, weather = random.Random(seed), ("fair", 0.0)

    def answer(request: Received) -> Step:
        nonlocal weather
        now = time.monotonic()
        if draw.random() < 0.03 or now > weather[1] + WEATHER_S:
            weather = draw.choice(("fair", "fair", "refuses", "resets", "loses answers")), now
        kind = weather[0] if draw.random() < 0.5 else "fair"
        if kind == "refuses":
            return Respond(draw.choice((502, 503, 429)), headers={"Retry-After": "1"})
        if kind == "resets":
            return Drop()
        served = host.serve(request)
        return Drop() if kind == "loses answers" else served

    return answer


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_every_turn_is_paid_and_pushed_once_despite_the_code_host(tmp_path: Path, seed: int) -> None:
    """The host refuses, resets or hangs at every step while workers die, and each turn has one commit and one push.

    An agent only starts a second time if its worker died before the commit was stored.
    """
    paid, agent = tmp_path / "paid", tmp_path / "agent.py"
    note = f"""pathlib.Path("{paid}").open("a").write(f"{{task['run_id']}} turn {{task['turn']}}\\n")\n"""
    agent.write_text(DAWDLER.replace("subprocess.Popen", f"{note}subprocess.Popen", 1), "utf-8")
    bare = make_repository(tmp_path / "git" / "acme" / "api", {"README.md": "# api\n"})
    git("config", "core.logAllRefUpdates", "always", cwd=bare)
    with contextlib.closing(GitHttpHost(tmp_path / "git")) as host:
        owner = member(repositories=[placed(f"{host.origin}/acme/api.git")])
        setup = {"organizations": [owner], "agents": [{"name": "dawdler", "argv": ["{python}", str(agent)]}]}
        host.otherwise = unsteady(host, seed)
        settings = f"{UNBOXED}worker_ttl_s = 3\ndrain_s = 1\n[limits]\nrequests_per_minute = 1000000\n"
        settings += "[forge]\nretry_s = 0.3\n"
        with deployment(tmp_path / "deployment", settings=settings, setup=setup) as made:
            made.repositories = {"acme/api": bare}
            node = made.begin("serve", "--host", "127.77.0.1", "--port", str(free_port()), "--workers", "3")
            caller, killer = Caller(lambda: made.client(node)), Killer(node, seed, (15, 90))
            run_campaign(caller, killer, TURNS * 4 // 5, 0, ["acme/api"], fails=TURNS)
            repeated = check(made, caller, None, ["acme/api"])
            begun, branches = Counter(paid.read_text("utf-8").splitlines()), Counter[str]()
            for run_id, run in caller.listed().items():
                for turn in made.admin("run", run_id, "--log")["turns"]:
                    name = f"{run_id} turn {turn['turn']}"
                    lost = turn["attempt"] - turn["log"].count("the slot is free, and the next attempt is in") - 1
                    assert 1 <= begun[name] <= 1 + lost, (name, begun[name], turn)
                    branches[run["branch_name"]] += turn["commit"] is not None
    for branch, count in (+branches).items():
        pushes = (bare / "logs/refs/heads" / branch).read_text().splitlines()
        assert len(pushes) == count, f"{branch} was pushed twice"
    assert "Traceback" not in node.log, re.findall(r"Traceback.{,3000}", node.log, re.DOTALL)[0]
    print(f"seed {seed}: {killer.kills} kills, {repeated} turns taken up again")
