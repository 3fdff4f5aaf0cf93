"""The lab: who may use it, what it shows, and the clock by which tokens expire."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import BARE
from tests.service_process import refused_start

DAY_S = 86_400


def test_without_being_asked_for_there_is_no_lab(api: Any) -> None:
    """Off by default: no path, no token, no mark."""
    root = api.service.base_url.removesuffix("/v1")

    assert BARE.get(f"{root}/_lab").status_code == 404
    assert api.service.lab_token == ""
    assert "x-runwarden-lab" not in api.get("/external/runs").headers


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer rwlab_guess", "admin"])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("POST", "/faults"), ("PUT", "/clock"), ("POST", "/runs"), ("POST", "/reset")]
)
def test_the_lab_opens_to_its_own_token_alone(lab: Any, method: str, path: str, given: str) -> None:
    """401 for everything else, the API's administrator included."""
    token = f"Bearer {lab.service.admin_token}" if given == "admin" else given
    answer = BARE.request(method, f"{lab.url}{path}", headers={"Authorization": token}, json={})

    assert answer.status_code == 401
    assert answer.json()["error_code"] == "invalid_token"


def test_the_lab_token_opens_nothing_but_the_lab(lab: Any) -> None:
    """It is no API token."""
    headers = {"Authorization": f"Bearer {lab.service.lab_token}"}

    assert BARE.get(f"{lab.service.base_url}/external/runs", headers=headers).status_code == 401


def test_every_answer_says_that_the_lab_is_on(lab: Any) -> None:
    """Successes and failures alike, so that a console can show a banner; the log says it aloud."""
    answers = [lab.api.get("/external/runs"), lab.api.get("/nothing"), lab.get(), lab.get("/nothing")]

    assert [answer.headers["x-runwarden-lab"] for answer in answers] == ["on"] * 4
    assert "THE LAB IS ON" in lab.service.log


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_lab_refuses_to_listen_beyond_this_machine(tmp_path: Path, host: str) -> None:
    """Exit status 2, and the cure."""
    ended = refused_start(tmp_path, "serve", "--lab", "--host", host, "--port", "0")

    assert ended.returncode == 2
    assert "loopback only" in ended.stderr


@pytest.mark.parametrize(
    ("path", "document", "named"),
    [
        ("/faults", {"operation": "sing", "kind": "reset"}, "operation"),
        ("/faults", {"operation": "list_runs", "kind": "sulk"}, "kind"),
        ("/faults", {"operation": "list_runs", "kind": "status"}, "status"),
        ("/faults", {"operation": "list_runs", "kind": "reset", "status": 503}, "status"),
        ("/faults", {"operation": "list_runs", "kind": "status", "status": 200}, "status"),
        ("/faults", {"operation": "list_runs", "kind": "partial"}, "create_organization"),
        ("/faults", {"operation": "list_runs", "kind": "delay"}, "delay_s"),
        ("/faults", {"operation": "list_runs", "kind": "reset", "times": 0}, "times"),
        ("/faults", {"operation": "list_runs", "kind": "reset", "mood": "bad"}, "mood"),
        ("/faults", {"operation": "list_runs", "kind": "status", "status": 429, "retry_after": "1\r\nX: y"}, "retry"),
        ("/runs", {"organization": "acme"}, "runs"),
        ("/runs", {"organization": "acme", "runs": 1, "span": "long"}, "duration"),
        ("/runs", {"organization": "acme", "runs": 1, "until": "2025-01-01"}, "date-time"),
        ("/runs", {"organization": "acme", "runs": 1, "until": "1970-01-02T00:00:00Z"}, "1970"),
        ("/runs", {"organization": "acme", "runs": 1, "until": "9999-12-31T23:59:59Z"}, "100 years"),
    ],
)
def test_an_order_that_makes_no_sense_is_400_and_named(
    lab: Any, path: str, document: dict[str, Any], named: str
) -> None:
    """Nothing is put on the script."""
    answer = lab.post(path, document)

    assert answer.status_code == 400
    assert named in answer.json()["message"]
    assert lab.state()["faults"] == []


@pytest.mark.parametrize(("options", "life_s"), [(["--duration", "1h"], 3600), ([], 30 * DAY_S)], ids=["1h", "default"])
def test_a_token_lives_as_long_as_its_duration_says(lab: Any, options: list[str], life_s: int) -> None:
    """Valid until a minute before the end, 401 after it, valid again when the clock is right; 30 days by default."""
    made = lab.service.admin("token", "create", "--org", "acme", "--scope", "admin", *options)
    headers = {"Authorization": f"Bearer {made['value']}"}
    statuses = []
    for offset_s in (0, life_s - 60, life_s + 1, 0):
        assert lab.put("/clock", {"offset_s": offset_s}).json()["offset_s"] == offset_s
        statuses.append(lab.api.get("/external/runs", headers=headers).status_code)

    assert statuses == [200, 200, 401, 200]


def test_a_shifted_clock_dates_nothing(lab: Any) -> None:
    """It decides about expiry; what happens now is recorded as now."""
    lab.put("/clock", {"offset_s": 5 * DAY_S})
    made = lab.api.post("/external/agents/scribe/runs", {"repository": "acme/api", "inputs": {"instructions": "x"}})

    assert made.json()["created_at"] < lab.state()["expiry_now"]
    lab.put("/clock", {"offset_s": -5 * DAY_S})
    assert made.json()["created_at"] > lab.state()["expiry_now"]


def test_a_new_start_has_a_new_token_and_a_right_clock(start: Callable[..., Any]) -> None:
    """Nothing of the lab outlives the process."""
    api = start(arguments=["--lab"])
    before = api.service.lab_token
    root = api.service.base_url.removesuffix("/v1")
    BARE.put(f"{root}/_lab/clock", json={"offset_s": 60}, headers={"Authorization": f"Bearer {before}"})
    api.service.stop()
    api.service.restart()
    state = BARE.get(f"{root}/_lab", headers={"Authorization": f"Bearer {api.service.lab_token}"}).json()

    assert api.service.lab_token != before
    assert state["offset_s"] == 0
