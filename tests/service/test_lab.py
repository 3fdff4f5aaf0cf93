"""The lab: who may use it, the clock by which tokens expire, and history on demand that a reset takes away."""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import BARE
from tests.service_process import refused_start

DAY_S = 86_400
UNTIL = "2025-06-01T00:00:00Z"


def test_the_lab_opens_to_its_own_token_alone(api: Any, lab: Any) -> None:
    """Off by default; its token opens nothing else; 401 for everything else, the API's administrator included."""
    root = api.service.base_url.removesuffix("/v1")
    assert BARE.get(f"{root}/_lab").status_code == 404
    assert api.service.lab_token == ""
    assert "x-runwarden-lab" not in api.get("/external/runs").headers

    for given in ("", "Bearer", "Bearer rwlab_guess", f"Bearer {lab.service.admin_token}"):
        for method, path in (
            ("GET", ""),
            ("POST", "/faults"),
            ("PUT", "/clock"),
            ("POST", "/runs"),
            ("POST", "/reset"),
        ):
            answer = BARE.request(method, f"{lab.url}{path}", headers={"Authorization": given}, json={})
            assert (answer.status_code, answer.json()["error_code"]) == (401, "invalid_token")
    headers = {"Authorization": f"Bearer {lab.service.lab_token}"}
    assert BARE.get(f"{lab.service.base_url}/external/runs", headers=headers).status_code == 401
    # A console shows a banner by this mark, which is on successes and failures alike.
    answers = [lab.api.get("/external/runs"), lab.api.get("/nothing"), lab.get(), lab.get("/nothing")]
    assert [answer.headers["x-runwarden-lab"] for answer in answers] == ["on"] * 4
    assert "THE LAB IS ON" in lab.service.log


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_lab_refuses_to_listen_beyond_this_machine(tmp_path: Path, host: str) -> None:
    """Exit status 2, and the cure."""
    ended = refused_start(tmp_path, "serve", "--lab", "--host", host, "--port", "0")

    assert (ended.returncode, "loopback only" in ended.stderr) == (2, True)


@pytest.mark.parametrize(
    ("path", "document", "named"),
    [
        ("/faults", {"operation": "sing", "kind": "reset"}, "operation"),
        ("/faults", {"operation": "list_runs", "kind": "status"}, "status"),
        ("/faults", {"operation": "list_runs", "kind": "reset", "status": 503}, "status"),
        ("/faults", {"operation": "list_runs", "kind": "partial"}, "create_organization"),
        ("/faults", {"operation": "list_runs", "kind": "status", "status": 429, "retry_after": "1\r\nX: y"}, "retry"),
        ("/runs", {"organization": "acme", "runs": 1, "span": "long"}, "duration"),
        ("/runs", {"organization": "acme", "runs": 1, "until": "1970-01-02T00:00:00Z"}, "1970"),
        ("/runs", {"organization": "acme", "runs": 1, "rhythm": "team", "active": 1}, "active"),
    ],
)
def test_an_order_that_makes_no_sense_is_400_and_named(lab: Any, path: str, document: Any, named: str) -> None:
    """Nothing is put on the script."""
    answer = lab.post(path, document)

    assert (answer.status_code, named in answer.json()["message"]) == (400, True)
    assert lab.state()["faults"] == []


@pytest.mark.parametrize(("options", "life_s"), [(["--duration", "1h"], 3600), ([], 30 * DAY_S)], ids=["1h", "default"])
def test_a_token_lives_as_long_as_its_duration_says(lab: Any, options: list[str], life_s: int) -> None:
    """Valid until a minute before the end, 401 after it, valid again when the clock is right; 30 days by default."""
    made = lab.service.admin("token", "create", "--org", "acme", "--scope", "admin", *options)
    headers = {"Authorization": f"Bearer {made['value']}"}
    created_at = lab.api.run(lab.api.start("x"))["created_at"]
    statuses = []
    for offset_s in (0, life_s - 60, life_s + 1, 0):
        assert lab.put("/clock", {"offset_s": offset_s}).json()["offset_s"] == offset_s
        statuses.append(lab.api.get("/external/runs", headers=headers).status_code)

    assert statuses == [200, 200, 401, 200]
    # What happens is recorded as it is: the shifted clock decides about expiry alone.
    for shift in (5 * DAY_S, -5 * DAY_S):
        lab.put("/clock", {"offset_s": shift})
        assert (created_at < lab.state()["expiry_now"]) is (shift > 0)


