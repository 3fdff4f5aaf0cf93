"""The model proxy: the key stays outside, every token is counted, and a spent budget stops the agent."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from service.agents.options import ModelAccess
from service.agents.prices import Price, price_of
from service.egress.budget import MemoryMeter
from service.egress.model import ModelProxy, ModelState
from service.egress.routes import PROVIDERS
from service.egress.usage import Meter, Usage
from service.settings import AgentLimits
from tests.lab import Drop, Hang, Raw, Respond, Step
from tests.service.agents.model_server import CACHED, INPUT, OUTPUT, ModelServer, frames
from tests.waiting import eventually

Make = Callable[..., Any]
KEY = "sk-the-real-key-of-the-service"
QUICK: Final = AgentLimits(model_pause_s=0.01, model_silent_s=0.5, model_stream_silent_s=0.5)
"""Retries follow at once, and silence is detected at once."""
MESSAGES: Final = ("anthropic", "/v1/messages", {"model": "claude-x", "max_tokens": 9})
STREAMED: Final = ("anthropic", "/v1/messages", {"model": "claude-x", "stream": True})
VERTEX = "/v1/projects/{0}/locations/{1}/publishers/anthropic/models/claude-x@20250929:streamRawPredict"
CHAT = "/v1/chat/completions"
COUNTED: Final[list[tuple[str, str, str, dict[str, Any], str, str]]] = [
    ("anthropic", "", "/v1/messages", {"model": "claude-x"}, "claude-x", ""),
    ("anthropic", "", "/v1/messages", {"model": "claude-x", "stream": True}, "claude-x", ""),
    ("openai", "", CHAT, {"model": "gpt-x"}, "gpt-x", ""),
    ("openai", "", CHAT, {"model": "gpt-x", "stream": True}, "gpt-x", ""),
    ("openai", "", "/v1/responses", {"model": "gpt-x", "stream": True}, "gpt-x", ""),
    ("openai", "/openai/v1", CHAT, {"model": "deployed"}, "deployed", "/openai/v1/chat/completions"),
    ("gemini", "", "/v1beta/models/gemini-x:generateContent", {}, "gemini-x", ""),
    ("gemini", "", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=worthless", {}, "gemini-x", ""),
    (
        *("vertex", "/v1/projects/acme/locations/here", VERTEX.format("other", "there"), {"stream": True}),
        *("claude-x@20250929", VERTEX.format("acme", "here")),
    ),
    ("bedrock", "", "/model/us.claude-x-v1%3A0/invoke", {}, "us.claude-x-v1:0", ""),
    ("bedrock", "", "/model/us.claude-x-v1:0/invoke-with-response-stream", {}, "us.claude-x-v1:0", ""),
]
"""Provider, the path of its base address, the request's path and body, its model, and the path that is requested."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: ModelServer) -> Make:
    """`ask(provider, path, body, times)` sends requests as a program does, and returns the turn's result."""
    monkeypatch.setenv("MODEL_KEY", KEY)

    def run(
        provider: str, path: str, body: Any = None, times: int = 1, limits: AgentLimits = QUICK, **access: Any
    ) -> SimpleNamespace:
        raw, models, is_patient = (access.pop(*one) for one in (("raw", b""), ("models", ()), ("is_patient", True)))
        given = {"provider": provider, "key_env": "MODEL_KEY", "base_url": server.origin} | access
        model, state = ModelAccess.model_validate(given), ModelState(limits, lambda: False)
        meter, place, text = MemoryMeter(), tmp_path / "socket", json.dumps(body or {})
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: worthless"
        request = raw or f"{head}\r\nAnthropic-Beta: own\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
        answers, reports = list[str](), list[str]()
        report = lambda _, line: reports.append(line)  # noqa: E731
        with ModelProxy(place, model, meter, state, models, report):
            for _ in range(times):
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(str(place))
                    link.sendall(request)
                    if is_patient:
                        answers.append(b"".join(iter(lambda: link.recv(65_536), b"")).decode("utf-8", "replace"))
            if not is_patient:
                server.wait_for(times)
            serving = lambda: [one for one in threading.enumerate() if one.name == "sandbox-connection"]  # noqa: E731
            eventually(lambda: not serving(), "each connection has been served")
        place.unlink()
        failure = state.end or state.overspent
        return SimpleNamespace(
            failure=failure and failure.text,
            reason=failure and failure.reason,
            trouble=state.trouble and state.trouble.text,
            statuses=[int(answer.split()[1]) for answer in answers],
            answers=answers,
            reports=reports,
            used=meter.used,
            ending=state.ending,
            answered_by=state.answered_by,
        )

    return run


