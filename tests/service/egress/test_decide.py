"""Which requests reach a provider and for which models, and which hosts and TLS greetings are allowed."""

import socket
import ssl
from contextlib import nullcontext

import pytest

from service.egress.proxies import RefusedError, read_hello
from service.egress.routes import (
    PROVIDERS,
    BlockedRequestError,
    ClosedPathError,
    check_model,
    models_in,
    read_body,
    route_of,
)
from service.network import Host, HostError
from service.reference import location

OPEN = {
    "anthropic": [
        *(("POST", "/v1/messages?beta=true"), ("POST", "/v1/messages/count_tokens")),
        *(("GET", "/v1/models/claude-x"), ("GET", "/models")),
    ],
    "openai": [
        *(("POST", "/v1/chat/completions"), ("POST", "/responses"), ("POST", "/v1/responses/compact")),
        *(("POST", "/v1/embeddings"), ("GET", "/v1/models/meta/llama-4")),
    ],
    "gemini": [
        ("POST", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"),
        *(("POST", "/v1beta/models/gemini-x:countTokens"), ("GET", "/v1beta/models")),
    ],
    "vertex": [("POST", "/v1/projects/a/locations/b/publishers/anthropic/models/claude-x@1:rawPredict")],
    "bedrock": [
        *(("POST", "/model/us.claude-x-v1%3A0/invoke"), ("POST", "/model/claude-x/count-tokens")),
        ("POST", "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.claude-x/invoke"),
    ],
}
ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3"
CLOSED = [
    ("POST", "/v1/models/../chat/completions"),
    ("GET", "/v1/models/x/../../organization/admin_api_keys"),
    ("GET", "/v1/models/%2e%2e/organization/admin_api_keys"),
    ("GET", "/v1/models/..\\organization"),
    ("GET", "//v1/models"),
    ("GET", "/v1/models/x\0"),
    ("GET", "/v1/chat/completions"),
    ("DELETE", "/v1/models/x"),
    ("GET", "https://api.openai.com/v1/models"),
    ("POST", "/v1/files"),
    ("POST", "/../v1/messages"),
    ("POST", "/v1/messages/batches"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models/..%2forganization"),
    ("GET", "/v1/models/../chat/completions"),
    ("POST", "/model/arn:aws:bedrock:us-east-1:1:inference-profile%2F../invoke"),
    ("POST", "/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fx%2Fy/invoke"),
    ("POST", "/model/x%2Fy/invoke"),
    ("POST", "/model/arn:aws:bedrock:us-east-1:1:inference-profile%252Fx/invoke"),
    ("POST", "/model/arn:aws:bedrock:us-east-1:1:inference-profile%2F..%2Fx/invoke"),
    ("POST", "/model/arn:aws:s3:us-east-1:1:bucket%2Fx/invoke"),
    ("GET", "/v1/models/arn:aws:bedrock:us-east-1:1:inference-profile%2Fx"),
    ("GET", "/v1/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fx/../../models"),
    ("GET", "/v1/organization/admin_api_keys"),
]


def test_requests_of_known_programs_are_allowed() -> None:
    """The exact method and path count; a model that Bedrock names by its ARN is decoded once."""
    for provider, requests in OPEN.items():
        for method, target in requests:
            is_free = method == "GET" or target.endswith(("count_tokens", "countTokens", "count-tokens"))
            assert route_of(PROVIDERS[provider], method, target).is_billed != is_free
    path = f"/v1/model/{ARN.replace('/', '%2F')}/invoke-with-response-stream"
    route = route_of(PROVIDERS["bedrock"], "POST", path)
    assert (route.model, route.path, route.is_billed) == (ARN, path, True)


def test_all_other_requests_are_refused() -> None:
    """Above all, paths that a normalizing upstream would read as another path are refused."""
    for method, target in CLOSED:
        for provider in PROVIDERS.values():
            with pytest.raises(ClosedPathError):
                route_of(provider, method, target)


def test_only_listed_models_are_allowed() -> None:
    """A model is listed by name, with a date, by pattern, or by the alias that programs use."""
    for allowed, model, passes in (
        ((), "any", True),
        (("claude-x",), "claude-x-20260101", True),
        (("claude-x",), "claude-x-large", False),
        (("sonnet",), "claude-sonnet-5", True),
        (("gpt-*-mini",), "gpt-6", False),
        ((ARN,), ARN, True),
        ((f"{ARN}d",), ARN, False),
        (("arn:aws:bedrock:*:123456789012:*",), ARN, True),
        (("sonnet",), "arn:aws:bedrock:us-east-1:1:imported-model/sonnet", False),
    ):
        with nullcontext() if passes else pytest.raises(BlockedRequestError):
            check_model(model, allowed)


def test_every_model_of_a_body_is_checked() -> None:
    bodies = [b'{"model": "a", "model": "b"}', b'{"model": "a", "Model": "b"}', b"[]", b"", b"\xff"]

    for body in (*bodies, '{"model": "a"}'.encode("utf-16")):
        with pytest.raises(BlockedRequestError):
            read_body(body)

    body = {"model": "a", "models": ["b"], "fallbacks": [{"model": "c"}], "tools": [{"model": "d"}, {"name": "x"}]}

    assert [*models_in(body)] == ["a", "b", "c", "d"]


def test_a_host_is_a_name_or_an_address() -> None:
    """A host has one form, which is compared, resolved and connected to.

    Names that resolvers read as addresses are refused. No token goes to a clone address whose host git could read
    differently.
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


def test_the_tls_greeting_must_name_the_requested_host() -> None:
    """The greeting may come at once, with the CONNECT, or in several records, unchanged.

    A greeting to an address may have no name.
    """
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
        with pytest.raises(RefusedError, match=why):
            read(data, "a.example")
