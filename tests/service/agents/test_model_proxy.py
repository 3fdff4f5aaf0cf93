"""The model proxy: the key stays outside, every token counts, and a spent budget stops the agent."""

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
from service.egress.key import ModelKey
from service.egress.model import ModelProxy
from service.egress.outages import ModelState, Outages, Patience
from service.egress.routes import PROVIDERS
from service.egress.usage import Meter, Usage
from service.settings import AgentLimits, ExecutionSettings
from tests.lab import Drop, Hang, Raw, Respond, Step
from tests.service.agents.model_server import CACHED, INPUT, OUTPUT, ModelServer, frames
from tests.waiting import eventually

Make = Callable[..., Any]
KEY = "sk-the-real-key-of-the-service"
QUICK: Final = Patience(600, 0.01, 0.5, 0.5)
"""Requests are repeated at once, and silence is noticed at once."""
PATHS = {
    "anthropic": ("/v1/messages", {"model": "claude-x", "max_tokens": 9}),
    "openai": ("/v1/chat/completions", {"model": "gpt-x"}),
    "gemini": ("/v1beta/models/gemini-x:generateContent", {}),
    "anthropic streamed": ("/v1/messages", {"model": "claude-x", "stream": True}),
    "openai streamed": ("/v1/chat/completions", {"model": "gpt-x", "stream": True}),
    "openai streamed responses": ("/v1/responses", {"model": "gpt-x", "stream": True}),
    "gemini streamed": ("/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=worthless", {}),
}
MODELS = {"anthropic": "claude-x", "openai": "gpt-x", "gemini": "gemini-x"}


CLOUDS = {
    "Vertex, streamed": (
        "vertex",
        "/v1/projects/acme/locations/here",
        "/v1/projects/other/locations/there/publishers/anthropic/models/claude-x@20250929:streamRawPredict",
        "/v1/projects/acme/locations/here/publishers/anthropic/models/claude-x@20250929:streamRawPredict",
    ),
    "Bedrock": ("bedrock", "", "/model/us.claude-x-v1%3A0/invoke", "/model/us.claude-x-v1%3A0/invoke"),
    "Bedrock, streamed": (
        "bedrock",
        "",
        "/model/us.claude-x-v1:0/invoke-with-response-stream",
        "/model/us.claude-x-v1:0/invoke-with-response-stream",
    ),
    "Azure": ("openai", "/openai/v1", "/v1/chat/completions", "/openai/v1/chat/completions"),
}
CLOUD_MODELS = {"vertex": "claude-x@20250929", "bedrock": "us.claude-x-v1:0", "openai": "deployed"}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: ModelServer) -> Make:
    """`ask(provider, path, body, times)` sends requests as a program does, and returns how the turn went by them."""
    monkeypatch.setenv("MODEL_KEY", KEY)

    def run(
        provider: str,
        path: str,
        body: dict[str, Any] | None = None,
        times: int = 1,
        patience: Patience = QUICK,
        raw: bytes = b"",
        models: tuple[str, ...] = (),
        *,
        is_patient: bool = True,
        **access: Any,
    ) -> SimpleNamespace:
        given = {"provider": provider, "key_env": "MODEL_KEY", "base_url": server.origin} | access
        model, state, meter = (
            ModelAccess.model_validate(given),
            ModelState(Outages(patience, lambda: False)),
            MemoryMeter(),
        )
        text = json.dumps(body or {})
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: worthless\r\nAnthropic-Beta: its-own"
        )
        request = raw or f"{head}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
        answers, reports = list[str](), list[str]()
        with ModelProxy(
            tmp_path / "socket", model, ModelKey(model), meter, state, models, lambda _, line: reports.append(line)
        ):
            for _ in range(times):
                with socket.socket(socket.AF_UNIX) as link:
                    link.connect(str(tmp_path / "socket"))
                    link.sendall(request)
                    if is_patient:
                        answers.append(b"".join(iter(lambda: link.recv(65_536), b"")).decode("utf-8", "replace"))
            if not is_patient:
                server.wait_for(times)
            serving = lambda: [one for one in threading.enumerate() if one.name == "sandbox-connection"]  # noqa: E731
            eventually(lambda: not serving(), "each connection has been served")
        (tmp_path / "socket").unlink()
        failure = state.end or state.overspent
        return SimpleNamespace(
            failure=failure and failure.text,
            reason=failure and failure.reason,
            trouble=state.trouble and state.trouble.text,
            statuses=[int(answer.split()[1]) for answer in answers],
            answers=answers,
            reports=reports,
            used=meter.used,
            answered_by=state.answered_by,
        )

    return run


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch, rehearse: Make, script: Make, server: ModelServer) -> Make:
    """Let a shell script in the sandbox ask the model `times` times with curl; return how that went."""
    monkeypatch.setenv("MODEL_KEY", KEY)

    def run(times: int, timeout_s: float = 280, **access: Any) -> Any:
        path, body = PATHS["anthropic streamed"]
        source = (
            f"for _ in $(seq {times}); do curl -sS -w '%{{http_code}}\\n' 'http://127.0.0.1:3129{path}' "
            f"-H 'content-type: application/json' -H 'x-api-key: worthless' -d '{json.dumps(body)}' 2>&1; done; env; "
            "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true"
        )
        given = {"provider": "anthropic", "key_env": "MODEL_KEY", "base_url": server.origin} | access
        settings = ExecutionSettings(agent=AgentLimits(model_pause_s=0.01))
        return rehearse(None, settings).turn(script(source, model=given, timeout_s=timeout_s), "ask")

    return run


