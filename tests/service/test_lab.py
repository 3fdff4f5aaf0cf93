"""The lab: who may use it, the clock of expiry, history on demand, and scripted faults as clients see them."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.conftest import BARE, OPERATIONS
from tests.service_process import refused_start
from tests.waiting import eventually

DAY_S = 86_400
UNTIL = "2025-06-01T00:00:00Z"


SENSELESS = [
    ("/faults", {"operation": "sing", "kind": "reset"}, "operation"),
    ("/faults", {"operation": "list_runs", "kind": "status"}, "status"),
    ("/faults", {"operation": "list_runs", "kind": "reset", "status": 503}, "status"),
    ("/faults", {"operation": "list_runs", "kind": "partial"}, "create_organization"),
    ("/faults", {"operation": "list_runs", "kind": "status", "status": 429, "retry_after": "1\r\nX: y"}, "retry"),
    ("/runs", {"organization": "acme", "runs": 1, "span": "long"}, "duration"),
    ("/runs", {"organization": "acme", "runs": 1, "until": "1970-01-02T00:00:00Z"}, "1970"),
    ("/runs", {"organization": "acme", "runs": 1, "rhythm": "team", "active": 1}, "active"),
]


def test_the_lab_opens_to_its_own_token_alone_on_this_machine(api: Any, lab: Any, tmp_path: Path) -> None:
    """Off by default; its token opens nothing else; 401 for everything else, the API's administrator included."""
    root = api.service.base_url.removesuffix("/v1")
    assert BARE.get(f"{root}/_lab").status_code == 404
    assert api.service.lab_token == ""
    assert "x-runwarden-lab" not in api.get("/external/runs").headers

    calls = (("GET", ""), ("POST", "/faults"), ("PUT", "/clock"), ("POST", "/runs"), ("POST", "/reset"))
    for given in ("", "Bearer", "Bearer rwlab_guess", f"Bearer {lab.service.admin_token}"):
        for method, path in calls:
            answer = BARE.request(method, f"{lab.url}{path}", headers={"Authorization": given}, json={})
            assert (answer.status_code, answer.json()["error_code"]) == (401, "invalid_token")
    headers = {"Authorization": f"Bearer {lab.service.lab_token}"}
    assert BARE.get(f"{lab.service.base_url}/external/runs", headers=headers).status_code == 401
    # A console shows a banner by this mark, which is on successes and failures alike.
    answers = [lab.api.get("/external/runs"), lab.api.get("/nothing"), lab.get(), lab.get("/nothing")]
    assert [answer.headers["x-runwarden-lab"] for answer in answers] == ["on"] * 4
    assert "THE LAB IS ON" in lab.service.log
    beyond = refused_start(tmp_path, "serve", "--lab", "--host", "0.0.0.0", "--port", "0")
    assert (beyond.returncode, "only available on loopback" in beyond.stderr) == (2, True)


