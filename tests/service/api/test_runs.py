"""Runs: POST and GET /external/runs, and POST /external/agents/{name}/runs (spec 2.5, 4.2 to 4.4).

Rules for pages and dates of the list are in tests/conformance.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from service import ids
from service.reference import BRANCH, branch_fault, default_branch
from tests.service.conftest import API, Own, refusal
from tests.service_process import git


def ask(api: Any, **fields: Any) -> Any:
    return api.post("/external/runs", {"instructions": "nothing", "repository": API} | fields)


def test_a_run_is_accepted_executed_and_continued(api: Any, tmp_path: Path) -> None:
    """The answer is a 201 with the run of 2.4.

    The next turn has its id and branch, unless it is active, elsewhere or unknown. Any metadata is stored, unknown
    fields are ignored, and no mail is sent (spec 6).
    """
    mails = set(api.service.outbox.iterdir())
    metadata = {"ticket": {"id": 5, "tags": ["a", None, 1.5], "long": "y" * 65_000}}
    answer = ask(api, instructions="Fix the flaky Retry, please!", metadata=metadata, invented={"later": True})
    run = answer.json()
    ended = api.ended(run["run_id"])
    refused = [
        api.follow(run["run_id"], "second", "acme/web"),
        ask(api, run_id=run["run_id"], branch_name="other"),
        api.follow("run_00000000000000000000000000", "second"),
    ]
    again = api.follow(run["run_id"], f"wait {tmp_path / 'never'}")
    refused.append(api.follow(run["run_id"], "third"))
    assert api.post(f"/external/runs/{run['run_id']}/cancel", {}).status_code == 202
    assert api.follow(run["run_id"], "fourth").status_code == 201

    assert answer.status_code == again.status_code == 201
    assert re.fullmatch(r"run_[0-9A-HJKMNP-TV-Z]{26}", run["run_id"])
    assert (run["status"], run["repository"], run["created_at"]) == ("queued", API, run["updated_at"])
    assert run["branch_name"].startswith("agent/fix-the-flaky-retry-please-")
    assert [refusal(one) for one in refused] == [
        (400, "repository_mismatch"),
        (400, "branch_mismatch"),
        (404, "run_not_found"),
        (409, "run_active"),
    ]
    assert "acme/api" in refused[0].json()["message"]
    assert run["branch_name"] in refused[1].json()["message"]
    assert again.json() == ended | {"status": "queued", "updated_at": again.json()["updated_at"]}
    assert again.json()["updated_at"] > ended["updated_at"]
    assert [ended["status"], api.ended(run["run_id"])["status"]] == ["completed", "completed"]
    assert set(api.service.outbox.iterdir()) == mails


def test_an_execution_is_accepted_and_listed_as_a_run(api: Any) -> None:
    """The answer has the five fields of 2.6; execution_id is the run's, and any inputs reach the agent unchanged."""
    inputs = {"instructions": "note", "depth": "full", "n": 1.5, "list": [1, None, {"a": True}], "ünï": "cödé"}
    body = {"repository": "acme/api", "branch_name": "agents/one", "inputs": inputs}
    answer = api.post("/external/agents/scribe/runs", body)
    execution = answer.json()
    run = api.ended(execution["execution_id"])
    diff = api.service.admin("run", run["run_id"], "--diff")["turns"][0]["diff"]
    written = "".join(line[1:] + "\n" for line in diff.splitlines() if line[:1] == "+" and line[:3] != "+++")

    assert answer.status_code == 201
    assert set(execution) == {"agent_name", "execution_id", "repository", "status", "created_at"}
    assert (execution["agent_name"], execution["repository"], execution["status"]) == ("scribe", "acme/api", "queued")
    assert (run["branch_name"], run["created_at"]) == ("agents/one", execution["created_at"])
    assert json.loads(written)["inputs"] == inputs


def test_a_repository_has_four_forms(idle: Any) -> None:
    """A name may be configured (which comes first), owner/repo, group/project or the URL of a known repository."""

    def asked(repository: str) -> Any:
        return idle.post("/external/agents/scribe/runs", {"repository": repository})

    for repository, path in (
        (str(idle.service.repositories["acme/api"]), "acme/api"),
        ("web", "acme/web"),
        ("git@gitlab.example:acme/tools.git", "acme/tools"),
        ("acme/deep/group/project", "acme/deep/group/project"),
    ):
        answer = asked(repository)
        assert (answer.status_code, answer.json()["repository"]) == (201, path), answer.text
    for repository in ("https://evil.example/acme/api", "nameless", "--upload-pack=x", "../../etc", "/"):
        assert refusal(asked(repository)) == (400, "unknown_repository"), repository


