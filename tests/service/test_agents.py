"""POST /external/agents/{name}/runs (spec 2.6, 4.4)."""

import json
from typing import Any

import pytest


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
