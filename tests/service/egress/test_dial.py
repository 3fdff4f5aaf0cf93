"""Dialling: only what the list names is dialled, whatever the agent writes."""

import contextlib
import random
import socket
from collections.abc import Sequence

import pytest

from service.egress import proxy
from service.egress.proxy import EgressProxy
from service.network import Address
from tests.service.egress.test_parse import hello

LISTED = {"api.listed.test": 443, "sub.wild.test": 8443, "a.b.wild.test": 8443, "registry": 5000, "10.1.2.3": 8443}
LIST = ["api.listed.test", "*.wild.test:8443", "registry:5000=10.9.9.9", "10.1.2.3:8443"]
PUBLIC = "9.9.9.9"
MAY = {("10.9.9.9", 5000), ("10.1.2.3", 8443), (PUBLIC, 443), (PUBLIC, 8443)}
PIECES = [
    *(b"\0", b"\r\n", b" ", b"\t", b"%00", b"@", b":", b"/", b"#", b"?", b".", b"..", b"[", b"]", b"%", b"\x80", b"\\"),
    *(b"11.22.33.44", b"127.0.0.1", b"::1", b"0x7f.1", b"2130706433", b"evil.test", b".wild.test", b":8443", b":443"),
    *(b"CONNECT ", b"GET ", b" HTTP/1.1", b"Host: evil.test\r\n", b"*", b"xn--", b"-", b"_", b"A", b"\xef\xbc\x8e"),
]
HELLOS = {name: hello(name) for name in [*LISTED, "evil.test", "api.listed.test.evil.test"] if name != "10.1.2.3"}
HELLOS["10.1.2.3"] = hello(None)


class DialledError(OSError):
    """Ends a connection where it would be dialled."""


def mutated(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        at = rng.randint(0, len(data))
        piece = rng.choice([*PIECES, bytes([rng.randrange(256)])])
        data = data[:at] + piece + data[at + rng.choice([0, 0, 1, len(piece)]) :]
    return data


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=[pytest.mark.campaign, pytest.mark.timeout(0)])])
def test_nothing_is_dialled_that_is_not_listed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONNECT lines and hellos with pieces put in, taken out and exchanged; seeded.

    A resolver that, like C's, stops at NUL and knows every name: what it is asked has to be on the list.
    """
    rng = random.Random(44)
    asked: list[tuple[str, int]] = []
    dialled: list[Address] = []

    def resolve(name: str, port: int, **_: object) -> object:
        asked.append((name, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port))]

    def dial(addresses: Sequence[Address], _: float) -> socket.socket:
        dialled.extend(addresses)
        raise DialledError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(proxy, "dial", dial)
    monkeypatch.setattr("service.egress.server.SandboxServer.__init__", lambda *_: None)
    served = EgressProxy(None, LIST, lambda *_: None)  # type: ignore[arg-type]  # it listens nowhere
    connections = 0
    for _ in range(count):
        name = rng.choice([*LISTED])
        head = mutated(rng, f"CONNECT {name}:{LISTED[name]} HTTP/1.1\r\nHost: x\r\n".encode()) + b"\r\n"
        greeting = HELLOS[name if rng.random() < 0.7 else rng.choice([*HELLOS])]
        greeting = greeting if rng.random() < 0.5 else mutated(rng, greeting)
        before = len(dialled)
        agent, inside = socket.socketpair()
        with agent, inside:
            agent.sendall(head + greeting)
            agent.shutdown(socket.SHUT_WR)
            with contextlib.suppress(DialledError, ConnectionError):
                served.serve(inside)
            if len(dialled) > before:
                connections += 1
                # What was dialled is what the request and the hello name, in plain text.
                host = asked[-1][0].encode() if dialled[-1][0] == PUBLIC else dialled[-1][0].encode()
                assert dialled[-1][0] != PUBLIC or host in head.lower(), head
                assert dialled[-1][0] != PUBLIC or host in greeting.lower(), (head, greeting)

    assert {*dialled} <= MAY
    for host, port in asked:
        is_wild = port == 8443 and host.endswith(".wild.test") and host.replace(".", "").replace("-", "").isascii()
        assert (host, port) == ("api.listed.test", 443) or (is_wild and "\0" not in host), (host, port)
        assert not set(host) - set("abcdefghijklmnopqrstuvwxyz0123456789-_."), host
    assert connections > count // 50, "the mutations are too wild to show anything"