def test_the_key_is_nowhere_in_the_sandbox(rehearsed: Make, server: ModelServer) -> None:
    """In no environment, command line or output; the program's own worthless one does not leave it."""
    done = rehearsed(1)

    assert done.failure is None, done.log
    (asked,) = server.requests
    assert done.used == [("claude-x", Usage(INPUT, CACHED, 0, OUTPUT), None)]
    assert asked.headers["x-api-key"] == KEY
    assert "200\n" in done.log
    assert not [word for word in (KEY, "[masked]", "MODEL_KEY") if word in done.log]


@pytest.mark.parametrize("how", PATHS)
def test_the_key_is_added_outside_and_all_tokens_are_counted(ask: Make, server: ModelServer, how: str) -> None:
    """Plain and streamed."""
    provider = how.partition(" ")[0]
    done = ask(provider, *PATHS[how])

    assert (done.failure, done.statuses) == (None, [200])
    (asked,) = server.requests
    assert done.used == [(MODELS[provider], Usage(INPUT, CACHED, 0, OUTPUT), None)]
    assert asked.headers[PROVIDERS[provider].header.lower()].removeprefix("Bearer ") == KEY
    assert "worthless" not in str(asked)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_clouds_are_asked_at_the_operator_s_address_with_its_token(ask: Make, server: ModelServer, cloud: str) -> None:
    """Whatever project and place the program names; the tokens are counted in what each of them speaks."""
    provider, base, path, asked_at = CLOUDS[cloud]
    body = {"model": "deployed"} | ({"stream": True} if "streamed" in cloud else {})
    done = ask(provider, path, body, base_url=server.origin + base)

    assert (done.failure, done.statuses) == (None, [200])
    assert done.used == [(CLOUD_MODELS[provider], Usage(INPUT, CACHED, 0, OUTPUT), None)]
    assert [(one.path, one.headers["authorization"]) for one in server.requests] == [(asked_at, f"Bearer {KEY}")]


