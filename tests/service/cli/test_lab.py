"""The lab: who may use it, its clock for expiry, generated history, and scripted faults as clients see them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import BARE, UNBOXED, Laboratory, served
from tests.service_process import refused_start


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A service with an open lab, for all tests of this module."""
    with served(tmp_path_factory, "laboratory", UNBOXED, arguments=["--lab"]) as service:
        yield Laboratory(service)


@pytest.fixture
def lab(laboratory: Laboratory) -> Iterator[Laboratory]:
    """That service, reset after the test."""
    yield laboratory
    laboratory.reset()


def test_the_lab_needs_its_token_and_loopback(api: Any, lab: Laboratory, tmp_path: Path) -> None:
    """The lab is off by default.

    Its token opens nothing else, and any other token, even an administrator's, gets a 401.
    """
    root = api.service.base_url.removesuffix("/v1")
    assert BARE.get(f"{root}/_lab").status_code == 404
    assert api.service.lab_token == ""
    assert "x-runwarden-lab" not in api.get("/external/runs").headers

    calls = (("GET", ""), ("POST", "/faults"), ("PUT", "/clock"), ("POST", "/runs"), ("POST", "/reset"))
    for given in ("", "Bearer rwlab_guess", f"Bearer {lab.service.admin_token}"):
        for method, path in calls:
            answer = BARE.request(method, f"{lab.url}{path}", headers={"Authorization": given}, json={})
            assert (answer.status_code, answer.json()["error_code"]) == (401, "invalid_token")
    headers = {"Authorization": f"Bearer {lab.service.lab_token}"}
    assert BARE.get(f"{lab.service.base_url}/external/runs", headers=headers).status_code == 401
    # A console shows a banner because of this mark, which is on successes and failures alike.
    answers = [
        lab.api.get("/external/runs"),
        lab.api.get("/nothing"),
        lab.get(),
        lab.get("/nothing"),
    ]
    assert [answer.headers["x-runwarden-lab"] for answer in answers] == ["on"] * 4
    assert "THE LAB IS ON" in lab.service.log
    beyond = refused_start(tmp_path, "serve", "--lab", "--host", "0.0.0.0", "--port", "0")
    assert (beyond.returncode, "only available on loopback" in beyond.stderr) == (2, True)


def test_a_token_expires_after_its_duration(lab: Laboratory) -> None:
    """A token is valid until a minute before its expiry, a 401 afterwards, and valid again with the clock set back."""
    made = lab.service.admin("token", "create", "--org", "acme", "--scope", "admin", "--duration", "1h")
    headers, statuses = {"Authorization": f"Bearer {made['value']}"}, []
    for offset_s in (0, 3540, 3601, 0):
        assert lab.put("/clock", {"offset_s": offset_s}).json()["offset_s"] == offset_s
        statuses.append(lab.api.get("/external/runs", headers=headers).status_code)
    assert statuses == [200, 200, 401, 200]


def listed(lab: Laboratory) -> list[dict[str, Any]]:
    """Return the generated runs, newest first."""
    return list(lab.api.runs(date_to="2025-06-01T00:00:00Z"))


def test_reset_removes_only_generated_data(lab: Laboratory) -> None:
    """The history spans its time and is created once.

    No worker starts its active runs; an ended one can be continued. A note replaces its log, and explains why nothing
    changed.
    """
    history = {"organization": "acme", "runs": 30, "until": "2025-06-01T00:00:00Z", "span": "10d"}
    answers = [lab.post("/runs", history | {"active": 10, "repositories": 1, "seed": 7}) for _ in range(2)]
    first = listed(lab)
    log = lab.api.get(f"/external/runs/{first[-1]['run_id']}/turns/1/log")
    real = lab.api.start("nothing")
    run_id, repository = first[-1]["run_id"], first[-1]["repository"]
    again = lab.api.post("/external/runs", {"instructions": "again", "repository": repository, "run_id": run_id})
    ended = [lab.api.ended(one)["status"] for one in (real, run_id)]
    later = listed(lab)
    lab.script("any", "status", status=500, times=5)
    lab.put("/clock", {"offset_s": 60})

    assert [answer.status_code for answer in answers] == [201, 409]
    assert all("2025-05-22T00:00:00" <= run["created_at"] < "2025-06-01T00:00:00" for run in first)
    assert (log.status_code, "no agent worked, so it has no log and no change" in log.json()["message"]) == (410, True)
    assert {run["status"] for run in first[:10]} <= {"queued", "working"}
    assert {run["status"] for run in first[10:]} <= {"completed", "failed"}
    assert later[:-1] == first[:-1]
    assert (again.status_code, ended) == (201, ["completed", "completed"])
    assert lab.reset()["runs_removed"] == 30
    assert [lab.state()[one] for one in ("faults", "consumed", "offset_s")] == [[], [], 0]
    assert (listed(lab), lab.api.run(real)["status"]) == ([], "completed")


def create(lab: Laboratory) -> Any:
    return lab.api.post("/external/organizations", {"email": "a@customer.example"})


def organizations(lab: Laboratory) -> list[dict[str, Any]]:
    return [one for one in lab.service.admin("org", "list")["organizations"] if one["slug"] != "acme"]


def test_a_caller_sees_a_fault_before_or_after_the_request_was_executed(lab: Laboratory) -> None:
    """As spec 4.1 warns, the organization exists and its mail is sent, but the caller sees a reset.

    Half-way it is created but not invited (spec 7.1): the message names it, and its mail is still pending.
    """
    for kind, executed in (("reset", None), ("lose_answer", 201)):
        before = len(organizations(lab))
        lab.script("create_organization", kind)
        with pytest.raises(httpx.ReadError):  # A regular close would be a RemoteProtocolError.
            create(lab)
        assert lab.state()["consumed"][-1]["executed_status"] == executed
        assert len(organizations(lab)) - before == (executed == 201)
    assert (lab.service.outbox / f"{organizations(lab)[-1]['id']}.eml").exists()
    lab.script("create_organization", "partial")
    seen = create(lab)
    made = organizations(lab)[-1]
    assert (seen.status_code, seen.json()["error_code"]) == (500, "provisioning_failed")
    assert made["id"] in seen.json()["message"]
    assert not (lab.service.outbox / f"{made['id']}.eml").exists()
    assert lab.state()["consumed"][-1]["executed_status"] == 500
