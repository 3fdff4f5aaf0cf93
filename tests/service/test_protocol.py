"""What is no proper HTTP is refused in the spec's form as well (spec 7.2), and does no harm."""

import contextlib
import json
import select
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest


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
