"""What is no proper HTTP is refused in the spec's form as well (spec 7.2), and does no harm."""

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fault_server import FaultServer, Hang, Received, Respond
from tests.service.conftest import Api
from tests.service_process import start_service
from tests.waiting import eventually


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service that gives a request half a second to arrive."""
    service = start_service(tmp_path_factory.mktemp("impatient"), settings="[limits]\nrequest_s = 0.5\n")
    yield Api(service)
    service.stop()


def say(api: Any, *pieces: bytes, end: bool = False) -> bytes:
    """Send bytes over a socket of its own; with `end` leave at once, else return all that is answered."""
    where = urlsplit(api.service.base_url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=300) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if end:
            return b""
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
        return answer


def head(api: Any, *lines: str) -> bytes:
    given = [
        "POST /v1/external/runs HTTP/1.1",
        "Host: here",
        "Connection: close",
        f"Authorization: Bearer {api.service.admin_token}",
        "Content-Type: application/json",
        *lines,
    ]
    return "\r\n".join(given).encode() + b"\r\n\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /v1/external/runs\xff HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /v1/external/runs HTTP/1.1\r\nHost: here\r\nbad header\r\n\r\n",
        b"GET /v1/external/runs HTTP/1.1\r\nHost: here\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/external/runs HTTP/1.1\r\nHost: here\r\nX: " + b"a" * 100_000,
        b"GET /v1/external/runs?" + b"a" * 100_000,
        b"POST /v1/external/runs HTTP/1.1\r\nHost: here\r\nContent-Length: ten\r\n\r\n",
        b"POST /v1/external/runs HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
    ids=["words", "TLS", "path", "header", "NUL", "long header", "long path", "length", "two lengths"],
)
def test_what_is_no_http_gets_a_failure_body(api: Any, raw: bytes) -> None:
    """400, JSON, a message, and the end of the connection: nothing of it reaches the application."""
    first, _, body = say(api, raw).partition(b"\r\n\r\n")

    assert first.startswith(b"HTTP/1.1 400 ")
    assert b"application/json" in first
    assert json.loads(body)["error_code"] == "malformed_request"
    assert json.loads(body)["message"]


def test_a_body_whose_chunks_are_broken_is_refused(api: Any) -> None:
    """Chunked framing that ends in nonsense is 400, once."""
    answer = say(api, head(api, "Transfer-Encoding: chunked"), b'4\r\n{"a"\r\nnonsense\r\n')

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 4") == 1
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == "malformed_request"


def test_a_caller_who_hangs_up_in_mid_request_leaves_no_trace(api: Any) -> None:
    """Half a body and gone: nothing is started, nothing is logged as a failure of the service."""
    log, runs = len(api.service.log), api.get("/external/runs").json()["total_count"]
    say(api, head(api, "Content-Length: 1000"), b'{"instructions": "half', end=True)
    api.ended(api.start("nothing, afterwards"))

    assert api.get("/external/runs").json()["total_count"] == runs + 1
    assert "Traceback" not in api.service.log[log:]


def test_a_chunked_body_works_like_any_other(api: Any) -> None:
    """No Content-Length is needed."""
    raw = json.dumps(
        {"instructions": "look", "repository": {"platform": "github", "data": {"owner": "acme", "repo": "api"}}}
    ).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(raw[at : at + 7]), raw[at : at + 7]) for at in range(0, len(raw), 7))
    answer = say(api, head(api, "Transfer-Encoding: chunked"), chunks, b"0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 201 ")


def test_a_body_without_an_end_is_cut_off_at_the_limit(api: Any) -> None:
    """413 as soon as it is too large, whatever length it claims to have."""
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    where = urlsplit(api.service.base_url)
    answer = b""
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=300) as connection:
        connection.sendall(head(api, "Transfer-Encoding: chunked"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while not select.select([connection], [], [], 0)[0]:
                connection.sendall(chunk)
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                answer += piece

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in answer


@pytest.mark.parametrize("arrived", ["nothing", "half a head", "half a body"])
def test_a_request_that_does_not_arrive_loses_its_connection(impatient: Any, arrived: str) -> None:
    """It is told so: idle connections must not keep others out."""
    half = {"nothing": b"", "half a head": b"GET /livez HT", "half a body": head(impatient, "Content-Length: 9") + b"{"}
    answer = say(impatient, half[arrived])

    assert b"HTTP/1.1 408 Request Timeout" in answer
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["error_code"] == "request_timeout"


def test_a_request_that_takes_long_to_answer_is_not_one_that_does_not_arrive(impatient: Any) -> None:
    """The clock stops when the request is there."""
    with FaultServer() as slow:
        released = threading.Event()

        def answer(_: Received) -> Respond:
            released.wait(300)
            return Respond(404, {"message": "no"})

        slow.otherwise = answer
        organization = impatient.service.organization["slug"]
        connect = (
            "host",
            "connect",
            "--org",
            organization,
            "--platform",
            "gitlab",
            "--api-url",
            f"{slow.origin}/api/v4",
        )
        impatient.service.admin(*connect)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(impatient.post, "/external/gitlab/projects", {"project_id": 1})
            eventually(lambda: bool(slow.requests), "the code host is asked")
            # Another connection is given up in the same time.
            say(impatient)
            released.set()
            assert waiting.result(300).json()["status"] == "failed"


def test_slow_code_hosts_hold_up_nothing_but_their_own_callers(start: Callable[..., Any]) -> None:
    """Eighty onboardings wait for a GitLab that does not answer: health checks and lists go on."""
    with FaultServer() as silent, ThreadPoolExecutor(80) as pool:
        silent.otherwise = lambda _: Hang()
        host = {"platform": "gitlab", "api_url": f"{silent.origin}/api/v4", "host": "gitlab.example"}
        entries = [{"name": name, "tokens": [{"alias": "t"}], "hosts": [host]} for name in ("Busy", "Other")]
        api = start(setup={"organizations": entries}, settings="[probing]\ntimeout_s = 20\n")
        waiting = [pool.submit(api.post, "/external/gitlab/projects", {"project_id": n}) for n in range(1, 81)]
        eventually(lambda: len(silent.requests) >= 4, "the code host is asked")
        origin = api.service.base_url.removesuffix("/v1")

        assert httpx.get(f"{origin}/livez", timeout=300).json() == {"status": "ok"}
        assert httpx.get(f"{origin}/readyz", timeout=300).json() == {"status": "ok"}
        assert api.get("/external/runs").status_code == 200
        assert len(silent.requests) == 4, "an organization has four places"
        assert not any(one.done() for one in waiting)
        api.service.process.kill()
    assert all(one.exception() is not None for one in waiting)


def test_large_metadata_is_refused(api: Any) -> None:
    """400 that names the limit; a little less is taken."""
    reference = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
    body = {"instructions": "go", "repository": reference}
    answers = [api.post("/external/runs", body | {"metadata": {"x": "y" * size}}) for size in (65_000, 66_000)]

    assert [answer.status_code for answer in answers] == [201, 400]
    assert answers[1].json()["error_code"] == "metadata_too_large"