def test_a_wrong_field_is_a_400_that_names_it(tenant: Any) -> None:
    """The message names the field, or the fix, and nothing is started."""
    api = tenant()
    for field, value, code in (
        ("instructions", " \n", "invalid_request"),
        ("repository", "acme/api", "invalid_request"),
        ("repository", API, "unknown_repository"),
        ("repository", {"platform": "github", "data": {"owner": "..", "repo": ".."}}, "invalid_repository"),
        ("repository", {"platform": "gitlab", "data": {"project_path": "alone"}}, "invalid_repository"),
        *[("branch_name", name, "invalid_branch") for name in ("", "--upload-pack=touch x", "refs/heads/x", "a..b")],
        ("metadata", [], "invalid_request"),
        ("metadata", {"x": "y" * 66_000}, "metadata_too_large"),
    ):
        answer = ask(api, **{field: value})
        assert refusal(answer) == (400, code), value
        assert field.split("_", maxsplit=1)[0] in answer.json()["message"]
    assert refusal(api.get("/external/installation/health")) == (404, "no_code_host")
    assert api.get("/external/runs").json()["total_count"] == 0


def test_a_protected_branch_is_refused(own: Own, idle: Any) -> None:
    """The default branch is protected by default; the error names the alternative, and nothing is accepted."""
    for patterns, refused, allowed in (
        ({}, "main", ["other"]),
        ({"protected": ["r/*"]}, "r/1", ["main"]),
    ):
        api, _ = own(on=idle.service, **patterns)
        for branch in (refused, *allowed):
            plain = ask(api, branch_name=branch)
            named = api.post("/external/agents/scribe/runs", {"repository": "acme/api", "branch_name": branch})

            assert {plain.status_code, named.status_code} == {400 if branch == refused else 201}, plain.text
            if branch == refused:
                assert refusal(plain) == refusal(named) == (400, "branch_protected")
                assert "name another" in plain.json()["message"]
                assert list(api.runs()) == []


def test_a_new_default_branch_is_not_pushed_to(own: Own) -> None:
    """The worker checks again, since the API's knowledge may be old."""
    api, bare = own(branches={"next": {"a": "1"}})
    api.ended(api.start("first"))
    before = git("rev-parse", "next", cwd=bare)
    git("symbolic-ref", "HEAD", "refs/heads/next", cwd=bare)
    run = api.ended(api.start("second", branch_name="next"))

    assert run["status"] == "failed"
    assert "protected" in api.service.admin("run", run["run_id"])["turns"][0]["failure"]
    assert git("rev-parse", "next", cwd=bare) == before


def test_another_organizations_agent_is_not_found(idle: Any) -> None:
    """The service answers as for an unknown agent, even for odd names."""
    idle.service.admin("org", "create", "Elsewhere", "--entitlement", "ServiceAPI")
    idle.service.admin("agent", "add", "theirs", "--org", "elsewhere", "--argv", "{python} -c pass")

    for name in ("theirs", "nobody", "..%2Fruns", "%00", "a%20b", "ä"):
        answer = idle.post(f"/external/agents/{name}/runs", {"repository": "acme/api"})
        assert refusal(answer) in {(404, "agent_not_found"), (404, "not_found")}, name


def test_an_invalid_parameter_is_a_400(api: Any) -> None:
    """An invalid or repeated parameter is a 400, never a 422 and never ignored."""
    for name, values, code in (
        ("page_size", ["0", "101", "ten", "", "٣"], "invalid_page_size"),
        ("page_size", [["5", "6"]], "invalid_query"),
        ("date_from", ["2025-01-01T00:00:00", "now", "2025-02-30T00:00:00Z"], "invalid_date"),
        ("page_token", ["nonsense", ""], "invalid_page_token"),
        ("repository", ["no-slash", ""], "invalid_repository"),
    ):
        for value in values:
            answer = api.get("/external/runs", params={name: value})
            assert refusal(answer) == (400, code), value


AWKWARD = st.text(alphabet="a/.-@{}~^:?*[\\ \x7f\x01lockHEDrfsé", max_size=12)


@settings(max_examples=60)
@example("refs/heads/x")
@example("HEAD")
@example("a.lock")
@example("a.lock/b")
@example("@")
@example("x/.y")
@example("a//b")
@example("a\n")
@given(AWKWARD)
def test_every_accepted_branch_is_valid_for_git(name: str) -> None:
    """Git's own rules apply; the published pattern allows the same names, except for their length."""
    # In JSON Schema `$` is the end; in Python it may precede a last line break.
    pattern, is_taken = BRANCH.replace("$", r"\Z"), branch_fault(name) is None

    assert (re.search(pattern, name) is not None) == is_taken
    if is_taken:
        done = subprocess.run(["git", "check-ref-format", "--branch", name], capture_output=True, check=False)
        assert done.returncode == 0, name


@settings(max_examples=30)
@given(st.text(max_size=80), st.integers(1, 10**12))
def test_any_instructions_give_a_valid_branch(instructions: str, later: int) -> None:
    """Any words give a valid branch, common words are accepted, and ids sort by time."""
    first, second = (f"run_{ids.ulid(1_700_000_000_000_000 + 1000 * more)}" for more in (0, later))
    name = default_branch(instructions, first)

    assert first < second
    assert name.startswith("agent/")
    for one in (name, "main", "fix/login-timeout", "agent/a.b_c", "release/1.0", "ünïcode", "a@b", "refs"):
        assert branch_fault(one) is None
