"""Starting and continuing runs: POST /external/runs and POST /external/agents/{name}/runs (spec 4.3, 4.4)."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service_process import git, make_repository

API = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}


def test_a_run_is_accepted_as_queued(api: Any) -> None:
    """201 with the run of 2.4; without a branch name, one is made of the first words."""
    answer = api.post("/external/runs", {"instructions": "Fix the flaky Retry, please!", "repository": API})
    run = answer.json()

    assert answer.status_code == 201
    assert re.fullmatch(r"run_[0-9A-HJKMNP-TV-Z]{26}", run["run_id"])
    assert run["status"] == "queued"
    assert run["branch_name"].startswith("agent/fix-the-flaky-retry-please-")
    assert run["repository"] == API
    assert run["created_at"] == run["updated_at"]
    assert api.ended(run["run_id"])["status"] == "completed"


def test_a_run_is_continued_on_its_branch_under_its_id(api: Any) -> None:
    """The next turn has the same run_id and branch, and the status is queued again (our decision)."""
    run_id = api.start("first")
    first = api.ended(run_id)
    answer = api.follow(run_id, "second")

    assert answer.status_code == 201
    assert answer.json()["run_id"] == run_id
    assert answer.json()["branch_name"] == first["branch_name"]
    assert answer.json()["created_at"] == first["created_at"]
    assert answer.json()["updated_at"] > first["updated_at"]
    assert answer.json()["status"] == "queued"
    assert api.ended(run_id)["status"] == "completed"


def test_a_run_is_continued_only_where_it_began(api: Any) -> None:
    """Another repository or another branch is 400, and the message names the right one."""
    run_id = api.start("nothing")
    branch = api.ended(run_id)["branch_name"]
    elsewhere = api.follow(run_id, "second", "acme/web")
    document = {"instructions": "second", "repository": API, "run_id": run_id, "branch_name": "other"}
    aside = api.post("/external/runs", document)

    assert (elsewhere.status_code, elsewhere.json()["error_code"]) == (400, "repository_mismatch")
    assert "acme/api" in elsewhere.json()["message"]
    assert (aside.status_code, aside.json()["error_code"]) == (400, "branch_mismatch")
    assert branch in aside.json()["message"]


def test_an_unconfigured_repository_on_a_connected_host_works(api: Any) -> None:
    """The host's clone URL leads to it; one that is not there fails in execution, visibly."""
    answer = api.post(
        "/external/runs",
        {"instructions": "do it", "repository": {"platform": "github", "data": {"owner": "acme", "repo": "missing"}}},
    )
    run = api.ended(answer.json()["run_id"])

    assert answer.status_code == 201
    assert run["status"] == "failed"
    assert "ls-remote failed" in api.log(run["run_id"])


def test_a_branch_that_became_the_default_one_is_not_pushed_to(tenant: Callable[..., Any], tmp_path: Path) -> None:
    """The worker looks again: what the API knew may be old."""
    bare = make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"}, {"next": {"a": "1"}})
    api = tenant(repositories=[{"name": "api", "platform": "github", "path": "acme/api", "url": str(bare)}])
    api.ended(api.start("first"))
    before = git("rev-parse", "next", cwd=bare)
    git("symbolic-ref", "HEAD", "refs/heads/next", cwd=bare)
    run = api.ended(api.start("second", branch_name="next"))

    assert run["status"] == "failed"
    assert "protected" in api.service.admin("run", run["run_id"])["turns"][0]["failure"]
    assert git("rev-parse", "next", cwd=bare) == before


def test_an_execution_is_accepted_and_listed_as_a_run(api: Any) -> None:
    """201 with the five fields of 2.6; execution_id is the run_id of the run that carries it (our decision)."""
    answer = api.post("/external/agents/scribe/runs", {"repository": "acme/api", "branch_name": "agents/one"})
    execution = answer.json()
    run = api.ended(execution["execution_id"])

    assert answer.status_code == 201
    assert set(execution) == {"agent_name", "execution_id", "repository", "status", "created_at"}
    assert (execution["agent_name"], execution["repository"], execution["status"]) == ("scribe", "acme/api", "queued")
    assert (run["branch_name"], run["created_at"]) == ("agents/one", execution["created_at"])


@pytest.mark.parametrize(
    ("repository", "path"),
    [
        ("acme/api", "acme/api"),
        ("{acme/api}", "acme/api"),
        ("acme/tools", "acme/tools"),
        ("web", "acme/web"),
        ("https://gitlab.example/acme/tools", "acme/tools"),
        ("git@gitlab.example:acme/tools.git", "acme/tools"),
        ("acme/unheard-of", "acme/unheard-of"),
        ("acme/deep/group/project", "acme/deep/group/project"),
    ],
)
def test_a_repository_is_named_in_any_of_four_forms(api: Any, repository: str, path: str) -> None:
    """owner/repo, group/project, a full URL or the clone address, or a configured name (spec 4.4), which goes first."""
    repository = str(api.service.repositories["acme/api"]) if repository == "{acme/api}" else repository
    answer = api.post("/external/agents/scribe/runs", {"repository": repository, "inputs": {"instructions": "nothing"}})

    assert answer.status_code == 201, answer.text
    assert answer.json()["repository"] == path


@pytest.mark.parametrize(
    "repository", ["https://evil.example/acme/api", "nameless", "--upload-pack=x", "../../etc", "/"]
)
def test_a_repository_beyond_the_connected_hosts_is_refused(api: Any, repository: str) -> None:
    """The service clones nothing but what is configured or on a connected host."""
    answer = api.post("/external/agents/scribe/runs", {"repository": repository})

    assert (answer.status_code, answer.json()["error_code"]) == (400, "unknown_repository")


@pytest.mark.parametrize("name", ["nobody", "..%2Fruns", "%00", "a%20b", "ä"])
def test_an_unknown_agent_is_404(api: Any, name: str) -> None:
    """Also where the name is strange."""
    answer = api.post(f"/external/agents/{name}/runs", {"repository": "acme/api"})

    assert answer.status_code == 404
    assert answer.json()["error_code"] in {"agent_not_found", "not_found"}


def test_inputs_reach_the_agent_as_they_are(api: Any) -> None:
    """Keys and types are free (spec 4.4), and none of them is lost."""
    inputs = {"instructions": "note", "depth": "full", "n": 1.5, "list": [1, None, {"a": True}], "ünï": "cödé"}
    answer = api.post("/external/agents/scribe/runs", {"repository": "acme/api", "inputs": inputs})
    run_id = answer.json()["execution_id"]
    api.ended(run_id)
    diff = api.service.admin("run", run_id, "--diff")["turns"][0]["diff"]
    written = "".join(line[1:] + "\n" for line in diff.splitlines() if line[:1] == "+" and line[:3] != "+++")

    assert json.loads(written)["inputs"] == inputs


def test_an_agent_of_another_organization_is_not_there(api: Any) -> None:
    """An agent added for one organization serves that one alone."""
    api.service.admin("org", "create", "Elsewhere", "--entitlement", "ServiceAPI")
    api.service.admin("agent", "add", "theirs", "--org", "elsewhere", "--argv", "{python} -c pass")

    assert api.post("/external/agents/theirs/runs", {"repository": "acme/api"}).status_code == 404
