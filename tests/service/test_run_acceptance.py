"""What POST /external/runs takes and refuses (spec 4.3): nothing of it is executed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service_process import make_repository, start_service

API = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
WEB = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service without a worker: what it accepts stays queued."""
    service = start_service(tmp_path_factory.mktemp("service"), arguments=["--no-worker"])
    yield service
    assert service.stop() == 0


@pytest.mark.parametrize(
    "data", [{"project_path": "acme/tools"}, {"group": "acme", "project": "tools"}, {"project_path": "acme/tools.git"}]
)
def test_a_gitlab_repository_is_named_by_path_or_by_group_and_project(api: Any, data: dict[str, str]) -> None:
    """Both shapes are taken; the answer has project_path."""
    document = {"instructions": "look", "repository": {"platform": "gitlab", "data": data}, "branch_name": "a/b"}
    answer = api.post("/external/runs", document)

    assert answer.status_code == 201
    assert answer.json()["repository"] == {"platform": "gitlab", "data": {"project_path": "acme/tools"}}


def test_a_run_that_is_active_cannot_be_continued(api: Any) -> None:
    """409 while it is queued or working."""
    run_id = api.start("first")
    answer = api.follow(run_id, "second")

    assert (answer.status_code, answer.json()["error_code"]) == (409, "run_active")


def test_an_unknown_run_cannot_be_continued(api: Any) -> None:
    """404."""
    answer = api.follow("run_00000000000000000000000000", "second")

    assert (answer.status_code, answer.json()["error_code"]) == (404, "run_not_found")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"instructions": None}, "invalid_request"),
        ({"instructions": ""}, "invalid_request"),
        ({"instructions": " \n"}, "invalid_request"),
        ({"instructions": 5}, "invalid_request"),
        ({"repository": None}, "invalid_request"),
        ({"repository": "acme/api"}, "invalid_request"),
        ({"repository": {"platform": "github"}}, "invalid_request"),
        ({"repository": {"platform": "svn", "data": {}}}, "invalid_repository"),
        ({"repository": {"platform": "github", "data": {"owner": "acme"}}}, "invalid_repository"),
        ({"repository": {"platform": "github", "data": {"owner": "..", "repo": ".."}}}, "invalid_repository"),
        ({"repository": {"platform": "github", "data": {"owner": "a/b", "repo": "c"}}}, "invalid_repository"),
        ({"repository": {"platform": "github", "data": {"owner": "-u", "repo": "c"}}}, "invalid_repository"),
        ({"repository": {"platform": "gitlab", "data": {"project_path": "alone"}}}, "invalid_repository"),
        ({"branch_name": ""}, "invalid_branch"),
        ({"branch_name": "--upload-pack=touch x"}, "invalid_branch"),
        ({"branch_name": "refs/heads/x"}, "invalid_branch"),
        ({"branch_name": "a..b"}, "invalid_branch"),
        ({"branch_name": 1}, "invalid_request"),
        ({"run_id": 1}, "invalid_request"),
        ({"metadata": []}, "invalid_request"),
        ({"metadata": "text"}, "invalid_request"),
    ],
)
def test_a_field_that_is_wrong_is_400_and_named(api: Any, change: dict[str, Any], code: str) -> None:
    """The message says which field, and nothing is started."""
    before = api.get("/external/runs").json()["total_count"]
    answer = api.post("/external/runs", {"instructions": "do it", "repository": API} | change)

    assert (answer.status_code, answer.json()["error_code"]) == (400, code)
    assert next(iter(change)).split("_")[0] in answer.json()["message"]
    assert api.get("/external/runs").json()["total_count"] == before


def test_a_repository_that_leads_nowhere_names_the_cure(tenant: Any) -> None:
    """Neither configured nor on a connected host: 400."""
    api = tenant()
    answer = api.post("/external/runs", {"instructions": "do it", "repository": API})

    assert (answer.status_code, answer.json()["error_code"]) == (400, "unknown_repository")
    assert "repository add" in answer.json()["message"]
    health = api.get("/external/installation/health")
    assert (health.status_code, health.json()["error_code"]) == (404, "no_code_host")


def test_metadata_of_any_shape_is_accepted(api: Any) -> None:
    """Metadata is a free object (our decision): it is stored, not judged."""
    document = {"instructions": "x", "repository": WEB, "metadata": {"ticket": {"id": 5, "tags": ["a", None, 1.5]}}}

    assert api.post("/external/runs", document).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/external/runs", "GET, POST"),
        ("PUT", "/external/organizations", "POST"),
        ("POST", "/external/installation/health", "GET"),
        ("GET", "/external/agents/reviewer/runs", "POST"),
        ("OPTIONS", "/external/runs", "GET, POST"),
    ],
)
def test_a_wrong_method_is_405_with_all_the_right_ones(api: Any, method: str, path: str, allow: str) -> None:
    """Allow names every method of the path, not those of one route."""
    answer = api.http.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    assert answer.json()["error_code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/nothing", "/external", "/external/runs/", "/external/agents/a/b/runs", "/livez"])
def test_a_path_that_is_not_there_is_404_with_a_failure_body(api: Any, path: str) -> None:
    """Also for a trailing slash: no client is redirected with a token in hand."""
    answer = api.get(path)

    assert answer.status_code == 404
    assert answer.json()["error_code"] == "not_found"


def test_livez_needs_no_token(api: Any) -> None:
    """The one open door says that the process lives."""
    root = api.service.base_url.removesuffix("/v1")

    assert api.http.get(f"{root}/livez", headers={"Authorization": ""}).json() == {"status": "ok"}


@pytest.mark.parametrize("path", ["/external/runs", "/external/agents/scribe/runs"])
@pytest.mark.parametrize(
    ("protected", "branch", "status"),
    [
        (None, "main", 400),
        (None, "other", 201),
        (["release/*"], "release/1", 400),
        (["release/*"], "main", 201),
        ([], "main", 201),
    ],
)
def test_a_protected_branch_is_refused(
    tenant: Callable[..., Any], tmp_path: Path, path: str, protected: list[str] | None, branch: str, status: int
) -> None:
    """The default branch unless patterns say otherwise, and the cure is named; nothing is accepted."""
    bare = make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    entry = {"name": "api", "platform": "github", "path": "acme/api", "url": str(bare), "protected": protected}
    api = tenant(repositories=[{key: value for key, value in entry.items() if value is not None}])
    plain = path == "/external/runs"
    given = {"instructions": "go", "repository": API} if plain else {"repository": "acme/api"}
    answer = api.post(path, given | {"branch_name": branch})

    assert answer.status_code == status, answer.text
    assert len(list(api.runs())) == (status == 201)
    if status == 400:
        assert answer.json()["error_code"] == "branch_protected"
        assert "name another" in answer.json()["message"]
