"""Scripted faults as a client sees them: real resets, real truncation, and an account of each."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.service.conftest import OPERATIONS, Api, Laboratory
from tests.service_process import start_service
from tests.waiting import eventually


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A service without a worker: faults are in its answers, and what it accepts stays queued."""
    service = start_service(tmp_path_factory.mktemp("laboratory"), arguments=["--lab", "--no-worker"])
    yield Laboratory(service)
    assert service.stop() == 0


def call(lab: Any, operation: str) -> httpx.Response:
    """Call an operation as it is accepted."""
    method, path, document, _ = OPERATIONS[operation]
    answer: httpx.Response = lab.api.http.request(method, path, json=document)
    return answer


def lose(lab: Any, operation: str) -> None:
    """Call an operation whose connection is reset: an orderly end would be a RemoteProtocolError."""
    with pytest.raises(httpx.ReadError):
        call(lab, operation)


def organizations(lab: Any) -> list[dict[str, Any]]:
    return [one for one in lab.service.admin("org", "list")["organizations"] if one["slug"] != "acme"]


def counted(lab: Any) -> tuple[int, int]:
    """How many organizations and runs there are, without a request to the API."""
    return len(organizations(lab)), sum(lab.service.admin("status")["runs"].values())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_status_is_answered_once_instead_of_executing_its_own_operation(lab: Any, operation: str) -> None:
    """Status, message, error_code and Retry-After as scripted; others pass, and so does the next call of the same."""
    fault = lab.script(operation, "status", status=503, retry_after="17", message="gone fishing", error_code="FISH")
    others = {other: call(lab, other).status_code for other in OPERATIONS if other != operation}
    before = counted(lab)
    seen = call(lab, operation)
    after, state = counted(lab), lab.state()

    assert others == {other: OPERATIONS[other][3] for other in others}
    assert (seen.status_code, seen.headers["retry-after"], seen.headers["x-runwarden-lab"]) == (503, "17", "on")
    assert seen.json() == {"message": "gone fishing", "error_code": "FISH"}
    assert after == before
    assert state["faults"] == []
    fields = ("fault_id", "operation", "kind", "ended", "executed_status")
    assert [[one[name] for name in fields] for one in state["consumed"]] == [[fault, operation, "status", True, None]]
    assert call(lab, operation).status_code == OPERATIONS[operation][3]


def test_faults_are_consumed_by_count_and_in_order_and_forgotten_by_a_reset(lab: Any) -> None:
    """Two 503, then one 429, then all is well; what is left is shown."""
    lab.script("list_runs", "status", status=503, times=2)
    lab.script("any", "status", status=429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")
    first = call(lab, "list_runs").status_code
    left = [one["left"] for one in lab.state()["faults"]]
    rest = [call(lab, "list_runs") for _ in range(3)]
    lab.script("any", "status", status=500, times=5)
    lab.put("/clock", {"offset_s": 60})
    lab.reset()
    state = lab.state()

    assert (first, left) == (503, [1, 1])
    assert [seen.status_code for seen in rest] == [503, 429, 200]
    assert rest[1].headers["retry-after"] == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert (state["faults"], state["consumed"], state["offset_s"]) == ([], [], 0)
    assert call(lab, "list_runs").status_code == 200


@pytest.mark.parametrize(
    ("operation", "kind", "executed"),
    [
        ("list_runs", "reset", None),
        ("create_organization", "reset", None),
        # The case of spec 4.1's warning: the organization exists and its mail is out, but the caller sees a reset.
        ("create_organization", "lose_answer", 201),
    ],
)
def test_a_reset_leaves_not_one_byte(lab: Any, operation: str, kind: str, executed: int | None) -> None:
    """The connection is reset after the request was read, before or after it was executed."""
    before = organizations(lab)
    lab.script(operation, kind)
    lose(lab, operation)
    made = organizations(lab)[len(before) :]

    assert [(lab.service.outbox / f"{one['id']}.eml").exists() for one in made] == [True] * (executed == 201)
    assert lab.state()["consumed"][0]["executed_status"] == executed


def test_a_lost_answer_to_a_run_leaves_the_run(start: Callable[..., Api]) -> None:
    """It is listed, and executed to its end."""
    lab = Laboratory(start(arguments=["--lab"]).service)
    lab.script("start_agent", "lose_answer")
    lose(lab, "start_agent")
    listed = lab.api.get("/external/runs").json()

    assert listed["total_count"] == 1
    assert lab.api.ended(listed["runs"][0]["run_id"])["status"] == "completed"


@pytest.mark.parametrize(("keep", "kept"), [(None, None), (0, 0), (7, 7), (1_000_000, -1)])
def test_a_truncated_body_is_shorter_than_promised(lab: Any, keep: int | None, kept: int | None) -> None:
    """Content-Length promises it all; half of it comes, or what was asked for, but never the whole."""
    lab.script("list_runs", "truncate", **({} if keep is None else {"keep_bytes": keep}))
    pieces: list[bytes] = []
    with lab.api.http.stream("GET", "/external/runs") as seen, pytest.raises(httpx.RemoteProtocolError):
        pieces.extend(seen.iter_raw())
    promised = int(seen.headers["content-length"])

    assert seen.status_code == 200
    assert len(b"".join(pieces)) == (promised // 2 if kept is None else kept % promised) < promised


def test_a_dripping_or_delayed_answer_comes_in_the_end_until_its_client_leaves(lab: Any) -> None:
    """Complete in the end, and as slow as was asked for; no answer drips for an hour into a closed socket."""
    lab.script("read_health", "drip", interval_s=0.005)
    lab.script("list_runs", "delay", delay_s=0.3)
    began = time.monotonic()
    seen = call(lab, "read_health")
    took_s = time.monotonic() - began
    late = call(lab, "list_runs")
    assert (late.status_code, "next_token" in late.json(), time.monotonic() - began - took_s >= 0.3) == (
        200,
        True,
        True,
    )
    lab.script("list_runs", "drip", interval_s=60)
    with pytest.raises(httpx.ReadTimeout):
        lab.api.get("/external/runs", timeout=httpx.Timeout(120, read=0.2))

    assert seen.json()["code_hosting"]["github"]["status"] == "ok"
    assert took_s >= 0.005 * len(seen.content)
    eventually(lambda: lab.state()["consumed"][-1]["ended"], "the drip ends with its client")


def test_a_provisioning_that_stops_half_way_is_500_and_leaves_the_organization(lab: Any) -> None:
    """Spec 7.1: created but not invited; the message names it, and its mail is still owed."""
    lab.script("create_organization", "partial")
    seen = call(lab, "create_organization")
    made = organizations(lab)[-1]

    assert (seen.status_code, seen.json()["error_code"]) == (500, "provisioning_failed")
    assert made["id"] in seen.json()["message"]
    assert not (lab.service.outbox / f"{made['id']}.eml").exists()
    assert lab.state()["consumed"][0]["executed_status"] == 500
