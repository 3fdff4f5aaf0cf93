"""What a host is, what the first message of TLS names, and that only what the list names is dialled."""

import contextlib
import random
import socket
import ssl
from collections.abc import Sequence

import pytest

from service.egress import proxy
from service.egress.hello import NotTlsError, read_hello
from service.egress.proxy import EgressProxy
from service.network import Address, Host, HostError
from service.reference import location
from service.webhooks import EndpointError, addresses_of


def test_a_host_is_a_name_or_an_address_and_anything_else_is_none() -> None:
    """In the one form that is compared, resolved and dialled; names that a resolver reads as an address are none.

    No token is given to a clone address whose host git could read otherwise; nor is an endpoint at such a host.
    """
    for text, host in (
        ("A.Example", "a.example"),
        ("a.example.", "a.example"),
        ("[::1]", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
    ):
        assert Host.parse(text).text == host

    for text in (
        *("", ".", "..", "a..b", ".a", "a\0.b", "a b", "a\t.b", "a%2eb", "a/b", "a\\b", "a@b", "a:1", "a#b", "a?b"),
        *("-a.b", "a-.b", "*.a", "münchen.example", "a\uff0eb", "a" * 64, "a." * 127 + "a", "[a.example]", "[10.0.0.1"),
        *("1", "0x7f.1", "127.1", "010.0.0.1", "2130706433", "1.2.3.4.5", "a.0x1", "fe80::1%eth0", "[fe80::1%25eth0]"),
    ):
        with pytest.raises(HostError):
            Host.parse(text)

    for url in (
        *("https://a.exam\nple/x/y", "https://evil.example\\@a.example/x/y", "https://a\0.example/x/y"),
        *("https://a.ex%61mple/x/y", "https://127.1/x/y", "git@-a.example:x/y", "https://\uff41.example/x/y"),
    ):
        assert location(url) is None
        with pytest.raises(EndpointError):
            addresses_of("https://0x7f.1/hook", ())


def hello(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def read(data: bytes, host: str, begun: int = 0) -> bytes:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(data[begun:])
        here.shutdown(socket.SHUT_WR)
        return read_hello(there, data[:begun], Host.parse(host))


def split(data: bytes, at: int) -> bytes:
    """Send one message in two TLS records."""
    body = data[5:]
    return b"".join(data[:3] + len(part).to_bytes(2) + part for part in (body[:at], body[at:]))


def test_a_hello_names_the_host_that_was_asked_for_and_others_are_refused() -> None:
    """Sent at once, with the CONNECT, or in several records; bytes stay as they are. To an address it may name none."""
    made, bare = hello("a.example"), hello(None)

    assert read(bare, "10.0.0.1") == bare
    assert [read(made, "a.example", begun) for begun in (0, 3, 100, len(made))] == [made] * 4
    assert read(split(made, 40), "a.example") == split(made, 40)

    for data, why in (
        (hello("b.example"), "asks for b.example"),
        (hello(None), "names no server"),
        (hello("a.example").replace(b"a.example", b"a\0example"), "names no server"),
        (b"GET / HTTP/1.1\r\n\r\n", "not TLS"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "not TLS"),
    ):
        with pytest.raises(NotTlsError, match=why):
            read(data, "a.example")


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
