"""Connections that waste the service's time: requests of two lengths, and clients that never read."""

import select
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from tests.service.conftest import UNBOXED, Api
from tests.waiting import eventually

BODY = b'{"instructions": "look"}'


def connect(api: Api) -> socket.socket:
    """Connect with a small buffer of received bytes."""
    where = urlsplit(api.service.base_url)
    connection = socket.socket()
    connection.settimeout(60)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((where.hostname or "", where.port or 0))
    return connection


def is_reset(connection: socket.socket) -> bool:
    """Whether the service has cut the connection, however much of its answers was never read."""
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


@pytest.mark.parametrize("order", [1, -1])
def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(api: Api, order: int) -> None:
    """A proxy in front could believe the other one, and take the rest of the body for a request of somebody else."""
    lengths = [b"Content-Length: %d\r\n" % len(BODY), b"Transfer-Encoding: chunked\r\n"][::order]
    smuggled = b"0\r\n\r\nGET /livez HTTP/1.1\r\nHost: here\r\n\r\n"
    with connect(api) as connection:
        connection.sendall(
            b"POST /v1/external/runs HTTP/1.1\r\nHost: here\r\n" + b"".join(lengths) + b"\r\n" + smuggled
        )
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


def test_clients_that_never_read_are_dropped_and_slow_ones_served(start: Callable[..., Api]) -> None:
    """Five of them ask again and again without reading; who reads, however slowly, gets everything."""
    api = start(settings=f"{UNBOXED}[limits]\nrequest_s = 1\n")
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n\r\n"
    silent = [connect(api) for _ in range(5)]
    for connection in silent:
        connection.sendall(ask * 100)

    eventually(lambda: all(map(is_reset, silent)), "all of them are dropped", saw=lambda: [*map(is_reset, silent)])

    with connect(api) as slow:
        slow.sendall(ask + ask.replace(b"Host", b"Connection: close\r\nHost"))
        read = 0
        while piece := slow.recv(2048):
            read += len(piece)
    assert read > 2 * 50_000
    for connection in silent:
        connection.close()