def test_a_token_lives_as_long_as_its_duration_says(lab: Any) -> None:
    """Valid until a minute before the end, 401 after it, valid again when the clock is right; 30 days by default."""
    created_at = lab.api.run(lab.api.start("x"))["created_at"]
    for options, life_s in ((["--duration", "1h"], 3600), ([], 30 * DAY_S)):
        made = lab.service.admin("token", "create", "--org", "acme", "--scope", "admin", *options)
        headers, statuses = {"Authorization": f"Bearer {made['value']}"}, []
        for offset_s in (0, life_s - 60, life_s + 1, 0):
            assert lab.put("/clock", {"offset_s": offset_s}).json()["offset_s"] == offset_s
            statuses.append(lab.api.get("/external/runs", headers=headers).status_code)
        assert statuses == [200, 200, 401, 200], options
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
    """In the span, ended, newest first, on several repositories; again it is 409; another seed makes another.

    In place of a log there is a word on it, which is also the reason why nothing changed.
    """
    answers = [order(lab, seed=7), order(lab, seed=7)]
    found = listed(lab)
    run_id = next(run["run_id"] for run in found if run["status"] == "completed")
    log = lab.api.get(f"/external/runs/{run_id}/turns/1/log")
    (turn,) = lab.api.turns(run_id)
    lab.reset()
    order(lab, seed=7)
    same = listed(lab)
    lab.reset()
    order(lab, seed=8)

    assert [answer.status_code for answer in answers] == [201, 409]
    assert answers[0].json()["runs"] == len(found) == 250
    assert all("2025-05-22T00:00:00" <= run["created_at"] < run["updated_at"] for run in found)
    assert {run["status"] for run in found} == {"completed", "failed"}
    assert [run["created_at"] for run in found] == sorted((run["created_at"] for run in found), reverse=True)
    assert len({str(run["repository"]) for run in found}) > 3
    assert same == found
    assert {run["run_id"] for run in found}.isdisjoint(run["run_id"] for run in listed(lab))
    assert (log.status_code, log.json()["message"]) == (410, turn["reason"])
    assert turn["reason"] == "the lab made this turn up: no agent worked, so it has no log and no change"


def test_reset_removes_what_was_made_up_and_the_script_and_nothing_else(lab: Any) -> None:
    """Active runs are the newest, for looking at: no worker takes them up; an ended one can be continued."""
    order(lab, runs=30, active=10, repositories=1)
    first = listed(lab)
    real = lab.api.start("nothing")
    run_id, repository = first[-1]["run_id"], first[-1]["repository"]
    again = lab.api.post("/external/runs", {"instructions": "again", "repository": repository, "run_id": run_id})
    ended = [lab.api.ended(one)["status"] for one in (real, run_id)]
    later = listed(lab)
    lab.script("any", "status", status=500, times=5)
    lab.put("/clock", {"offset_s": 60})

    assert {run["status"] for run in first[:10]} <= {"queued", "working"}
    assert {run["status"] for run in first[10:]} <= {"completed", "failed"}
    assert later[:-1] == first[:-1]
    assert (again.status_code, ended) == (201, ["completed", "completed"])
    assert lab.reset()["runs_removed"] == 30
    assert [lab.state()[one] for one in ("faults", "consumed", "offset_s")] == [[], [], 0]
    assert (listed(lab), lab.api.run(real)["status"]) == ([], "completed")


def call(lab: Any, operation: str) -> httpx.Response:
    """Call an operation as it is accepted."""
    method, path, document, _ = OPERATIONS[operation]
    answer: httpx.Response = lab.api.http.request(method, path, json=document)
    return answer


def organizations(lab: Any) -> list[dict[str, Any]]:
    return [one for one in lab.service.admin("org", "list")["organizations"] if one["slug"] != "acme"]