@pytest.fixture
def prints(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """`prints(source)` is a `key_command` of a shell script, which is told how often it was called."""

    def make(source: str) -> dict[str, Any]:
        file = tmp_path / "print-key"
        calls = tmp_path / "calls"
        file.write_text(f"#!/bin/sh\necho >> '{calls}'\nn=$(wc -l < '{calls}')\n{source}\n", "utf-8")
        file.chmod(0o755)
        return {"key_env": None, "key_command": [str(file)]}

    return make


def test_a_key_that_a_command_prints_is_kept_until_it_is_refused(
    ask: Make, server: ModelServer, prints: Callable[[str], dict[str, Any]]
) -> None:
    """Then the request is made again with the next one, and the program notices nothing."""
    expired = Respond(401, {"error": {"message": "expired: printed-key-1"}})
    server.otherwise = lambda request: expired if len(server.requests) == 3 else server.answer(request)
    done = ask("anthropic", *PATHS["anthropic streamed"], 3, **prints('echo "printed-key-$n"'))

    assert (done.failure, done.statuses) == (None, [200] * 3)
    assert [one.headers["x-api-key"][-1] for one in server.requests] == ["1", "1", "1", "2"]
    assert "printed-key" not in str(done.answers)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("echo printed-key", "answered 401 for claude-x: not [masked]; let key_command print a valid key"),
        ("echo oh >&2; echo 'log in first' >&2; exit 3", "print-key' printed no key: log in first"),
    ],
)
def test_a_command_without_a_valid_key_ends_the_turn_with_its_own_words(
    ask: Make, server: ModelServer, prints: Callable[[str], dict[str, Any]], source: str, words: str
) -> None:
    """What a provider repeats of a key is masked."""
    server.status, server.refusal = 401, {"error": {"message": "not printed-key"}}
    done = ask("anthropic", *PATHS["anthropic"], 3, **prints(source))

    assert done.reason == "no_key"
    assert words in str(done.failure)
    assert len(server.requests) <= 1


def test_the_operator_s_headers_go_with_each_request(ask: Make, server: ModelServer) -> None:
    """Beside the key; what the program asks for in anthropic-beta, a list, stays."""
    done = ask("anthropic", *PATHS["anthropic"], headers={"Anthropic-Beta": "context-1m", "X-Team": "reviews"})

    assert done.failure is None
    (asked,) = server.requests
    assert (asked.headers["anthropic-beta"], asked.headers["x-team"]) == ("its-own,context-1m", "reviews")
    assert asked.headers["x-api-key"] == KEY


COST = (INPUT * 1000 + CACHED * 100 + OUTPUT * 2000) / 1_000_000
PRICES = {"claude-": {"input": 1000, "output": 2000, "cached": 100}}


@pytest.mark.parametrize(
    ("access", "made", "words"),
    [
        ({"prices": PRICES, "budget": {"run_usd": COST * 1.5}}, 2, "USD is spent (budget.run_usd); the agent was"),
        ({"prices": PRICES, "budget": {"day_usd": COST * 0.5}}, 1, "USD a day is spent (budget.day_usd)"),
        ({"budget": {"run_tokens": 2000}}, 2, "budget of 2000 tokens is spent"),
        ({"prices": {"gpt-": {"input": 1, "output": 1}}, "budget": {"run_usd": 1}}, 0, "claude-x"),
    ],
)
def test_what_a_spent_budget_does_not_cover_is_not_asked(
    ask: Make, server: ModelServer, access: dict[str, Any], made: int, words: str
) -> None:
    """Nor is a model without a price where dollars count."""
    done = ask("anthropic", *PATHS["anthropic"], 5, **access)

    assert len(server.requests) == made
    assert words in f"{done.failure}{done.answers}"
    assert made == 0 or done.reason == "out_of_budget"


def test_a_spent_budget_stops_the_agent_and_says_so(rehearsed: Make, server: ModelServer) -> None:
    """An agent whose last answer spends it has that answer, and its turn fails all the same."""
    stopped = rehearsed(1000, prices=PRICES, budget={"run_usd": COST * 1.5})
    asked = len(server.requests)
    last = rehearsed(1, prices=PRICES, budget={"run_usd": COST * 0.9})

    assert (stopped.reason, asked) == ("out_of_budget", 2)
    assert "is spent (budget.run_usd); the agent was stopped" in str(stopped.failure)
    assert (last.reason, "200\n" in last.log) == ("out_of_budget", True)
    assert "is spent (budget.run_usd); the agent's last answer passed it" in str(last.failure)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"run_usd": COST * 0.9}, "USD is spent (budget.run_usd); the agent's last answer passed it"),
        ({"day_usd": COST * 0.9}, "USD a day is spent (budget.day_usd); the agent's last answer passed it"),
        ({"run_tokens": INPUT}, "1000 tokens is spent (budget.run_tokens); the agent's last answer passed it"),
        ({"run_usd": COST * 1.1, "run_tokens": INPUT * 2}, None),
    ],
)
def test_the_last_answer_counts_for_the_budget_as_well(
    ask: Make, server: ModelServer, budget: dict[str, Any], words: str | None
) -> None:
    """An agent that asks for nothing more has its answer all the same."""
    done = ask("anthropic", *PATHS["anthropic streamed"], prices=PRICES, budget=budget)

    assert (len(server.requests), done.statuses) == (1, [200])
    assert words is None or words in str(done.failure)
    assert (done.failure is None, done.reason) == (words is None, None if words is None else "out_of_budget")