def order(lab: Any, **fields: Any) -> httpx.Response:
    return lab.post("/runs", {"organization": "acme", "runs": 250, "until": UNTIL, "span": "10d"} | fields)


def listed(lab: Any) -> list[dict[str, Any]]:
    """Return the made-up runs, newest first."""
    return list(lab.api.runs(date_to=UNTIL))


def test_history_is_listed_like_any_other_and_made_once_of_a_seed(lab: Any) -> None:
    """In the span, ended, newest first, on several repositories; again it is 409; another seed makes another."""
    answers = [order(lab, seed=7), order(lab, seed=7)]
    found = listed(lab)
    lab.reset()
    order(lab, seed=7)
    same = listed(lab)
    lab.reset()
    order(lab, seed=8)

    assert [answer.status_code for answer in answers] == [201, 409]
    assert "another seed" in answers[1].json()["message"]
    assert answers[0].json()["runs"] == len(found) == 250
    assert all("2025-05-22T00:00:00" <= run["created_at"] < run["updated_at"] for run in found)
    assert {run["status"] for run in found} == {"completed", "failed"}
    assert [run["created_at"] for run in found] == sorted((run["created_at"] for run in found), reverse=True)
    assert len({str(run["repository"]) for run in found}) > 3
    assert same == found
    assert {run["run_id"] for run in found}.isdisjoint(run["run_id"] for run in listed(lab))


def test_reset_removes_what_was_made_up_and_nothing_else(lab: Any) -> None:
    """Active runs are the newest, for looking at: no worker takes them up; an ended one can be continued."""
    order(lab, runs=12_000, active=10, repositories=1)
    first = lab.api.get("/external/runs", params={"date_to": UNTIL, "page_size": 20}).json()["runs"]
    real = lab.api.start("nothing")
    run_id, repository = first[-1]["run_id"], first[-1]["repository"]
    again = lab.api.post("/external/runs", {"instructions": "again", "repository": repository, "run_id": run_id})
    ended = [lab.api.ended(one)["status"] for one in (real, run_id)]
    later = lab.api.get("/external/runs", params={"date_to": UNTIL, "page_size": 20}).json()["runs"]

    assert {run["status"] for run in first[:10]} <= {"queued", "working"}
    assert {run["status"] for run in first[10:]} <= {"completed", "failed"}
    assert later[:-1] == first[:-1]
    assert (again.status_code, again.json()["run_id"], ended) == (201, run_id, ["completed", "completed"])
    assert lab.reset()["runs_removed"] == 12_000
    assert listed(lab) == []
    assert lab.api.run(real)["status"] == "completed"


def test_an_organization_without_repositories_gets_made_up_ones(lab: Any) -> None:
    """Names only: enough for lists and filters; an unknown organization is 404."""
    lab.service.admin("org", "create", "Hollow", "--entitlement", "ServiceAPI")
    value = lab.service.admin("token", "create", "--org", "hollow", "--scope", "admin")["value"]
    order(lab, organization="hollow", runs=30, repositories=2)
    answer = lab.api.get("/external/runs", headers={"Authorization": f"Bearer {value}"}, params={"page_size": 30})
    unknown = order(lab, organization="nobody")
    data = [run["repository"]["data"] for run in answer.json()["runs"]]

    assert ({one["owner"] for one in data}, len({one["repo"] for one in data})) == ({"lab"}, 2)
    assert (unknown.status_code, unknown.json()["error_code"]) == (404, "organization_not_found")
    assert "nobody" in unknown.json()["message"]


def test_a_team_rests_at_weekends_and_has_a_bad_night(lab: Any) -> None:
    """Office hours are busy; the bad night stands out by its failures, and every run has ended."""
    order(lab, runs=2000, span="30d", rhythm="team", repositories=4, agents=["reviewer", "fixer"])
    found = [(datetime.fromisoformat(run["created_at"]), run) for run in listed(lab)]
    failed = Counter(at.date().isoformat() for at, run in found if run["status"] == "failed")
    weekend = [at for at, _ in found if at.weekday() >= 5]

    assert (len(found), len(weekend) < 2000 * 2 / 7 / 3) == (2000, True)
    assert failed.most_common(1)[0][0] == "2025-05-26"
    assert all(run["updated_at"] <= UNTIL for _, run in found)