def test_the_key_is_not_in_the_sandbox(
    monkeypatch: pytest.MonkeyPatch, rehearse: Make, script: Make, server: ModelServer
) -> None:
    """The key is in no environment, command line or output; the program's dummy key does not leave the sandbox."""
    monkeypatch.setenv("MODEL_KEY", KEY)
    _, path, body = STREAMED
    source = (
        f"curl -sS -w '%{{http_code}}\\n' 'http://127.0.0.1:3129{path}' -H 'x-api-key: worthless' "
        f"-H 'content-type: application/json' -d '{json.dumps(body)}' 2>&1; env; "
        "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true"
    )
    given = {"provider": "anthropic", "key_env": "MODEL_KEY", "base_url": server.origin}
    done = rehearse().turn(script(source, model=given), "ask")

    assert done.failure is None, done.log
    (asked,) = server.requests
    assert done.used == [("claude-x", Usage(INPUT, CACHED, 0, OUTPUT), None)]
    assert asked.headers["x-api-key"] == KEY
    assert "200\n" in done.log
    assert not [word for word in (KEY, "[masked]", "MODEL_KEY") if word in done.log]


def test_the_key_is_added_and_usage_and_cut_answers_are_read(ask: Make, server: ModelServer) -> None:
    """Plain and streamed answers of every provider are read; a cloud is called at the operator's address only."""
    for provider, base, path, body, model, asked_at in COUNTED:
        server.requests.clear()
        done = ask(provider, path, body, base_url=server.origin + base)

        assert (done.failure, done.statuses) == (None, [200])
        (asked,) = server.requests
        assert done.used == [(model, Usage(INPUT, CACHED, 0, OUTPUT), None)]
        assert asked.path == (asked_at or path.partition("?")[0])
        assert asked.headers[PROVIDERS[provider].header.lower()].removeprefix("Bearer ") == KEY
        assert "worthless" not in str(asked)

    for ending, reason in (("refusal", "refused"), ("length", "cut_short")):
        server.ending = ending

        for provider, base, path, body, *_ in COUNTED:
            assert ask(provider, path, body, base_url=server.origin + base).ending == reason, path


def test_a_key_from_a_command_is_kept_until_refused(ask: Make, server: ModelServer, tmp_path: Path) -> None:
    """When it is refused, the request is repeated with a new key, unnoticed by the program.

    Without a valid key the turn fails with the command's words; keys that a provider echoes are masked.
    """
    source = f"echo >> '{tmp_path}/calls'; echo printed-key-$(wc -l < '{tmp_path}/calls')"
    expired = Respond(401, {"error": {"message": "expired: printed-key-1"}})
    server.otherwise = lambda request: expired if len(server.requests) == 3 else server.answer(request)
    done = ask(*STREAMED, 3, key_env=None, key_command=["sh", "-c", source])

    assert (done.failure, done.statuses) == (None, [200] * 3)
    assert [one.headers["x-api-key"][-1] for one in server.requests] == ["1", "1", "1", "2"]
    assert "printed-key" not in str(done.answers)

    server.requests.clear()
    server.otherwise = None
    server.status, server.refusal = 401, {"error": {"message": "not printed-key"}}
    refused = ask(*MESSAGES, 3, key_env=None, key_command=["echo", "printed-key"])
    failed = ask(*MESSAGES, 3, key_env=None, key_command=["sh", "-c", "echo oh >&2; echo 'log in first' >&2; exit 3"])

    assert (refused.reason, failed.reason, len(server.requests)) == ("no_key", "no_key", 1)
    assert "answered 401 for claude-x: not [masked]; let key_command print a valid key" in refused.failure
    assert "printed no key: log in first" in failed.failure


COST = (INPUT * 1000 + CACHED * 100 + OUTPUT * 2000) / 1_000_000
PRICES = {"claude-": {"input": 1000, "output": 2000, "cached": 100}}