@pytest.mark.parametrize(
    ("status", "refusal", "reason", "words"),
    [
        (
            401,
            {"error": {"message": "invalid x-api-key"}},
            "no_key",
            "answered 401 for claude-x: invalid x-api-key; set MODEL_KEY to a valid key",
        ),
        (429, {"error": {"code": "insufficient_quota"}}, "out_of_budget", "has no credit left"),
        (None, {}, "model_unreachable", "127.0.0.1:9 cannot be reached for claude-x: the connection was refused"),
    ],
)
def test_what_the_provider_refuses_ends_the_turn_with_the_cure(
    ask: Make, server: ModelServer, status: int | None, refusal: dict[str, Any], reason: str, words: str
) -> None:
    """However often the program would try again."""
    server.status, server.refusal = status or 200, refusal
    done = ask(
        "anthropic", *PATHS["anthropic"], 3, Patience(0.1), **({} if status else {"base_url": "http://127.0.0.1:9"})
    )

    assert done.reason == reason
    assert words in str(done.failure)
    assert len(server.requests) == (1 if status else 0)


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
    ask: Make, server: ModelServer, method: str, target: str, body: str
) -> None:
    """It gets 403, and the log has a line; what it may ask passes on the same connection."""
    raw = "".join(
        f"{verb} {path} HTTP/1.1\r\nHost: x\r\n{close}Content-Length: {len(text)}\r\n\r\n{text}"
        for verb, path, text, close in (
            (method, target, body, ""),
            ("POST", "/v1/chat/completions", '{"model": "gpt-x"}', "Connection: close\r\n"),
        )
    )
    done = ask("openai", "", raw=raw.encode(), models=("gpt-x",))

    assert done.statuses == [403]
    assert done.answers[0].count("HTTP/1.1 200") == 1
    assert len(server.requests) == 1
    assert [line.startswith("model: ") for line in done.reports] == [True]


STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
AWAY: dict[str, Step] = {
    "connection reset": Drop("accepted"),
    "no answer": Drop("read", "close"),
    "silence": Hang(),
    "no word of a stream": Raw(STREAM.encode()),
    "no byte of its length": Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"),
    "an end at once": Raw(f"{STREAM}0\r\n\r\n".encode()),
    "nothing": Respond(200, b""),
    "overloaded": Respond(529, OVERLOADED),
    "overloaded in the stream": Respond(
        200, f"event: error\ndata: {json.dumps(OVERLOADED)}\n\n", {"Content-Type": "text/event-stream"}
    ),
    "error page": Respond(502, "<html><head><title>502 Bad Gateway</title></head></html>"),
    "limit": Respond(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}),
}


WHOLE = b'{"usage": {"input_tokens": 7, "output_tokens": 3}}'


