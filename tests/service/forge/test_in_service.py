"""A run leads to its pull request in the real service: pushed over HTTP, posted by the worker, no token leaked."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Received
from tests.service.conftest import FORGE_TOKEN as TOKEN
from tests.service.conftest import NEEDS_SANDBOX, Api, Make
from tests.service.forge.forges import GitHubServer
from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository
from tests.waiting import eventually

SNOOP = """
import os, pathlib, subprocess, sys, json
task = json.load(sys.stdin)
seen = [f"{name}={value}" for name, value in os.environ.items()]
for place in pathlib.Path("/proc").glob("[0-9]*/*") if "look" in task["instructions"] else ():
    if place.name in ("environ", "cmdline"):
        try:
            seen.append(place.read_bytes().decode("utf-8", "replace").replace(chr(0), " "))
        except OSError:
            pass
seen.append(subprocess.run(["git", "config", "--list", "--show-origin"], capture_output=True, text=True).stdout)
pathlib.Path("seen.txt").write_text("\\n".join(seen))
print("\\n".join(seen))
pathlib.Path(".runwarden").mkdir()
finding = {"path": "seen.txt", "line": 1, "title": "Look, @all: " + task["instructions"]}
pathlib.Path(".runwarden/findings.json").write_text(json.dumps({"version": 1, "findings": [finding]}))
if "workflow" in task["instructions"]:
    pathlib.Path(".github/workflows").mkdir(parents=True)
    pathlib.Path(".github/workflows/ci.yml").write_text("on: push")
"""


@pytest.fixture
def forge() -> Iterator[GitHubServer]:
    with closing(GitHubServer()) as server:
        server.accounts = {TOKEN: "runwarden-bot"}
        server.diff = {"seen.txt": {1}}
        yield server


@pytest.fixture
def entry(forge: GitHubServer, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """An organization and its agent for `tenant`; its repository needs a token over HTTP."""
    made = make_repository(tmp_path / "git" / "acme" / "api", {"README.md": "# api\n"})
    script = tmp_path / "snoop.py"
    script.write_text(SNOOP, "utf-8")
    agent = {"name": "scribe", "argv": ["{python}", str(script)]}
    connected = {"platform": "github", "host": "127.0.0.1", "api_url": forge.url, "token_env": "FORGE_TOKEN"}

    def refresh(_: Received) -> None:
        lines = git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads", cwd=made).splitlines()
        forge.branches = dict(line.split(" ") for line in lines)

    forge.before = refresh
    with closing(GitHttpHost(tmp_path / "git", TOKEN)) as host:
        address = f"{host.origin}/{made.relative_to(tmp_path / 'git')}"
        yield {
            "agents": [agent | {"on_completion": {"pull_request": "ready", "review": True, "status": True}}],
            "hosts": [connected],
            "repositories": [{"name": "api", "platform": "github", "path": "acme/api", "url": address}],
        }


def results(api: Api, run_id: str) -> Any:
    return api.get(f"/external/runs/{run_id}").json()


def posted(api: Api, run_id: str) -> bool:
    return {one["state"] for one in results(api, run_id)["postings"]} == {"posted"}


@NEEDS_SANDBOX
def test_a_run_opens_its_pull_request_without_showing_the_token(
    tenant: Make, equipped: Any, entry: dict[str, Any], forge: GitHubServer
) -> None:
    """The token is not in the environment, /proc, configuration, log, diff, commit, answers or posts."""
    api = tenant(on=equipped, **entry)
    run_id = api.start("look around")
    assert api.ended(run_id)["status"] == "completed", api.log(run_id)
    eventually(lambda: posted(api, run_id), "the results are posted")
    told = results(api, run_id)
    kept = [api.get(f"/external/runs/{run_id}/{what}").text for what in ("turns/1/log", "turns/1/diff")]
    (request,) = forge.changes
    branch = told["branch_name"]
    refused = api.start("write a workflow")
    api.ended(refused)
    turn = results(api, refused)["turns"][0]

    assert (request.draft, request.branch, request.base) == (False, branch, "main")
    assert forge.shown(forge.branches[branch]) == {"runwarden/scribe": "success"}
    assert {one["kind"]: one["url"] for one in told["postings"]}["pull_request"] == request.url
    assert [one.body.partition("\n")[0] for one in forge.threads] == ["**minor**: Look, @\u200ball: look around"]
    assert "GIT_WORK_TREE" in kept[1], "the agent looked"
    told_all = [*kept, str([told, forge.changes, forge.statuses, forge.reviews, forge.threads]), api.service.log]
    assert [one for one in told_all if TOKEN in one] == []
    assert "[masked]" not in kept[0], "there was nothing to mask"
    assert "protected by '.github/workflows/'" in turn["reason"]
    assert results(api, refused)["branch_name"] not in forge.branches
    assert len(forge.changes) == 1
