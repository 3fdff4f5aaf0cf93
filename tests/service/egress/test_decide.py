"""Decisions: which requests reach a provider, and for which models."""

import posixpath
import random
from contextlib import nullcontext
from urllib.parse import parse_qsl, unquote

import h11
import pytest

from service.egress.routes import (
    PROVIDERS,
    BlockedRequestError,
    ClosedPathError,
    ForbiddenModelError,
    check_model,
    models_in,
    read_body,
    route_of,
)

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
    ("POST", "/model/x%2Fy/invoke"),
    ("POST", "/model/arn:aws:bedrock:us-east-1:1:inference-profile%252Fx/invoke"),
    ("POST", "/model/arn:aws:bedrock:us-east-1:1:inference-profile%2F..%2Fx/invoke"),
    ("POST", "/model/arn:aws:s3:us-east-1:1:bucket%2Fx/invoke"),
    ("GET", "/v1/models/arn:aws:bedrock:us-east-1:1:inference-profile%2Fx"),
    ("GET", "/v1/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fx/../../models"),
    ("GET", "/v1/organization/admin_api_keys"),
]


def test_what_programs_ask_for_is_open() -> None:
    """By its exact method and path; a model that Bedrock names by its ARN is decoded once."""
    for provider, requests in OPEN.items():
        for method, target in requests:
            is_free = method == "GET" or target.endswith(("count_tokens", "countTokens", "count-tokens"))
            assert route_of(PROVIDERS[provider], method, target).is_billed != is_free
    path = f"/v1/model/{ARN.replace('/', '%2F')}/invoke-with-response-stream"
    route = route_of(PROVIDERS["bedrock"], "POST", path)
    assert (route.model, route.path, route.is_billed) == (ARN, path, True)


def test_everything_else_is_closed() -> None:
    """Above all what an upstream that normalizes paths would read as another path."""
    for method, target in CLOSED:
        for provider in PROVIDERS.values():
            with pytest.raises(ClosedPathError):
                route_of(provider, method, target)


PIECES = [
    *("..", ".", "//", "/", "%2e", "%2E%2e", "%2f", "%5c", "\\", "%00", "\0", ";", "#", "?", "&", "@", ":", "%3A", "%"),
    *("v1", "v1beta", "models", "chat", "completions", "messages", "files", "organization", "admin_api_keys", "model"),
    *("invoke", "x", "%252e", "%c0%ae", "\t", " ", "\r\n", "key=worthless", "é", "count_tokens", "batches", "~", "*"),
]


def normalized(path: str) -> str:
    """Read a path as the most obliging upstream would: decoded until nothing changes, and without dot segments."""
    while (decoded := unquote(path)) != path:
        path = decoded
    return posixpath.normpath(path.replace("\\", "/").partition(";")[0].partition("#")[0].partition("\0")[0])


def mutated(rng: random.Random) -> tuple[str, str, str]:
    """Return a provider, a method, and one of its open targets with pieces put in, taken out and exchanged."""
    provider = rng.choice([*OPEN])
    method, target = rng.choice(OPEN[provider])
    for _ in range(rng.randint(0, 3)):
        at = rng.randint(0, len(target))
        cut = target[at + rng.choice([0, 0, 1, 5]) :]
        target = target[:at] + rng.choice(["", "/"]) + rng.choice(PIECES) + rng.choice(["", "/"]) + cut
    return provider, rng.choice([method, method, "GET", "POST", "PUT", "DELETE"]), target


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.campaign)])
def test_no_mutated_target_passes_as_another_path(count: int) -> None:
    """An upstream that decodes and normalizes what passed still sees a path of the same meaning; seeded."""
    rng = random.Random(44)
    passed = 0
    for _ in range(count):
        provider, method, target = mutated(rng)
        wire = h11.Connection(h11.SERVER)
        wire.receive_data(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        try:
            request = wire.next_event()
            if not isinstance(request, h11.Request):
                continue
            route = route_of(PROVIDERS[provider], request.method.decode(), request.target.decode())
        except (h11.RemoteProtocolError, ClosedPathError):
            continue
        passed += 1
        seen = normalized(route.path)
        words = {"models", "model", "messages", "completions", "responses", "embeddings"}

        assert words & {*seen.split("/")}, target
        assert seen == unquote(route.path), target
        assert not {"files", "organization", "admin_api_keys", "batches"} & {*seen.split("/")[:3]}, target
        assert "key" not in dict(parse_qsl(route.query))
    assert passed > count // 50, "the mutations are too wild to show anything"


def test_only_listed_models_pass() -> None:
    """By name, with a date, by pattern, or by the word that programs know a model by."""
    for allowed, model, passes in (
        ((), "any", True),
        (("claude-x",), "claude-x", True),
        (("claude-x",), "claude-x-20260101", True),
        (("claude-x",), "claude-x-large", False),
        (("sonnet",), "claude-sonnet-5", True),
        (("sonnet",), "claude-opus-5", False),
        (("gpt-*-mini",), "gpt-6", False),
        ((ARN,), ARN, True),
        ((f"{ARN}d",), ARN, False),
        (("arn:aws:bedrock:*:123456789012:*",), ARN, True),
        (("sonnet",), "arn:aws:bedrock:us-east-1:1:imported-model/sonnet", False),
    ):
        with nullcontext() if passes else pytest.raises(ForbiddenModelError):
            check_model(model, allowed)


def test_every_model_of_a_body_is_checked_and_one_read_otherwise_is_refused() -> None:
    bodies = [b'{"model": "a", "model": "b"}', b'{"model": "a", "Model": "b"}', b"[]", b"", b"\xff"]

    for body in (*bodies, '{"model": "a"}'.encode("utf-16")):
        with pytest.raises(BlockedRequestError):
            read_body(body)

    body = {"model": "a", "models": ["b"], "fallbacks": [{"model": "c"}], "tools": [{"model": "d"}, {"name": "x"}]}

    assert [*models_in(body)] == ["a", "b", "c", "d"]
