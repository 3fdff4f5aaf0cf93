"""Scripted faults as a bare socket sees them: real resets, real truncation, and an account of each."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

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


@dataclass
class Seen:
    """What came out of the socket."""

    head: str
    body: bytes
    ended_by: str
    """`close` (an orderly end) or `reset`."""

    @property
    def status(self) -> int:
        return int(self.head.split(" ")[1])

    def header(self, name: str) -> str | None:
        pairs = (line.partition(": ") for line in self.head.split("\r\n")[1:])
        return next((value for key, _, value in pairs if key.lower() == name), None)


def call(lab: Any, operation: str) -> Seen:
    """Send one request over a socket of its own and read until the other side ends it."""
    method, path, document, _ = OPERATIONS[operation]
    where = urlsplit(lab.service.base_url)
    raw = b"" if document is None else json.dumps(document).encode()
    head = (
        f"{method} {where.path}{path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {lab.service.admin_token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    pieces: list[bytes] = []
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=60) as connection:
        connection.sendall(head.encode() + raw)
        ended_by = "close"
        try:
            while piece := connection.recv(65_536):
                pieces.append(piece)
        except ConnectionResetError:
            ended_by = "reset"
    first, _, rest = b"".join(pieces).partition(b"\r\n\r\n")
    return Seen(first.decode("latin-1"), rest, ended_by)


def organizations(lab: Any) -> list[dict[str, Any]]:
    return [one for one in lab.service.admin("org", "list")["organizations"] if one["slug"] != "acme"]


def counted(lab: Any) -> tuple[int, int]:
    """How many organizations and runs there are, without a request to the API."""
    return len(organizations(lab)), sum(lab.service.admin("status")["runs"].values())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_status_is_answered_once_instead_of_executing_its_own_operation(lab: Any, operation: str) -> None:
    """Status, message, error_code and Retry-After as scripted; others pass, and so does the next call of the same."""
    fault = lab.script(operation, "status", status=503, retry_after="17", message="gone fishing", error_code="FISH")
    others = {other: call(lab, other).status for other in OPERATIONS if other != operation}
    before = counted(lab)
    seen = call(lab, operation)
    after, state = counted(lab), lab.state()

    assert others == {other: OPERATIONS[other][3] for other in others}
    assert (seen.status, seen.header("retry-after"), seen.header("x-runwarden-lab")) == (503, "17", "on")
    assert json.loads(seen.body) == {"message": "gone fishing", "error_code": "FISH"}
    assert after == before
    assert state["faults"] == []
    fields = ("fault_id", "operation", "kind", "ended", "executed_status")
    assert [[one[name] for name in fields] for one in state["consumed"]] == [[fault, operation, "status", True, None]]
    assert call(lab, operation).status == OPERATIONS[operation][3]


def test_faults_are_consumed_by_count_and_in_order(lab: Any) -> None:
    """Two 503, then one 429, then all is well; what is left is shown."""
    lab.script("list_runs", "status", status=503, times=2)
    lab.script("any", "status", status=429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")
    first = call(lab, "list_runs").status
    left = [one["left"] for one in lab.state()["faults"]]
    rest = [call(lab, "list_runs") for _ in range(3)]

    assert (first, left) == (503, [1, 1])
    assert [seen.status for seen in rest] == [503, 429, 200]
    assert rest[1].header("retry-after") == "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize("operation", ["list_runs", "create_organization"])
def test_a_reset_leaves_not_one_byte(lab: Any, operation: str) -> None:
    """The connection is reset after the request was read; nothing was executed."""
    before = len(organizations(lab))
    lab.script(operation, "reset")
    seen = call(lab, operation)

    assert (seen.head, seen.body, seen.ended_by) == ("", b"", "reset")
    assert len(organizations(lab)) == before
    assert lab.state()["consumed"][0]["executed_status"] is None


def test_an_answer_is_lost_after_the_commit(lab: Any) -> None:
    """The organization exists and its mail is out, but the caller sees a reset: the case of spec 4.1's warning."""
    before = len(organizations(lab))
    lab.script("create_organization", "lose_answer")
    seen = call(lab, "create_organization")
    made = organizations(lab)

    assert (seen.head, seen.ended_by) == ("", "reset")
    assert len(made) == before + 1
    assert (lab.service.outbox / f"{made[-1]['id']}.eml").exists()
    assert lab.state()["consumed"][0]["executed_status"] == 201