def test_a_request_beyond_the_budget_is_not_sent(ask: Make, server: ModelServer) -> None:
    """A model without a price is not called if there is a dollar budget; the last answer counts as well.

    An agent that needs no further request still succeeds. Without own prices, list prices apply.
    """
    last, model = "; the agent's last answer passed it", "claude-opus-4-5-20251101"
    listed = ("anthropic", "/v1/messages", {"model": model})
    cases: tuple[tuple[Any, int, dict[str, Any], int, str], ...] = (
        (MESSAGES, 5, {"prices": PRICES, "budget": {"run_usd": COST * 1.5}}, 2, "USD is spent (budget.run_usd); the"),
        (MESSAGES, 5, {"prices": PRICES, "budget": {"day_usd": COST * 0.5}}, 1, "USD a day is spent (budget.day_usd)"),
        (MESSAGES, 5, {"budget": {"run_tokens": 2000}}, 2, "budget of 2000 tokens is spent"),
        (MESSAGES, 5, {"prices": {"gpt-": {"input": 1, "output": 1}}, "budget": {"run_usd": 1}}, 0, "claude-x"),
        (STREAMED, 1, {"prices": PRICES, "budget": {"run_usd": COST * 0.9}}, 1, f"USD is spent (budget.run_usd){last}"),
        (STREAMED, 1, {"budget": {"run_tokens": INPUT}}, 1, f"1000 tokens is spent (budget.run_tokens){last}"),
        (STREAMED, 1, {"prices": PRICES, "budget": {"run_usd": COST * 1.1, "run_tokens": INPUT * 2}}, 1, ""),
        (listed, 5, {"budget": {"run_usd": 0.006}}, 1, "USD is spent"),
    )
    for asked, times, access, made, words in cases:
        server.requests.clear()
        done = ask(*asked, times, **access)

        assert (len(server.requests), done.reason) == (made, "out_of_budget" if made and words else None)
        assert words in f"{done.failure}{done.answers}"
    assert done.used == [(model, Usage(INPUT, CACHED, 0, OUTPUT), 6350)]


def test_a_providers_refusal_ends_the_turn_with_the_fix(ask: Make, server: ModelServer) -> None:
    """One request is enough, however often the program would try again."""
    server.status, server.refusal = 401, {"error": {"message": "no"}}
    denied = ask(*MESSAGES, 3)
    server.status, server.refusal = 429, {"error": {"code": "insufficient_quota"}}
    broke = ask(*MESSAGES, 3)
    away = ask(*MESSAGES, 3, AgentLimits(model_patience_s=0.1), base_url="http://127.0.0.1:9")

    assert [one.reason for one in (denied, broke, away)] == ["no_key", "out_of_budget", "model_unreachable"]
    assert "answered 401 for claude-x: no; set MODEL_KEY to a valid key" in denied.failure
    assert "has no credit left" in broke.failure
    assert "127.0.0.1:9 cannot be reached for claude-x: the connection was refused" in away.failure
    assert len(server.requests) == 2


def test_a_forbidden_request_is_never_forwarded(ask: Make, server: ModelServer) -> None:
    """The program gets a 403, and the log has a line; allowed requests pass on the same connection."""
    last = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 18\r\n\r\n"
    last += '{"model": "gpt-x"}'
    for line, body in (
        ("GET /v1/models/x/../../organization/admin_api_keys", ""),
        ("POST /v1/models/../chat/completions", '{"model": "gpt-x"}'),
        (f"POST {CHAT}", '{"model": "gpt-dear"}'),
        (f"POST {CHAT}", '{"model": "gpt-x", "model": "gpt-dear"}'),
        (f"POST {CHAT}", '{"model": "gpt-x", "models": ["gpt-dear"]}'),
    ):
        server.requests.clear()
        raw = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}{last}"
        done = ask("openai", "", raw=raw.encode(), models=("gpt-x",))

        assert (done.statuses, done.answers[0].count("HTTP/1.1 200"), len(server.requests)) == ([403], 1, 1)
        assert [line.startswith("model: ") for line in done.reports] == [True]


STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
AWAY: dict[str, Step] = {
    "connection reset": Drop("accepted"),
    "no answer": Drop("read", "close"),
    "silence": Hang(),
    "no word of a stream": Raw(STREAM.encode()),
    "an end at once": Raw(f"{STREAM}0\r\n\r\n".encode()),
    "overloaded": Respond(529, OVERLOADED),
    "overloaded in the stream": Respond(
        200, f"event: error\ndata: {json.dumps(OVERLOADED)}\n\n", {"Content-Type": "text/event-stream"}
    ),
    "limit": Respond(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}),
}


WHOLE = b'{"usage": {"input_tokens": 7, "output_tokens": 3}}'


def test_answers_are_forwarded_and_counted_in_any_framing(ask: Make, server: ModelServer) -> None:
    """The answer may have a length, chunks or end with the connection, even after interim responses."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n%b\r\n2b;x=y\r\n%b\r\n0\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
    for step in (Respond(200, WHOLE), Raw(early + WHOLE), Raw(chunked % (WHOLE[:7], WHOLE[7:]))):
        server.script(step)
        done = ask(*MESSAGES)
        _, _, body = done.answers[0].partition("\r\n\r\n")

        assert (done.failure, done.trouble, done.statuses) == (None, None, [200])
        assert "".join(body.split("\r\n")[1::2]).encode() == WHOLE, "the pieces without the lengths of the chunks"
        assert body.endswith("0\r\n\r\n")
        assert [usage.tokens for _, usage, _ in done.used] == [10]
        assert done.answered_by == f"claude-x of {server.origin.removeprefix('http://')}"


def test_a_redirect_is_an_error_and_is_not_followed(ask: Make, server: ModelServer) -> None:
    """The key is for one host only."""
    server.script(Respond(307, b"", {"Location": f"{server.origin}/elsewhere"}))
    done = ask(*MESSAGES)

    assert done.statuses == [502]
    assert "elsewhere" not in done.answers[0]
    assert [one.path for one in server.requests] == ["/v1/messages"]


def test_nothing_is_retried_for_an_agent_that_has_exited(ask: Make, server: ModelServer) -> None:
    """The turn is not stopped for that."""
    server.otherwise = lambda _: Respond(503)
    done = ask(*MESSAGES, is_patient=False)

    assert (len(server.requests), done.failure) == (1, None)


def test_a_short_outage_is_waited_out(ask: Make, server: ModelServer) -> None:
    """The program sends one request and gets its answer; failed attempts are charged to no one."""
    server.script(*AWAY.values())
    done = ask(*STREAMED)

    assert (done.failure, done.statuses) == (None, [200])
    assert done.used == [("claude-x", Usage(INPUT, CACHED, 0, OUTPUT), None)]
    assert len(server.requests) == len(AWAY), "one of the connections carried no request"


BEGUN = 'event: message_start\ndata: {"type": "message_start"}\n\n'
BROKEN = {
    "no last chunk": f"{STREAM}{len(BEGUN):x}\r\n{BEGUN}\r\n",
    "an error": f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{BEGUN}"
    f"data: {json.dumps(OVERLOADED)}\n\ndata: [DONE]\n\n",
    "half of a document": 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"message_start": [',
}


def test_a_begun_answer_is_not_repeated(ask: Make, server: ModelServer) -> None:
    """The program sees the cut and may try again; the part that arrived is charged by its length."""
    for answer in BROKEN.values():
        server.requests.clear()
        server.script(Raw(answer.encode(), after_s=0.2))
        done = ask(*STREAMED, 2)

        assert "message_start" in done.answers[0]
        assert [one.endswith("0\r\n\r\n") for one in done.answers] == [False, True], "the first one was cut"
        assert (done.failure, len(done.used), len(server.requests)) == (None, 2, 2)


def test_a_lasting_outage_ends_the_turn_with_the_reason(ask: Make, server: ModelServer) -> None:
    """The turn fails after the configured patience, however often the program retries.

    The reason has the status, provider, model and fix.
    """
    for step, words in (
        (Raw(b"SSH-2.0-x\r\n\r\n"), "the server there does not speak HTTP"),
        (AWAY["silence"], "took a request for claude-x and was silent for 0.5 s; continue the run"),
        (AWAY["overloaded"], "answered 529 for claude-x: Overloaded; continue the run when it answers again"),
        (AWAY["limit"], "answered 429 for claude-x: slow down; raise the limits"),
        (Raw(BROKEN["an error"].encode()), " broke off an answer of claude-x: Overloaded; continue"),
    ):
        server.requests.clear()
        server.otherwise = lambda _, step=step: step  # type: ignore[misc]
        is_broken = "broke off" in words
        limits = QUICK.model_copy(update={"model_patience_s": 0.6})
        done = ask(*STREAMED, 100 if is_broken else 2, AgentLimits(model_patience_s=0.02) if is_broken else limits)

        assert words in str(done.failure)
        assert done.reason == ("rate_limited" if "429" in words else "model_unreachable")
        assert is_broken or done.statuses[0] == 502
        assert (len(done.used) > 1, len(server.requests) > 1) == (is_broken, True)


def test_the_longest_matching_name_has_the_price() -> None:
    """Cached tokens and cache writes have their own price; a list price may depend on the prompt's length.

    A list price only ignores a date or `-latest` at the end, since similar names may cost something else.
    """
    cheap, dear = Price(input=1, output=2), Price(input=3, output=15, cached=0.3, cache_write=3.75)

    assert price_of("claude-opus-4", {"claude-": cheap, "claude-opus": dear}) == dear
    assert Usage(1000, 1000, 1000, 1000).micro_usd(dear) == 22_050
    assert Usage(1000, 1000, 0, 0).micro_usd(cheap) == 2000
    assert Usage(1000).micro_usd(None) is None
    listed = price_of("gemini-2.5-pro", {})
    assert Usage(200_000, 0, 0, 1000).micro_usd(listed) == 260_000
    assert Usage(200_000, 1000, 0, 1000).micro_usd(listed) == 515_250, "with what was read from the cache"

    for model, figures in (
        ("claude-opus-4-5-20251101", (5, 25)),
        ("gpt-5.4", (2.5, 15)),
        ("gemini-2.5-flash-latest", (0.3, 2.5)),
        *((name, None) for name in ("gpt-5.4-mini", "gpt-5.41", "claude-opus-4-5-x", "my/gpt-5.4", "unknown", "")),
    ):
        price = price_of(model, {})

        assert (None if price is None else (price.input, price.output)) == figures
        assert price_of(model, {"": Price(input=0, output=0)}) == Price(input=0, output=0), "the operator's wins"


def test_an_answer_without_usage_is_counted_by_length() -> None:
    """Missing or invalid counts do not make tokens free, and neither does a broken stream."""
    for text in (b"", b"{", b"[1, null]", b'{"usage": 7}', b'{"usage": {"input_tokens": "x"}}', b"\xff"):
        plain, cut, framed = Meter(400, ""), Meter(400, "text/event-stream"), Meter(400, "x/vnd.amazon.eventstream")
        plain.feed(text + b" " * 4000)
        framed.feed(text + b"\0" * 4000)
        cut.feed(b'data: {"message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}\n' + b"x" * 4000)

        assert plain.total(is_complete=True) == Usage(100, 0, 0, (len(text) + 4000) // 4)
        assert cut.total(is_complete=False).output > 1000
        assert framed.total(is_complete=True) == Usage(100, 0, 0, (len(text) + 4000) // 4)


def test_a_streams_end_is_read_from_its_events() -> None:
    """The end of the connection alone is no proof.

    Bedrock's frames contain Anthropic's events; invalid frames cannot be read.
    """
    for event, ending, is_whole in (
        ('{"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": {}}', "refused", True),
        ('{"choices": [{"delta": {}, "finish_reason": "length"}]}', "cut_short", True),
        ('{"choices": [], "error": {"message": "down"}}\n\ndata: [DONE]', None, False),
        ('{"type": "response.failed", "response": {"error": {"message": "down"}}}', None, False),
        ('{"type": "response.completed", "response": {"output": [{"error": {"code": 1}}]}}', None, True),
    ):
        meter = Meter(400, "text/event-stream")
        meter.feed(f"data: {event}\n\n".encode())

        assert (meter.ending, meter.is_whole) == (ending, is_whole)

    for last in ("message_stop", ""):
        meter = Meter(400, "application/vnd.amazon.eventstream")
        begun = frames([{"type": "message_start"}, *([{"type": last}] if last else [])])
        meter.feed(bytes(begun.body))  # type: ignore[call-overload]

        assert meter.is_whole == bool(last)
