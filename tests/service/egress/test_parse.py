"""Parsing: what a host is, and what the first message of TLS names."""

import socket
import ssl

import pytest

from service.egress.hello import NotTlsError, read_hello
from service.network import Host, HostError
from service.reference import location
from service.webhooks import EndpointError, addresses_of


def test_a_host_is_a_name_or_an_address() -> None:
    """In the one form that is compared, resolved and dialled."""
    for text, host in (
        ("A.Example", "a.example"),
        ("a.example.", "a.example"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("registry_1", "registry_1"),
        ("[::1]", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
    ):
        assert Host.parse(text).text == host


def test_anything_else_is_none() -> None:
    """Names that a resolver reads as an address included."""
    for text in (
        *("", ".", "..", "a..b", ".a", "a\0.b", "a b", "a\t.b", "a%2eb", "a/b", "a\\b", "a@b", "a:1", "a#b", "a?b"),
        *("-a.b", "a-.b", "*.a", "münchen.example", "a\uff0eb", "a" * 64, "a." * 127 + "a", "[a.example]", "[10.0.0.1"),
        *("1", "0x7f.1", "127.1", "010.0.0.1", "2130706433", "1.2.3.4.5", "a.0x1", "fe80::1%eth0", "[fe80::1%25eth0]"),
    ):
        with pytest.raises(HostError):
            Host.parse(text)


def test_a_clone_address_whose_host_git_could_read_otherwise_is_none() -> None:
    """No token is given to it; nor is an endpoint at such a host."""
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


def test_a_hello_names_the_host_that_was_asked_for() -> None:
    """Sent at once, with the CONNECT, or in several records; bytes stay as they are. To an address it may name none."""
    made, bare = hello("a.example"), hello(None)

    assert read(bare, "10.0.0.1") == bare
    assert [read(made, "a.example", begun) for begun in (0, 3, 100, len(made))] == [made] * 4
    assert read(split(made, 40), "a.example") == split(made, 40)


def test_other_hellos_are_refused() -> None:
    for data, why in (
        (hello("b.example"), "asks for b.example"),
        (hello(None), "names no server"),
        (hello("a.example").replace(b"a.example", b"a\0example"), "names no server"),
        (b"GET / HTTP/1.1\r\n\r\n", "not TLS"),
        (b"\x16\x03\x01\x00\x00" * 9, "not TLS"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "not TLS"),
    ):
        with pytest.raises(NotTlsError, match=why):
            read(data, "a.example")