@pytest.mark.parametrize(
    "step",
    [
        Respond(200, WHOLE),
        Raw(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n" + WHOLE),
        Raw(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n%b\r\n2b;x=y\r\n%b\r\n0\r\n\r\n"
            % (WHOLE[:7], WHOLE[7:])
        ),
    ],
)
def test_an_answer_is_passed_back_and_counted_in_any_framing(ask: Make, server: ModelServer, step: Step) -> None:
    """By length, in chunks, or until the connection closes; after what announces it."""
    server.script(step)
    done = ask("anthropic", *PATHS["anthropic"])
    _, _, body = done.answers[0].partition("\r\n\r\n")

    assert (done.failure, done.trouble, done.statuses) == (None, None, [200])
    assert "".join(body.split("\r\n")[1::2]).encode() == WHOLE, "the pieces without the lengths of the chunks"
    assert body.endswith("0\r\n\r\n")
    assert [usage.tokens for _, usage, _ in done.used] == [10]
    assert done.answered_by == f"claude-x of {server.origin.removeprefix('http://')}"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Raw(b"SSH-2.0-x\r\n\r\n"), "the server there does not speak HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), "does not speak HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\n\r\n"), "the connection was cut before an answer"),
    ],
)
def test_what_is_no_answer_is_asked_for_again_until_patience_ends(
    ask: Make, server: ModelServer, step: Step, words: str
) -> None:
    """Then the program gets 502, and the turn ends with the reason."""
    server.otherwise = lambda _: step
    done = ask("anthropic", *PATHS["anthropic"], patience=Patience(0.2, 0.01, 30, 30))

    assert done.statuses == [502]
    assert words in str(done.failure)
    assert len(server.requests) > 1


def test_a_redirect_is_an_error_and_is_not_followed(ask: Make, server: ModelServer) -> None:
    """The key is for one host."""
    server.script(Respond(307, b"", {"Location": f"{server.origin}/elsewhere"}))
    done = ask("anthropic", *PATHS["anthropic"])

    assert done.statuses == [502]
    assert "elsewhere" not in done.answers[0]
    assert [one.path for one in server.requests] == ["/v1/messages"]


def test_nothing_is_asked_again_for_an_agent_that_has_gone(ask: Make, server: ModelServer) -> None:
    """Its turn is not stopped for that."""
    server.otherwise = lambda _: Respond(503)
    done = ask("anthropic", *PATHS["anthropic"], is_patient=False)

    assert (len(server.requests), done.failure) == (1, None)


def test_a_provider_that_is_away_for_a_while_is_waited_for(ask: Make, server: ModelServer) -> None:
    """The program asks once and gets its answer; what failed before is charged to no one."""
    server.script(*AWAY.values())
    done = ask("anthropic", *PATHS["anthropic streamed"])

    assert (done.failure, done.statuses) == (None, [200])
    assert done.used == [("claude-x", Usage(INPUT, CACHED, 0, OUTPUT), None)]
    assert len(server.requests) == len(AWAY), "one of the connections carried no request"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("silence", "took a request for claude-x and was silent for 0.5 s; continue the run"),
        ("overloaded", "answered 529 for claude-x: Overloaded; continue the run when it answers again"),
        ("limit", "answered 429 for claude-x: slow down; raise the limits"),
    ],
)
def test_one_that_stays_away_ends_the_turn_and_the_reason_says_how(
    ask: Make, server: ModelServer, how: str, words: str
) -> None:
    """After the patience that is configured; in words, with the status, the provider, the model, and a cure."""
    server.otherwise = lambda _: AWAY[how]
    done = ask("anthropic", *PATHS["anthropic streamed"], 2, Patience(0.6, 0.01, 0.5, 0.5))

    assert words in str(done.failure)
    assert done.reason == ("rate_limited" if how == "limit" else "model_unreachable")
    assert (done.used, len(server.requests) > 1) == ([], True)


def test_the_time_limit_holds_while_a_request_is_held(rehearsed: Make, server: ModelServer) -> None:
    """And is told with what the turn waited for."""
    server.status, server.refusal = 529, OVERLOADED
    done = rehearsed(1, timeout_s=2)

    assert done.reason == "timed_out"
    assert str(done.failure).startswith(
        "the agent passed its time limit of 2 s and was stopped; before that, 127.0.0.1:"
    )
    assert "answered 529 for claude-x: Overloaded" in str(done.failure)


