"""The campaign against the code host: it refuses, resets, stalls and is gone at every step, while workers die."""

import contextlib
import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Drop, Raw, Received, Respond, Step, free_port
from tests.service.conftest import FORGE_TOKEN, UNBOXED, member, placed
from tests.service.deployment import Deployment, deployment
from tests.service.forge.forges import GitHubServer
from tests.service.git_hosts import GitHttpHost, marked
from tests.service.test_campaign import Caller, Killer, meanwhile
from tests.service_process import git, make_repository
from tests.waiting import eventually

SEEDS = [int(seed) for seed in os.environ.get("RUNWARDEN_OUTAGE_SEEDS", "1,2,3,4,5,6,7,8,9,10").split(",")]
TURNS = int(os.environ.get("RUNWARDEN_OUTAGE_TURNS", "300"))
SILENCE_S = 20
"""How long a fetch or push may be silent."""
SETTINGS = f"{UNBOXED}worker_ttl_s = 3\ndrain_s = 1\ngit_timeout_s = {SILENCE_S}\nlook_s = 0.2\n"
SETTINGS += "[limits]\nrequests_per_minute = 1000000\n[forge]\nretry_s = 0.3\ntimeout_s = 5\n"
# Writes down when it begins and ends: each beginning costs a customer money.
AGENT = """
import json, pathlib, random, sys, time
task = json.load(sys.stdin)
name = f"{task['run_id']} turn {task['turn']}"
def note(what):
    with pathlib.Path("{paid}").open("a") as file: file.write(f"{what} {name}\\n")
note("begins")
time.sleep(random.random() / 2)
folder = pathlib.Path("notes"); folder.mkdir(exist_ok=True)
(folder / name.replace(" ", "-")).write_text(task["instructions"])
note("ends")
"""


