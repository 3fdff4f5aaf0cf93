"""Invalid HTTP is refused in the spec's form as well (spec 7.2), and does no harm."""

import contextlib
import json
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from tests.lab import Hang, Server
from tests.service.conftest import BARE, Make
from tests.waiting import eventually


def connect(api: Any) -> socket.socket:
    where = urlsplit(api.service.base_url)
    return socket.create_connection((where.hostname or "", where.port or 0), 60)


def heard(connection: socket.socket) -> bytes:
    """Return everything that is answered until the service closes the connection."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            answer += piece
    return answer


def send(api: Any, *pieces: bytes) -> bytes:
    with connect(api) as connection:
        connection.sendall(b"".join(pieces))
        return heard(connection)


def code(answer: bytes) -> tuple[int, str]:
    return int(answer.split()[1]), json.loads(answer.rpartition(b"\r\n\r\n")[2])["error_code"]


def head(api: Any, *lines: str) -> bytes:
    first = ("POST /v1/external/runs HTTP/1.1", "Host: here", "Connection: close", "Content-Type: application/json")
    return "\r\n".join([*first, f"Authorization: Bearer {api.token}", *lines]).encode() + b"\r\n\r\n"


def test_an_incomplete_body_has_no_effect(api: Any) -> None:
    """Nothing is started or logged as a service failure; an endless body gets a 413 once it is too large."""
    log, runs = len(api.service.log), api.get("/external/runs").json()["total_count"]
    with connect(api) as connection:
        connection.sendall(head(api, "Content-Length: 1000") + b'{"instructions": "half')
    with connect(api) as connection:
        connection.sendall(head(api, "Transfer-Encoding: chunked"))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while not select.select([connection], [], [], 0)[0]:
                connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        answer = heard(connection)
    api.ended(api.start("nothing, afterwards"))

    assert code(answer) == (413, "body_too_large")
    assert api.get("/external/runs").json()["total_count"] == runs + 1
    assert "Traceback" not in api.service.log[log:]


GET = b"GET /v1/external/runs HTTP/1.1\r\nHost: here\r\n"
POST = b"POST /v1/external/runs HTTP/1.1\r\nHost: here\r\n"
LENGTHS = (b"Content-Length: 24\r\n", b"Transfer-Encoding: chunked\r\n")
SMUGGLED = b"\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: here\r\n\r\n"


def test_invalid_http_gets_a_failure_body(api: Any) -> None:
    """One JSON 400, then the connection is closed; nothing reaches the application."""
    for raw in (
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        b"GET /v1/external/runs\xff HTTP/1.1\r\nHost: here\r\n\r\n",
        GET + b"X: a\x00b\r\n\r\n",
        b"GET /v1/external/runs?" + b"a" * 100_000,
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        # A proxy in front might use the other one, and take the rest of the body for someone else's request.
        *(POST + b"".join(order) + SMUGGLED for order in (LENGTHS, LENGTHS[::-1])),
        head(api, "Transfer-Encoding: chunked") + b'4\r\n{"a"\r\nnonsense\r\n',
    ):
        answer = send(api, raw)

        assert code(answer) == (400, "malformed_request"), raw[:100]
        assert (b"application/json" in answer, answer.count(b"HTTP/1.1 ")) == (True, 1)


def test_an_incomplete_request_times_out(start: Make) -> None:
    """The answer says so."""
    brief = start(settings="[limits]\nrequest_s = 0.5\n", arguments=["--no-worker"])
    for half in (b"", b"GET /livez HT", head(brief, "Content-Length: 9") + b"{"):
        assert code(send(brief, half)) == (408, "request_timeout")


def test_a_slow_code_host_delays_only_its_own_callers(tenant: Make) -> None:
    """Health checks and lists work while fifty onboardings wait for a silent GitLab."""
    with Server() as silent, ThreadPoolExecutor(50) as pool:
        silent.otherwise = lambda _: Hang()
        api = tenant(hosts=[{"platform": "gitlab", "api_url": f"{silent.origin}/api/v4", "host": "gitlab.example"}])
        waiting = [pool.submit(api.post, "/external/gitlab/projects", {"project_id": n}) for n in range(1, 51)]
        eventually(lambda: len(silent.requests) >= 4, "the code host is asked")
        origin = api.service.base_url.removesuffix("/v1")

        assert [BARE.get(f"{origin}/{door}").json() for door in ("livez", "readyz")] == [{"status": "ok"}] * 2
        assert api.get("/external/runs").status_code == 200
        assert len(silent.requests) == 4, "an organization has four places"
        assert not any(one.done() for one in waiting)
        silent.close()
    assert {one.result().json()["status"] for one in waiting} == {"failed"}
