"""Attacks on the proxies through their sockets: what the agent writes is all that these tests know."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.agents.options import ModelAccess
from service.egress.budget import MemoryMeter
from service.egress.key import ModelKey
from service.egress.model import ModelProxy
from service.egress.outages import ModelState, Outages, Patience
from service.egress.proxy import EgressProxy
from tests.service.agents.model_server import ModelServer

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


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


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


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/v1/models/x/../../organization/admin_api_keys", ""),
        ("GET", "/v1/models/%2e%2e/organization", ""),
        ("POST", "/v1/models/../chat/completions", '{"model": "gpt-x"}'),
        ("DELETE", "/v1/models/gpt-x", ""),
        ("POST", "/v1/chat/completions", '{"model": "gpt-dear"}'),
        ("POST", "/v1/chat/completions", '{"model": "gpt-x", "model": "gpt-dear"}'),
        ("POST", "/v1/chat/completions", '{"model": "gpt-x", "models": ["gpt-dear"]}'),
    ],
)
def test_what_the_agent_may_not_ask_never_leaves_with_the_key(
    tmp_path: Path, server: ModelServer, method: str, target: str, body: str
) -> None:
    """It gets 403, and the log has a line; what it may ask passes on the same connection."""
    access = ModelAccess.model_validate({"provider": "openai", "key_env": "K", "base_url": server.origin})
    logged: list[str] = []
    report = lambda _, text: logged.append(text)  # noqa: E731
    given = (
        tmp_path / "socket",
        access,
        ModelKey(access),
        MemoryMeter(),
        ModelState(Outages(Patience(1), lambda: False)),
        ("gpt-x",),
        report,
    )
    with ModelProxy(*given), socket.socket(socket.AF_UNIX) as link:
        link.connect(str(tmp_path / "socket"))
        for verb, path, text, close in (
            (method, target, body, ""),
            ("POST", "/v1/chat/completions", '{"model": "gpt-x"}', "Connection: close\r\n"),
        ):
            head = f"{verb} {path} HTTP/1.1\r\nHost: x\r\n{close}Content-Length: {len(text)}\r\n\r\n"
            link.sendall(f"{head}{text}".encode())
        answers = b"".join(iter(lambda: link.recv(65_536), b""))

    assert answers.startswith(b"HTTP/1.1 403")
    assert answers.count(b"HTTP/1.1 200") == 1
    assert len(server.requests) == 1
    assert all(line.startswith("model: ") for line in logged)
    assert len(logged) == 1