class Weather:
    """What the code host does with each request: by kind, half of all requests fail while it is bad."""

    kinds = ("refuses", "refuses", "resets", "loses answers", "cuts answers", "stalls", "is gone", "is gone")

    def __init__(self, seed: int, host: GitHttpHost, forge: GitHubServer) -> None:
        self._random, self.kind = random.Random(seed), "fair"
        self.done: Counter[str] = Counter()
        for server, usual in ((host.server, host.serve), (forge, forge.otherwise)):
            server.otherwise = self._answers(usual)
            server.greet = lambda: Drop("accepted") if self.kind == "is gone" else None

    def _answers(self, usual: Callable[[Received], Any]) -> Callable[[Received], Step]:
        def answer(request: Received) -> Step:
            kind = self.kind if self._random.random() < 0.5 else "fair"
            step = "api" if "git-" not in request.target else request.target.rpartition("git-")[2]
            if kind != "fair":
                self.done[f"{kind}: {request.method} {step}"] += 1
            if kind == "refuses":
                return Respond(self._random.choice((502, 503, 429)), headers={"Retry-After": "1"})
            if kind == "resets":
                return Drop(then=self._random.choice(("reset", "close")))
            if kind == "stalls":
                time.sleep(self._random.choice((2, 5, SILENCE_S + 5)))
            found: Step = usual(request)
            if kind == "loses answers":
                return Drop()
            if kind == "cuts answers" and isinstance(found, Respond) and isinstance(found.body, bytes):
                head = "".join(f"{name}: {value}\r\n" for name, value in found.headers.items())
                head = f"HTTP/1.1 200 OK\r\n{head}Content-Length: {len(found.body) + 1}\r\n\r\n"
                return Raw(head.encode() + found.body[: len(found.body) // 2], "reset")
            return found

        return answer

    def change(self, over: threading.Event) -> None:
        """Be bad for a few seconds now and then, until that is over."""
        while not over.wait(self._random.uniform(4, 16)):
            self.kind = self._random.choice(self.kinds)
            self.done[self.kind] += 1
            over.wait(self._random.uniform(0.5, 7))
            self.kind = "fair"


def heads_of(bare: Path) -> dict[str, str]:
    """Return the commit of each branch."""
    heads = git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads", cwd=bare)
    return dict(line.split(" ") for line in heads.splitlines())


def check(made: Deployment, caller: Caller, bare: Path, paid: Path) -> Counter[str]:
    """Hold the service to its word; return how many turns were waited for, and how many lost their worker."""
    notes = Counter(paid.read_text("utf-8").splitlines())
    counts: Counter[str] = Counter()
    wanted: set[str] = set()
    branches: Counter[str] = Counter()
    for run_id, run in caller.listed().items():
        for turn in made.admin("run", run_id, "--log")["turns"]:
            name = f"{run_id} turn {turn['turn']}"
            wanted.add(name)
            branches[run["branch_name"]] += 1
            assert turn["status"] == "completed", (name, turn)
            waits = turn["log"].count("the slot is free, and the next attempt is in")
            lost = turn["attempt"] - waits - 1
            counts += Counter({"waited": waits > 0, "lost their worker": lost > 0, "turns": 1})
            # Only the death of a worker costs a second beginning, and only before the commit was kept.
            assert 1 <= notes[f"begins {name}"] <= 1 + lost, (name, notes[f"begins {name}"], turn)
    assert marked([bare]) == dict.fromkeys(wanted, 1)
    for name, count in branches.items():
        assert len((bare / "logs/refs/heads" / name).read_text().splitlines()) == count, f"{name} was pushed twice"
    return counts


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_code_host_does_each_turn_is_paid_and_pushed_once(tmp_path: Path, seed: int) -> None:
    """Every turn ends with one commit on its branch, none fails, and one pull request is open for each branch."""
    paid = tmp_path / "paid"
    (tmp_path / "agent.py").write_text(AGENT.replace("{paid}", str(paid)), "utf-8")
    bare = make_repository(tmp_path / "git" / "acme" / "api", {"README.md": "# api\n"})
    git("config", "core.logAllRefUpdates", "always", cwd=bare)
    with (
        contextlib.closing(GitHttpHost(tmp_path / "git", FORGE_TOKEN)) as host,
        contextlib.closing(GitHubServer()) as forge,
    ):
        forge.accounts = {FORGE_TOKEN: "runwarden-bot"}

        def refresh(_: Received) -> None:
            # With every commit, as a branch of its own: a status may come when its branch has moved.
            commits = git("rev-list", "--branches", cwd=bare).split()
            forge.branches = dict(zip(commits, commits, strict=True)) | heads_of(bare)

        forge.before = refresh
        weather = Weather(seed, host, forge)
        connected = {"platform": "github", "host": "127.0.0.1", "api_url": forge.url, "token_env": "FORGE_TOKEN"}
        agent: dict[str, Any] = {"name": "dawdler", "argv": ["{python}", str(tmp_path / "agent.py")]}
        agent["on_completion"] = {"pull_request": "ready", "status": True}
        owner = member(hosts=[connected], repositories=[placed(f"{host.url}/acme/api.git")])
        setup = {"organizations": [owner], "agents": [agent]}
        with deployment(tmp_path / "deployment", settings=SETTINGS, setup=setup) as made:
            made.environment["FORGE_TOKEN"] = FORGE_TOKEN
            node = made.begin("serve", "--host", "127.77.0.1", "--port", str(free_port()), "--workers", "3")
            caller, killer, begun = Caller(lambda: made.client(node)), Killer(node, seed, (15, 90)), time.monotonic()
            with meanwhile(weather.change), meanwhile(killer.kill):
                for number in range(TURNS * 4 // 5):
                    branch = f"shared/{number % 3}" if number % 5 == 0 else None
                    caller.start(f"write {number}", "acme/api", branch)
                ended = caller.all_ended()
                for run_id in list(caller.accepted)[::4]:
                    caller.follow(ended[run_id], f"write again, {run_id}")
                caller.all_ended()
            took_s = time.monotonic() - begun

            def owed() -> list[Any]:
                runs = [made.client(node).get(f"/external/runs/{run_id}").json() for run_id in caller.accepted]
                return [(run["run_id"], one) for run in runs for one in run["postings"] if one["state"] != "posted"]

            eventually(lambda: not owed(), "everything is posted", 300, saw=owed, pause_s=1)
            counts = check(made, caller, bare, paid)
            changes = Counter(change.branch for change in forge.changes)
            pushed = {name: sha for name, sha in heads_of(bare).items() if name != "main"}
            logs = node.log

    assert changes == dict.fromkeys(pushed, 1)
    assert [name for name, sha in pushed.items() if set(forge.shown(sha).values()) != {"success"}] == []
    assert "Traceback" not in logs, re.findall(r"Traceback.{,3000}", logs, re.DOTALL)[0]
    print(f"seed {seed}: {took_s:.0f} s, {killer.kills} kills, {dict(counts)}, {json.dumps(weather.done, indent=1)}")
