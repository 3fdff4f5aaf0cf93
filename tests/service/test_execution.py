"""From an accepted turn to a commit, with real git and real agent processes (docs/run/agent-contract.md)."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Respond, Server
from tests.service.conftest import NEEDS_SANDBOX, Api, Make, Own
from tests.service.deployment import deployment
from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository


def task_of(api: Any, run_id: str, turn: int) -> dict[str, Any]:
    """Return the task document that the scribe committed."""
    repository = api.service.repositories["acme/api"]
    branch = api.run(run_id)["branch_name"]
    document: dict[str, Any] = json.loads(git("show", f"{branch}:notes/{run_id}-{turn}.json", cwd=repository))
    return document


def test_a_turn_becomes_one_marked_commit_on_its_branch(own: Own) -> None:
    """With the agent's message, our author and our trailer; on the branch that is named; none without a change.

    Plain runs are the reviewer's, which commits a review.
    """
    api, repository = own(branches={"fix/login": {"login.py": "# TODO: check the password\n"}})
    reviewer = ("--argv", "{python} -P -m service.reviewer", "--org", api.organization["slug"])
    api.service.admin("agent", "add", "reviewer", *reviewer)
    plain = {"instructions": "review this", "branch_name": "plain"}
    plain |= {"repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}}}
    new, named, none = api.start("write"), api.start("go on", branch_name="fix/login"), api.start("nothing to do")
    reviewed = api.post("/external/runs", plain).json()["run_id"]
    run, *_, empty, _ = ended = [api.ended(one) for one in (new, named, none, reviewed)]

    assert [one["status"] for one in ended] == ["completed"] * 4, api.log(reviewed)
    assert git("log", "--format=%an <%ae>%n%B", f"main..{run['branch_name']}", cwd=repository).splitlines() == [
        "Runwarden reviewer <reviewer@runwarden.invalid>",
        "scribe: write",
        "",
        f"Runwarden-Run: {new} turn 1",
    ]
    subjects = git("log", "--format=%s", "main..fix/login", cwd=repository)
    assert subjects.splitlines() == ["scribe: go on", "Work on fix/login"]
    assert git("branch", "--list", empty["branch_name"], cwd=repository) == ""
    assert f"reviews/{reviewed}.md" in git("show", "--name-only", "--format=", "plain", cwd=repository)


@pytest.mark.parametrize("where", ["two processes", "PostgreSQL"])
def test_a_turn_begins_without_waiting_for_a_look(tmp_path: Path, where: str, request: pytest.FixtureRequest) -> None:
    """Nor does the next one, once a place is free: with an hour between two looks, all of them end."""
    url = request.getfixturevalue("postgres_url") if where == "PostgreSQL" else None
    settings = '[execution]\nsandbox = "none"\nconcurrency = 1\nlook_s = 3600\n'
    with deployment(tmp_path, url, settings=settings) as made:
        made.api()
        made.begin("worker", machine="first")
        api = made.client(made.nodes[0])
        # What is accepted before the worker listens waits for the first look.
        api.ended(api.start("nothing"))
        ended = [api.ended(run_id) for run_id in [api.start("nothing") for _ in range(2)]]

    assert [run["status"] for run in ended] == ["completed"] * 2


def test_the_task_says_all_that_the_contract_promises(api: Any) -> None:
    """First turn: no conversation; second turn: the first one, with its commit and summary."""
    run_id = api.start("one step")
    run = api.ended(run_id)
    api.follow(run_id, "another step")
    api.ended(run_id)
    first, second = task_of(api, run_id, 1), task_of(api, run_id, 2)
    commits = git("rev-list", f"main..{run['branch_name']}", cwd=api.service.repositories["acme/api"]).split()
    names = {"run_id": run_id, "agent": "scribe", "branch": run["branch_name"], "default_branch": "main"}
    names["repository"] = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
    asked = {"instructions": "one step", "inputs": {"instructions": "one step"}}

    assert first == names | asked | {"turn": 1, "conversation": []}
    assert (second["turn"], second["instructions"], second["inputs"]) == (2, "another step", {})
    assert [{key: past[key] for key in ("turn", "status", "commit", "summary")} for past in second["conversation"]] == [
        {"turn": 1, "status": "completed", "commit": commits[1], "summary": "did one"}
    ]
    assert len(commits) == 2


def test_a_commit_holds_the_change_alone_whatever_attributes_say(own: Own, tmp_path: Path) -> None:
    """Files with CRLF, keywords and another encoding stay byte for byte as they were."""
    stored = {"crlf.txt": "one\r\ntwo\r\n", "id.txt": "$Id: kept $\n", "utf.txt": "caf\u00e9\n", ".gitattributes": ""}
    api, bare = own(stored)
    attributes = "* text=auto eol=lf\nid.txt ident\nutf.txt working-tree-encoding=UTF-16\n"
    clone = tmp_path / "clone"
    git("clone", "--quiet", str(bare), str(clone), cwd=tmp_path)
    (clone / ".gitattributes").write_text(attributes, "utf-8")
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.example")
    git(*identity, "commit", "--quiet", "-m", "attributes", ".gitattributes", cwd=clone)
    git("push", "--quiet", "origin", "HEAD", cwd=clone)
    run = api.ended(api.start("write it"))

    changed = git("diff", "--name-only", "main", run["branch_name"], cwd=bare).split()
    assert run["status"] == "completed"
    assert changed == [f"notes/{run['run_id']}-1.json"]


def test_an_empty_repository_gets_its_first_commit(tenant: Make, tmp_path: Path) -> None:
    """No default branch, no base: the run's branch is born with the agent's commit."""
    git("init", "--quiet", "--bare", str(tmp_path / "empty.git"), cwd=tmp_path)
    empty = {"name": "empty", "platform": "github", "path": "acme/empty", "url": str(tmp_path / "empty.git")}
    api = tenant(repositories=[empty])
    run = api.ended(api.start("begin", "acme/empty"))

    # As GitHub does with the first branch that is pushed.
    git("symbolic-ref", "HEAD", f"refs/heads/{run['branch_name']}", cwd=tmp_path / "empty.git")
    again = api.follow(run["run_id"], "go on", "acme/empty")

    assert (run["status"], again.status_code) == ("completed", 201)
    assert api.ended(run["run_id"])["status"] == "completed", "the run's own branch is not protected from it"
    assert git("rev-list", "--count", run["branch_name"], cwd=tmp_path / "empty.git") == "2"


def test_a_branch_that_git_cannot_make_is_refused_before_the_work(own: Own) -> None:
    """The agent would be paid for nothing."""
    api, _ = own(branches={"feature": {"a.txt": "x"}})
    run_id = api.start("write", branch_name="feature/x")
    api.ended(run_id)
    (turn,) = api.turns(run_id)

    assert turn["reason"].startswith("the branch feature/x cannot be made next to the branch feature")
    assert "scribe at work" not in api.log(run_id)


ENVIRONMENT = """
import json, os, pathlib, time
os.close(1); os.close(2); time.sleep(0.6)
pathlib.Path("environment.json").write_text(json.dumps(dict(os.environ)))
"""


def test_the_agent_sees_only_the_allowed_environment(api: Any, tmp_path: Path) -> None:
    """Nothing of the service's but the allow-list; HOME is its own; one that closes its output is waited for."""
    api.add_agent(tmp_path, "nosy", ENVIRONMENT, "--env", "LENT")
    run = api.ended(api.begin("nosy"))
    written = git("show", f"{run['branch_name']}:environment.json", cwd=api.service.repositories["acme/api"])
    seen = json.loads(written)

    assert "SECRET" not in seen
    assert seen["LENT"] == "lent"
    assert seen["HOME"] == "/home/agent" or seen["HOME"].startswith(str(api.service.data_dir / "work"))