def test_a_status_is_answered_once_instead_of_executing_its_own_operation(lab: Any) -> None:
    """As scripted, by count and in order; others pass, and so does the next call of the same."""
    scripted = {"status": 503, "retry_after": "17", "message": "gone fishing", "error_code": "FISH"}
    faults = {operation: lab.script(operation, "status", **scripted) for operation in OPERATIONS if operation[0] != "s"}
    others = {operation: call(lab, operation).status_code for operation in OPERATIONS if operation not in faults}
    faults |= {operation: lab.script(operation, "status", **scripted) for operation in others}
    before = len(organizations(lab)), lab.service.admin("status")["runs"]
    seen = {operation: call(lab, operation) for operation in OPERATIONS}
    after, state = (len(organizations(lab)), lab.service.admin("status")["runs"]), lab.state()
    lab.script("list_runs", "status", status=503, times=2)
    lab.script("any", "status", status=429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")
    first = call(lab, "list_runs").status_code
    left = [one["left"] for one in lab.state()["faults"]]
    rest = [call(lab, "list_runs") for _ in range(3)]

    assert others == {operation: OPERATIONS[operation][3] for operation in ("start_run", "start_agent")}
    for answer in seen.values():
        headers = [answer.headers[name] for name in ("retry-after", "x-runwarden-lab")]
        assert (answer.status_code, headers) == (503, ["17", "on"])
        assert answer.json() == {"message": "gone fishing", "error_code": "FISH"}
    assert sum(after[1].values()) == sum(before[1].values())
    assert (after[0], state["faults"]) == (before[0], [])
    fields = ("fault_id", "operation", "kind", "ended", "executed_status")
    consumed = [[one[name] for name in fields] for one in state["consumed"]]
    assert consumed == [[faults[operation], operation, "status", True, None] for operation in OPERATIONS]
    assert (first, left, [one.status_code for one in rest]) == (503, [1, 1], [503, 429, 200])
    assert rest[1].headers["retry-after"] == "Wed, 21 Oct 2026 07:28:00 GMT"


def test_a_caller_sees_a_fault_before_or_after_the_request_was_executed(lab: Any) -> None:
    """The case of spec 4.1's warning: the organization exists and its mail is out, but the caller sees a reset.

    Half-way it is created but not invited (spec 7.1): the message names it, and its mail is still owed.
    """
    for kind, executed in (("reset", None), ("lose_answer", 201)):
        before = len(organizations(lab))
        lab.script("create_organization", kind)
        with pytest.raises(httpx.ReadError):  # An orderly end would be a RemoteProtocolError.
            call(lab, "create_organization")
        assert lab.state()["consumed"][-1]["executed_status"] == executed
        assert len(organizations(lab)) - before == (executed == 201)
    assert (lab.service.outbox / f"{organizations(lab)[-1]['id']}.eml").exists()
    lab.script("create_organization", "partial")
    seen = call(lab, "create_organization")
    made = organizations(lab)[-1]
    assert (seen.status_code, seen.json()["error_code"]) == (500, "provisioning_failed")
    assert made["id"] in seen.json()["message"]
    assert not (lab.service.outbox / f"{made['id']}.eml").exists()
    assert lab.state()["consumed"][-1]["executed_status"] == 500


def test_an_answer_is_truncated_drips_or_is_delayed(lab: Any) -> None:
    """Half of what Content-Length promises comes, or what was asked for; complete in the end; or late.

    No answer drips for an hour into a closed socket.
    """
    for options, part in (({}, 0.5), ({"keep_bytes": 0}, 0), ({"keep_bytes": 1_000_000}, 1)):
        lab.script("list_runs", "truncate", **options)
        pieces: list[bytes] = []
        with lab.api.http.stream("GET", "/external/runs") as seen, pytest.raises(httpx.RemoteProtocolError):
            pieces.extend(seen.iter_raw())
        promised = int(seen.headers["content-length"])
        assert len(b"".join(pieces)) == min(int(promised * part), promised - 1), options
    lab.script("read_health", "drip", interval_s=0.002)
    lab.script("list_runs", "delay", delay_s=0.3)
    times, answers = [time.monotonic()], []
    for operation in ("read_health", "list_runs"):
        answers.append(call(lab, operation))
        times.append(time.monotonic())
    lab.script("list_runs", "drip", interval_s=60)
    with pytest.raises(httpx.ReadTimeout):
        lab.api.get("/external/runs", timeout=httpx.Timeout(120, read=0.2))

    assert answers[0].json()["code_hosting"]["github"]["status"] == "ok"
    assert times[1] - times[0] >= 0.002 * len(answers[0].content)
    assert ("next_token" in answers[1].json(), times[2] - times[1] >= 0.3) == (True, True)
    eventually(lambda: lab.state()["consumed"][-1]["ended"], "the drip ends with its client")


def test_an_order_that_makes_no_sense_is_400_and_named(lab: Any) -> None:
    """Nothing is put on the script."""
    for path, document, named in SENSELESS:
        answer = lab.post(path, document)
        assert (answer.status_code, named in answer.json()["message"]) == (400, True), document
    assert lab.state()["faults"] == []