def test_a_lost_answer_to_a_run_leaves_the_run(start: Callable[..., Api]) -> None:
    """It is listed, and executed to its end."""
    lab = Laboratory(start(arguments=["--lab"]).service)
    before = lab.api.get("/external/runs").json()["total_count"]
    lab.script("start_agent", "lose_answer")
    seen = call(lab, "start_agent")
    newest = lab.api.get("/external/runs").json()

    assert (seen.head, newest["total_count"]) == ("", before + 1)
    assert lab.api.ended(newest["runs"][0]["run_id"])["status"] == "completed"


@pytest.mark.parametrize(("keep", "kept"), [(None, None), (0, 0), (7, 7), (1_000_000, -1)])
def test_a_truncated_body_is_shorter_than_promised(lab: Any, keep: int | None, kept: int | None) -> None:
    """Content-Length promises it all; half of it comes, or what was asked for, but never the whole."""
    lab.script("list_runs", "truncate", **({} if keep is None else {"keep_bytes": keep}))
    seen = call(lab, "list_runs")
    promised = int(seen.header("content-length") or 0)
    expected = promised // 2 if kept is None else kept % promised

    assert (seen.status, seen.ended_by) == (200, "close")
    assert len(seen.body) == expected < promised


def test_a_dripping_body_comes_byte_by_byte(lab: Any) -> None:
    """Complete in the end, and as slow as was asked for."""
    lab.script("read_health", "drip", interval_s=0.005)
    began = time.monotonic()
    seen = call(lab, "read_health")
    took_s = time.monotonic() - began

    assert json.loads(seen.body)["code_hosting"]["github"]["status"] == "ok"
    assert took_s >= 0.005 * len(seen.body)


def test_a_client_that_leaves_ends_the_drip(lab: Any) -> None:
    """No answer drips for an hour into a closed socket."""
    lab.script("list_runs", "drip", interval_s=60)
    with pytest.raises(httpx.ReadTimeout):
        lab.api.get("/external/runs", timeout=httpx.Timeout(120, read=0.2))

    eventually(lambda: any(one["ended"] for one in lab.state()["consumed"]), "the drip ends with its client")


def test_a_delay_comes_before_the_answer(lab: Any) -> None:
    """Delayed, then executed as ever."""
    lab.script("list_runs", "delay", delay_s=0.3)
    began = time.monotonic()
    seen = call(lab, "list_runs")

    assert seen.status == 200
    assert time.monotonic() - began >= 0.3
    assert "next_token" in json.loads(seen.body)


def test_a_provisioning_that_stops_half_way_is_500_and_leaves_the_organization(lab: Any) -> None:
    """Spec 7.1: created but not invited; the message names it, and its mail is still owed."""
    lab.script("create_organization", "partial")
    seen = call(lab, "create_organization")
    made = organizations(lab)[-1]
    body = json.loads(seen.body)

    assert (seen.status, body["error_code"]) == (500, "provisioning_failed")
    assert made["id"] in body["message"]
    assert not (lab.service.outbox / f"{made['id']}.eml").exists()
    assert lab.state()["consumed"][0]["executed_status"] == 500


def test_reset_forgets_the_script_and_the_account(lab: Any) -> None:
    """Afterwards everything is as at the start."""
    lab.script("any", "status", status=500, times=5)
    call(lab, "list_runs")
    lab.put("/clock", {"offset_s": 60})
    lab.reset()
    state = lab.state()

    assert (state["faults"], state["consumed"], state["offset_s"]) == ([], [], 0)
    assert call(lab, "list_runs").status == 200