PRYING = """
import json, os, pathlib, socket, sys
task = json.load(sys.stdin)
found = {}
for name in task["inputs"]["files"]:
    try: found[name] = bool(pathlib.Path(name).read_bytes())
    except OSError: found[name] = False
for name in task["inputs"]["write"]:
    try: pathlib.Path(name).write_text("x")
    except OSError: pass
try:
    socket.create_connection(tuple(task["inputs"]["connect"]), 2).close(); found["connect"] = True
except OSError: found["connect"] = False
pathlib.Path("found.json").write_text(json.dumps(found))
"""


@NEEDS_SANDBOX
def test_the_sandbox_hides_everything_but_the_workspace(equipped: Any, tmp_path: Path) -> None:
    """No database, no tokens, no home, no network; and nothing outside the workspace can be written."""
    api = Api(equipped)
    api.add_agent(tmp_path, "prying", PRYING)
    secret = tmp_path / "secret"
    secret.write_text("s")
    port = int(api.service.base_url.removesuffix("/v1").rpartition(":")[2])
    hidden = [str(api.service.data_dir / "service.sqlite"), str(secret), "/etc/shadow"]
    outside = [tmp_path / "written", Path(sys.prefix, "written")]
    inputs = {"files": [*hidden, sys.executable], "write": [*map(str, outside)], "connect": ["127.0.0.1", port]}
    run = api.ended(api.begin("prying", **inputs))
    written = git("show", f"{run['branch_name']}:found.json", cwd=api.service.repositories["acme/api"])

    assert json.loads(written) == dict.fromkeys(hidden, False) | {sys.executable: True, "connect": False}
    assert not [path for path in outside if path.exists()]


