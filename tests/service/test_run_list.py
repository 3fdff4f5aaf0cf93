"""GET /external/runs (spec 2.5, 4.2); what holds for any page and date is in tests/conformance."""

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


def test_runs_come_newest_first_filtered_by_repository_in_any_form(api: Any) -> None:
    """Times are UTC, to the microsecond; total_count counts after the filters."""
    made = [api.start("nothing", "acme/api"), api.start("nothing", "acme/web"), api.start("fail", "acme/web")]
    made.append(api.start("nothing", "tools"))
    runs = [api.ended(run_id) for run_id in reversed(made)]
    page = api.get("/external/runs").json()
    one = api.get("/external/runs", params={"repository": "acme/web", "page_size": 1}).json()

    assert (page["runs"], page["page_size"]) == (runs, 10)
    assert all(FIXED.fullmatch(run[field]) for run in runs for field in ("created_at", "updated_at"))
    assert runs[0]["repository"] == {"platform": "gitlab", "data": {"project_path": "acme/tools"}}
    assert runs[-1]["repository"] == {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
    assert (one["total_count"], len(one["runs"])) == (2, 1)
    for params, count in (
        ({"repository": "ACME/Web"}, 2),
        ({"platform": "github", "data": '{"owner": "acme", "repo": "web"}'}, 2),
        ({"platform": "gitlab", "data": '{"project_path": "acme/tools"}'}, 1),
        ({"platform": "gitlab", "data": '{"group": "acme", "project": "tools"}'}, 1),
        ({"platform": "gitlab"}, 1),
        ({"repository": "https://gitlab.example/acme/tools.git"}, 1),
        ({"repository": "git@gitlab.example:acme/tools.git"}, 1),
        ({"repository": "nobody/nothing"}, 0),
    ):
        assert len(api.get("/external/runs", params=params).json()["runs"]) == count, params


def test_what_cannot_be_read_is_400(api: Any) -> None:
    """A parameter that makes no sense or comes twice is a 400, never a 422 and never ignored."""
    beside = {"data": {"platform": "github"}, "platform": {"data": "{}"}}
    no_dates = ["2025-01-01T00:00:00", "2025-01-01", "now", ""]
    for name, values, code in (
        ("page_size", ["0", "101", "ten", "1.0", "", "9" * 30, "٣"], "invalid_page_size"),
        ("page_size", [["5", "6"]], "invalid_query"),
        ("date_from", no_dates, "invalid_date"),
        ("date_to", [*no_dates, "2025-02-30T00:00:00Z", "2025-01-01T00:00:00Z+0200", "1735689600"], "invalid_date"),
        ("page_token", ["nonsense", "", "ä"], "invalid_page_token"),
        ("repository", ["no-slash", ""], "invalid_repository"),
        ("data", ["{", "[]"], "invalid_repository"),
        ("platform", ["svn"], "invalid_repository"),
        ("status", ["a\0b"], "invalid_query"),
    ):
        for value in values:
            answer = api.get("/external/runs", params={name: value} | beside.get(name, {}))
            assert (answer.status_code, answer.json()["error_code"]) == (400, code), value