BEGUN = 'event: message_start\ndata: {"type": "message_start"}\n\n'
BROKEN = {
    "no last chunk": f"{STREAM}{len(BEGUN):x}\r\n{BEGUN}\r\n",
    "a last chunk": f"{STREAM}{len(BEGUN):x}\r\n{BEGUN}\r\n0\r\n\r\n",
    "no length": f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{BEGUN}",
    "an error": f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{BEGUN}"
    f"data: {json.dumps(OVERLOADED)}\n\ndata: [DONE]\n\n",
    "half of a document": 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"message_start": [',
}


@pytest.mark.parametrize("how", BROKEN)
def test_an_answer_that_has_begun_is_not_made_twice(ask: Make, server: ModelServer, how: str) -> None:
    """The program sees that it is cut, and may ask again; what had come is charged by its length."""
    server.script(Raw(BROKEN[how].encode(), after_s=0.2))
    done = ask("anthropic", *PATHS["anthropic streamed"], 2)

    assert "message_start" in done.answers[0]
    assert [answer.endswith("0\r\n\r\n") for answer in done.answers] == [False, True], "the first one was cut"
    assert (done.failure, len(done.used), len(server.requests)) == (None, 2, 2)


@pytest.mark.parametrize(("how", "words"), [("no length", ", and the program"), ("an error", ": Overloaded; continue")])
def test_a_provider_that_breaks_off_every_answer_is_not_asked_for_ever(
    ask: Make, server: ModelServer, how: str, words: str
) -> None:
    """However often the program asks again, for no longer than the patience that is configured."""
    server.otherwise = lambda _: Raw(BROKEN[how].encode())
    done = ask("anthropic", *PATHS["anthropic streamed"], 100, Patience(0.02))

    assert done.reason == "model_unreachable"
    assert f" broke off an answer of claude-x{words}" in str(done.failure)
    assert len(done.used) > 1


def test_an_answer_that_costs_nothing_does_not_hide_a_failure(ask: Make, server: ModelServer) -> None:
    """A list of models that comes after it, whole or broken off, says nothing of the model."""
    server.script(
        Respond(400, {"error": {"message": "no"}}), Respond(200, {"data": []}), Raw(BROKEN["no length"].encode())
    )
    count = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    body = b'{"model": "m-1"}'
    head = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    done = ask("anthropic", "", raw=head + count + count)

    assert " answered 400 for m-1: no; " in str(done.trouble)
    assert len(server.requests) == 3


def test_what_costs_nothing_is_not_waited_for(ask: Make, server: ModelServer) -> None:
    """A list of models that fails is the program's to do without."""
    server.otherwise = lambda _: AWAY["error page"]
    done = ask("anthropic", "/v1/messages/count_tokens", {"model": "claude-x"})

    assert (done.failure, done.statuses) == (None, [502])


@pytest.mark.parametrize(("body", "passes"), [("{length:x}\r\n{text}\r\n0\r\n\r\n", True), ("zz\r\n", False)])
def test_a_body_in_chunks_is_put_together_or_refused(
    ask: Make, server: ModelServer, body: str, *, passes: bool
) -> None:
    """As clients send that do not know its length; nonsense ends that connection, and not the agent."""
    text = json.dumps({"model": "gpt-x"})
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    done = ask("openai", "", raw=(head + body.format(length=len(text), text=text)).encode())

    assert (done.failure, len(server.requests)) == (None, 1 if passes else 0)


def test_the_longest_name_that_fits_has_the_price() -> None:
    """Cached tokens and those written to a cache have prices of their own."""
    cheap, dear = Price(input=1, output=2), Price(input=3, output=15, cached=0.3, cache_write=3.75)

    assert price_of("claude-opus-4", {"claude-": cheap, "claude-opus": dear}) == dear
    assert price_of("gpt", {"claude-": cheap}) is None
    assert Usage(1000, 1000, 1000, 1000).micro_usd(dear) == 22_050
    assert Usage(1000, 1000, 0, 0).micro_usd(cheap) == 2000
    assert Usage(1000).micro_usd(Price(input=0, output=0)) == 0
    assert Usage(1000).micro_usd(None) is None


@pytest.mark.parametrize(
    ("model", "figures"),
    [
        ("claude-opus-4-5-20251101", (5, 25)),
        ("claude-opus-4-5@20251101", (5, 25)),
        ("gpt-5.4", (2.5, 15)),
        ("gemini-2.5-flash-latest", (0.3, 2.5)),
        *((name, None) for name in ("gpt-5.4-mini", "gpt-5.41", "gpt-5", "claude-opus-4-55", "claude-opus-4-5-x")),
        *((name, None) for name in ("us.anthropic.claude-opus-4-5-20251101-v1:0", "my/gpt-5.4", "unknown", "")),
    ],
)
def test_a_list_price_is_that_of_the_whole_name(model: str, figures: tuple[float, float] | None) -> None:
    """But for a date or `-latest` at its end: what is called similarly costs something else, which is not known."""
    price = price_of(model, {})

    assert (None if price is None else (price.input, price.output)) == figures
    assert price_of(model, {"": Price(input=0, output=0)}) == Price(input=0, output=0), "the operator's wins"


def test_a_list_price_may_depend_on_the_prompt_s_length() -> None:
    """With what was read from the cache; all of the request has the other price."""
    price = price_of("gemini-2.5-pro", {})

    assert Usage(200_000, 0, 0, 1000).micro_usd(price) == 260_000
    assert Usage(200_000, 1000, 0, 1000).micro_usd(price) == 515_250


def test_a_budget_in_dollars_holds_at_list_prices(ask: Make, server: ModelServer) -> None:
    """For an agent without prices of its own."""
    budget = {"run_usd": 0.006}
    done = ask("anthropic", "/v1/messages", {"model": "claude-opus-4-5-20251101", "max_tokens": 9}, 5, budget=budget)

    assert (done.reason, len(server.requests)) == ("out_of_budget", 1)
    assert done.used == [("claude-opus-4-5-20251101", Usage(INPUT, CACHED, 0, OUTPUT), 6350)]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1, null]", b'{"usage": 7}', b'{"usage": {"input_tokens": "x"}}', b"\xff"]
)
def test_an_answer_that_counts_nothing_is_counted_by_its_length(text: bytes) -> None:
    """A provider that says nothing, or nonsense, does not make its tokens free; nor does a stream that breaks off."""
    plain, cut, framed = Meter(400, ""), Meter(400, "text/event-stream"), Meter(400, "x/vnd.amazon.eventstream")
    plain.feed(text + b" " * 4000)
    framed.feed(text + b"\0" * 4000)
    cut.feed(b'data: {"message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}\n' + b"x" * 4000)

    assert plain.total(is_complete=True) == Usage(100, 0, 0, (len(text) + 4000) // 4)
    assert cut.total(is_complete=False).output > 1000
    assert framed.total(is_complete=True) == Usage(100, 0, 0, (len(text) + 4000) // 4)


@pytest.mark.parametrize(
    ("event", "ending", "is_whole"),
    [
        ('{"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": {}}', "refused", True),
        ('{"choices": [{"delta": {}, "finish_reason": "length"}]}', "cut_short", True),
        ('{"choices": [], "error": {"message": "down"}}', None, False),
        ('{"choices": [], "error": {"message": "down"}}\n\ndata: [DONE]', None, False),
        ('{"type": "response.failed", "response": {"error": {"message": "down"}}}', None, False),
        ('{"type": "response.completed", "response": {"output": [{"error": {"code": 1}}]}}', None, True),
        ("[DONE]", None, True),
    ],
)
def test_how_a_stream_ended_is_read_from_its_events(event: str, ending: str | None, *, is_whole: bool) -> None:
    """The end of the connection alone says nothing."""
    meter = Meter(400, "text/event-stream")
    meter.feed(f"data: {event}\n\n".encode())

    assert (meter.ending, meter.is_whole) == (ending, is_whole)


@pytest.mark.parametrize(
    ("last", "is_whole"), [('{"type": "message_stop"}', True), ('{"type": "content_block_stop"}', False), (None, True)]
)
def test_how_a_stream_in_frames_ended_is_read_as_well(last: str | None, *, is_whole: bool) -> None:
    """Bedrock's frames hold Anthropic's events; one that is no frame cannot be looked at."""
    meter = Meter(400, "application/vnd.amazon.eventstream")
    begun = frames([{"type": "message_start"}, *([] if last is None else [json.loads(last)])])
    meter.feed(bytes(begun.body) + (b"" if last else bytes(20)))  # type: ignore[call-overload]

    assert meter.is_whole == is_whole
