"""Attacks on the proxy of hosts through its socket: what the agent writes is all that these tests know."""

import socket
from pathlib import Path

import pytest

from service.egress.proxy import EgressProxy

EVIL_HOSTS = [
    b"11.22.33.44\0.wild.test",
    b"11.22.33.44%00.wild.test",
    b"11.22.33.44 .wild.test",
    b"11.22.33.44\t.wild.test",
    b"11.22.33.44/.wild.test",
    b"11.22.33.44#.wild.test",
    b"a@11.22.33.44\0.wild.test",
    b"11.22.33.44\x80.wild.test",
    b"..wild.test",
    b".wild.test",
    b"a..wild.test",
]


@pytest.mark.parametrize("host", EVIL_HOSTS)
def test_a_host_that_is_no_host_name_is_not_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: bytes
) -> None:
    """A wildcard fits host names alone: `getaddrinfo` would read `11.22.33.44` and stop at the NUL."""
    asked: list[object] = []
    refuse = lambda *given, **_: asked.append(given) or (_ for _ in ()).throw(OSError("not here"))  # noqa: E731
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with EgressProxy(tmp_path / "socket", ["*.wild.test:8443"], lambda *_: None), socket.socket(socket.AF_UNIX) as link:
        link.connect(str(tmp_path / "socket"))
        link.sendall(b"CONNECT %b:8443 HTTP/1.1\r\nHost: x\r\n\r\n" % host)
        answer = b"".join(iter(lambda: link.recv(4096), b""))

    assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))
    assert asked == []
