"""GET /external/runs (spec 2.5, 4.2)."""

import json
import re
from typing import Any

import pytest

FIXED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(scope="module")
def api(shared_service: Any, tenant: Any) -> Any:
    """An organization like acme, of its own: these tests count."""
    acme = json.loads((shared_service.data_dir.parent / "setup.json").read_text("utf-8"))["organizations"][0]
    return tenant(hosts=acme["hosts"], repositories=acme["repositories"])


@pytest.fixture(scope="module")
def runs(api: Any) -> list[dict[str, Any]]:
    """Seven ended runs, newest first: four on acme/api, two on acme/web, one on gitlab acme/tools."""
    made = [api.start(f"nothing {number}", "acme/api") for number in range(4)]
    made += [api.start("nothing", "acme/web"), api.start("fail", "acme/web"), api.start("nothing", "tools")]
    return [api.ended(run_id) for run_id in reversed(made)]


def listed(api: Any, **params: Any) -> list[str]:
    answer = api.get("/external/runs", params={"page_size": 100} | params)
    assert answer.status_code == 200, answer.text
    return [run["run_id"] for run in answer.json()["runs"]]


def test_runs_come_newest_first_with_the_fields_of_the_spec(api: Any, runs: list[dict[str, Any]]) -> None:
    """Each run has exactly the fields of 2.4; times are UTC, to the microsecond, of one width."""
    answer = api.get("/external/runs", params={"page_size": 7}).json()

    assert answer["runs"] == runs
    assert set(runs[0]) == {"run_id", "status", "branch_name", "repository", "created_at", "updated_at"}
    assert all(FIXED.fullmatch(run[field]) for run in runs for field in ("created_at", "updated_at"))
    assert runs[0]["repository"] == {"platform": "gitlab", "data": {"project_path": "acme/tools"}}
    assert runs[-1]["repository"] == {"platform": "github", "data": {"owner": "acme", "repo": "api"}}


def test_the_page_size_is_ten_by_default(api: Any, runs: list[dict[str, Any]]) -> None:
    """Without page_size the page holds 10."""
    assert api.get("/external/runs").json()["page_size"] == 10


def test_total_count_counts_after_the_filters(api: Any, runs: list[dict[str, Any]]) -> None:
    """total_count is the number of matching runs, whatever the page size."""
    body = api.get("/external/runs", params={"repository": "acme/web", "page_size": 1}).json()

    assert (body["total_count"], len(body["runs"])) == (2, 1)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"repository": "acme/web"}, 2),
        ({"repository": "ACME/Web"}, 2),
        ({"platform": "github", "data": '{"owner": "acme", "repo": "web"}'}, 2),
        ({"platform": "gitlab", "data": '{"project_path": "acme/tools"}'}, 1),
        ({"platform": "gitlab", "data": '{"group": "acme", "project": "tools"}'}, 1),
        ({"platform": "gitlab"}, 1),
        ({"repository": "https://gitlab.example/acme/tools.git"}, 1),
        ({"repository": "git@gitlab.example:acme/tools.git"}, 1),
        ({"repository": "nobody/nothing"}, 0),
    ],
)
def test_repository_filters_in_every_form(
    api: Any, runs: list[dict[str, Any]], params: dict[str, str], expected: int
) -> None:
    """owner/repo, group/project, a full URL, or platform and data."""
    assert len(listed(api, **params)) == expected


@pytest.mark.parametrize(
    ("params", "code"),
    [
        *[({"page_size": size}, "invalid_page_size") for size in ("0", "101", "-1", "ten", "1.0", "", "9" * 30, "٣")],
        *[
            ({field: value}, "invalid_date")
            for field in ("date_from", "date_to")
            for value in ("2025-01-01T00:00:00", "2025-01-01", "0.5", "now", "", "2025-02-30T00:00:00Z", "1735689600")
        ],
        ({"date_from": "2025-01-01T00:00:00Z+0200"}, "invalid_date"),
        ({"page_token": "nonsense"}, "invalid_page_token"),
        ({"page_token": ""}, "invalid_page_token"),
        ({"page_token": "ä"}, "invalid_page_token"),
        ({"repository": "no-slash"}, "invalid_repository"),
        ({"repository": ""}, "invalid_repository"),
        ({"platform": "github", "data": "{"}, "invalid_repository"),
        ({"platform": "github", "data": "[]"}, "invalid_repository"),
        ({"platform": "svn", "data": "{}"}, "invalid_repository"),
        ({"status": "a\0b"}, "invalid_query"),
    ],
)
def test_what_cannot_be_read_is_400(api: Any, params: dict[str, str], code: str) -> None:
    """A parameter that makes no sense is named in a 400, never a 422 and never ignored."""
    answer = api.get("/external/runs", params=params)

    assert answer.status_code == 400
    assert answer.json()["error_code"] == code


def test_a_parameter_given_twice_is_400(api: Any) -> None:
    """Which one was meant? We do not guess."""
    assert api.get("/external/runs", params=[("page_size", "5"), ("page_size", "6")]).status_code == 400
