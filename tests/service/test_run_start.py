"""POST /external/runs (spec 4.3)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
