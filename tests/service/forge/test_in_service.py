"""From a run to its pull request, with the real service: pushed over HTTP, posted by the worker, and no token lost."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Drop, Received
from tests.service.conftest import FORGE_TOKEN as TOKEN
from tests.service.conftest import NEEDS_SANDBOX, UNBOXED, Api, Make, served
from tests.service.forge.forges import Forge, ForgejoServer, GitHubServer
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


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One that soon asks a code host again."""
    settings = f"{UNBOXED}[forge]\nretry_s = 0.1\n"
    with served(tmp_path_factory, "forge", settings, environment={"FORGE_TOKEN": TOKEN}) as made:
        yield made


@pytest.fixture
def forge(request: pytest.FixtureRequest) -> Iterator[Forge]:
    with closing(getattr(request, "param", GitHubServer)()) as server:
        server.accounts = {TOKEN: "runwarden-bot"}
        server.diff = {"seen.txt": {1}}
        yield server


@pytest.fixture
def entry(forge: Forge, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """An organization and its agent, as `tenant` takes them; its repository is served over HTTP, by token only."""
    made = make_repository(tmp_path / "git" / "acme" / "api", {"README.md": "# api\n"})
    with closing(GitHttpHost(tmp_path / "git", TOKEN)) as host:
        script = tmp_path / "snoop.py"
        script.write_text(SNOOP, "utf-8")
        agent = {"name": "scribe", "argv": ["{python}", str(script)]}
        platform = "gitea" if forge.platform == "forgejo" else forge.platform
        connected = {"platform": platform, "host": "127.0.0.1", "api_url": forge.url, "token_env": "FORGE_TOKEN"}
        address = f"{host.url}/{made.relative_to(tmp_path / 'git')}"

        def refresh(_: Received) -> None:
            lines = git("for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads", cwd=made).splitlines()
            forge.branches = dict(line.split(" ") for line in lines)

        forge.before = refresh
        yield {
            "agents": [agent | {"on_completion": {"pull_request": "ready", "review": True, "status": True}}],
            "hosts": [connected],
            "repositories": [{"name": "api", "platform": platform, "path": "acme/api", "url": address}],
        }


def results(api: Api, run_id: str) -> Any:
    return api.get(f"/external/runs/{run_id}").json()


def posted(api: Api, run_id: str) -> bool:
    return {one["state"] for one in results(api, run_id)["postings"]} == {"posted"}


@NEEDS_SANDBOX
def test_a_run_opens_its_pull_request_and_its_agent_never_sees_the_token(
    tenant: Make, equipped: Any, entry: dict[str, Any], forge: GitHubServer
) -> None:
    """Neither in the environment, /proc, configuration, log, diff and commit, nor in what is told and posted."""
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


@pytest.mark.parametrize("forge", [ForgejoServer], indirect=True)
def test_a_worker_killed_between_push_and_answer_opens_and_reviews_one_pull_request(
    service: Any, tenant: Make, entry: dict[str, Any], forge: Forge
) -> None:
    """Kill -9 before the answer to the request was heard: the next start finds it by its head."""
    api = tenant(on=service, **entry)

    def kill(received: Received) -> Drop | None:
        if received.method == "POST" and received.path.endswith("/pulls"):
            forge.after = lambda _: None
            api.service.process.kill()
            return Drop()
        return None

    forge.after = kill
    run_id = api.start("write it down")
    eventually(lambda: len(forge.changes) == 1, "the pull request is made", saw=lambda: forge.asked)
    api.service.ended()
    api.service.restart()
    eventually(lambda: posted(api, run_id), "the results are posted")

    assert (len(forge.changes), len(forge.reviews), len(forge.threads)) == (1, 1, 1)