def test_a_run_clones_and_pushes_with_the_hosts_token_alone(tenant: Make, tmp_path: Path) -> None:
    """With it the commit arrives and no file keeps it; without it the run fails, with git's words in its log."""
    bare = make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    found = {}
    with contextlib.closing(GitHttpHost(tmp_path, "s3cr3t")) as there:
        for variable in ("SECRET", "UNSET"):
            host = {"platform": "github", "probe": "git", "clone_url": f"{there.url}/{{path}}.git"}
            repository = {"name": "api", "platform": "github", "path": "acme/api"}
            api = tenant(hosts=[host | {"token_env": variable}], repositories=[repository])
            run = api.ended(api.start("write it"))
            health = api.get("/external/installation/health").json()["code_hosting"]
            found[variable] = run["status"], health["github"]["status"]
            if variable == "SECRET":
                assert "scribe: write it" in git("log", "--format=%s", run["branch_name"], cwd=bare)
    kept = subprocess.run(["grep", "-rl", "s3cr3t", str(api.service.data_dir)], capture_output=True, check=False).stdout

    assert found == {"SECRET": ("completed", "ok"), "UNSET": ("failed", "unauthorized")}
    assert kept == b""
    assert "Authentication failed" in str(api.service.admin("run", run["run_id"]))


def test_neither_token_nor_push_follows_a_redirect(tenant: Make, tmp_path: Path) -> None:
    """The run fails and names the cure; the other host hears nothing."""
    with Server() as elsewhere, Server() as there:
        there.otherwise = lambda request: Respond(302, headers={"Location": f"{elsewhere.origin}{request.target}"})
        host = {"platform": "github", "probe": "git", "token_env": "HOST_TOKEN"}
        host["clone_url"] = f"{there.origin}/{{path}}.git"
        api = tenant(hosts=[host], repositories=[{"name": "api", "platform": "github", "path": "acme/api"}])
        run = api.ended(api.start("write it"))
        failure = str(api.service.admin("run", run["run_id"]))

        assert run["status"] == "failed"
        assert "the repository has moved" in failure
        assert there.requests
        assert elsewhere.requests == []
