"""The model proxy: the key stays outside, every token counts, and a spent budget stops the agent."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.agents.options import ModelAccess, Price
from service.egress.budget import MemoryMeter
from service.egress.model import PROVIDERS
from service.egress.usage import Meter, Usage, price_of
from service.store import organizations, runs, turns
from service.store import usage as usage_store
from service.store.database import Database
from service.store.runs import TurnRequest
from service.store.usage import UsageFigures
from tests.service.agents.model_server import CACHED, INPUT, OUTPUT, ModelServer

Make = Callable[..., Any]
KEY = "sk-the-real-key-of-the-service"
PATHS = {
    "anthropic": ("/v1/messages", {"model": "claude-x", "max_tokens": 9}),
    "openai": ("/v1/chat/completions", {"model": "gpt-x"}),
    "gemini": ("/v1beta/models/gemini-x:generateContent", {}),
}
STREAMED = {
    "anthropic": ("/v1/messages", {"model": "claude-x", "stream": True}),
    "openai": ("/v1/chat/completions", {"model": "gpt-x", "stream": True}),
    "gemini": ("/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=worthless", {}),
    "openai-responses": ("/v1/responses", {"model": "gpt-x", "stream": True}),
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A made-up model API."""
    with ModelServer() as made:
        yield made


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, rehearse: Make, script: Make, server: ModelServer) -> Make:
    """Let a shell script ask the model `times` times with curl; return how that went, with what was used."""
    monkeypatch.setenv("MODEL_KEY", KEY)

    def run(provider: str, path: str, body: dict[str, Any], times: int = 1, python: str = "pass", **model: Any) -> Any:
        source = (
            f"{Path(sys.executable).resolve()} - <<'END'\n{python}\nEND\n"
            f"for _ in $(seq {times}); do curl -sS -w '%{{http_code}}\\n' --path-as-is 'http://127.0.0.1:3129{path}' "
            f"-H 'content-type: application/json' -H 'x-api-key: worthless' -d '{json.dumps(body)}' 2>&1; done; env; "
            "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; true"
        )
        given = {"provider": provider, "key_env": "MODEL_KEY", "base_url": server.url} | model
        return rehearse().turn(script(source, model=given, timeout_s=120), "ask")

    return run


@pytest.mark.parametrize("how", [*PATHS, *(f"{name} streamed" for name in STREAMED)])
def test_the_key_is_added_outside_and_all_tokens_are_counted(ask: Make, server: ModelServer, how: str) -> None:
    """Plain and streamed; the key is in no environment, command line or output of the sandbox."""
    name, _, streamed = how.partition(" ")
    path, body = (STREAMED if streamed else PATHS)[name]
    provider = name.partition("-")[0]
    done = ask(provider, path, body)

    assert done.failure is None, done.log
    assert len(server.asked) == 1, done.log
    asked = server.asked[0]
    assert done.used == [(f"{'claude' if provider == 'anthropic' else 'gpt' if provider == 'openai' else 'gemini'}-x",
                          Usage(INPUT, CACHED, 0, OUTPUT), 0)]  # fmt: skip
    assert asked.headers[PROVIDERS[provider].header.lower()].removeprefix("Bearer ") == KEY
    assert "worthless" not in str(asked)
    assert "[masked]" not in done.log
    assert "MODEL_KEY" not in done.log


def test_a_spent_budget_stops_the_agent_and_says_so(ask: Make, server: ModelServer) -> None:
    """In dollars and in tokens; the request that would go beyond it is not made."""
    prices = {"claude-": {"input": 1000, "output": 2000, "cached": 100}}
    cost = (INPUT * 1000 + CACHED * 100 + OUTPUT * 2000) / 1_000_000
    path, body = PATHS["anthropic"]
    by_cost = ask("anthropic", path, body, 5, prices=prices, budget={"run_usd": cost * 1.5})
    asked_by_cost = len(server.asked)
    by_day = ask("anthropic", path, body, 5, prices=prices, budget={"day_usd": cost * 0.5})
    asked_by_day = len(server.asked) - asked_by_cost
    by_tokens = ask("anthropic", path, body, 5, budget={"run_tokens": 2000})
    asked_by_tokens = len(server.asked) - asked_by_cost - asked_by_day

    assert (asked_by_cost, asked_by_day, asked_by_tokens) == (2, 1, 2)
    assert {done.reason for done in (by_cost, by_day, by_tokens)} == {"out_of_budget"}
    assert "USD is spent (budget.run_usd); the agent was stopped" in str(by_cost.failure)
    assert "USD a day is spent (budget.day_usd)" in str(by_day.failure)
    assert "budget of 2000 tokens is spent" in str(by_tokens.failure)


def test_a_model_without_a_price_cannot_be_asked_where_dollars_count(ask: Make, server: ModelServer) -> None:
    """Otherwise the budget would not hold; the reason names the model."""
    prices = {"gpt-": {"input": 1, "output": 1}}
    ask("anthropic", *PATHS["anthropic"], prices=prices, budget={"run_usd": 1})

    assert server.asked == []


@pytest.mark.parametrize(
    "path", ["/v1/files", "/v1/messages/batches", "/v1/organizations/x", "/../v1/messages", "//v1"]
)
def test_only_what_is_counted_can_be_asked(ask: Make, server: ModelServer, path: str) -> None:
    """Files, batches and administration of the key's account are closed to agents."""
    done = ask("anthropic", path, {"model": "claude-x"})

    assert server.asked == []
    assert "is not open to agents" in done.log


@pytest.mark.parametrize(
    ("status", "refusal", "reason", "words"),
    [
        (401, {"error": {"message": "bad key"}}, "no_key", "the provider refuses the key in MODEL_KEY (401)"),
        (429, {"error": {"code": "insufficient_quota"}}, "out_of_budget", "has no credit left"),
    ],
)
def test_what_the_provider_refuses_ends_the_agent_with_the_cure(
    ask: Make, server: ModelServer, status: int, refusal: dict[str, Any], reason: str, words: str
) -> None:
    """However often it would try again."""
    server.status, server.refusal = status, refusal
    done = ask("anthropic", *PATHS["anthropic"], times=1000)

    assert done.reason == reason
    assert words in str(done.failure)


def test_a_model_that_cannot_be_reached_ends_the_agent(ask: Make, server: ModelServer) -> None:
    """After three tries, long before its time is over."""
    done = ask("openai", *PATHS["openai"], times=1000, base_url="http://127.0.0.1:9")

    assert done.reason == "model_unreachable"
    assert "the model at 127.0.0.1 cannot be reached" in str(done.failure)


@pytest.mark.parametrize(("body", "passes"), [("{length:x}\r\n{text}\r\n0\r\n\r\n", True), ("zz\r\n", False)])
def test_a_body_in_chunks_is_put_together_or_refused(
    ask: Make, server: ModelServer, body: str, *, passes: bool
) -> None:
    """As clients send that do not know its length; nonsense ends that connection, and not the agent."""
    text = json.dumps({"model": "gpt-x"})
    head = "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    sent = (head + body.format(length=len(text), text=text)).replace("\r\n", "\\r\\n").replace('"', '\\"')
    python = (
        f"import socket; s = socket.create_connection(('127.0.0.1', 3129)); s.sendall(b\"{sent}\"); print(s.recv(99))"
    )
    done = ask("openai", *PATHS["openai"], python=python)

    assert done.failure is None, done.log
    assert len(server.asked) == (2 if passes else 1)


def test_the_longest_name_that_fits_has_the_price() -> None:
    """Cached tokens and those written to a cache have prices of their own."""
    cheap, dear = Price(input=1, output=2), Price(input=3, output=15, cached=0.3, cache_write=3.75)

    assert price_of("claude-opus-4", {"claude-": cheap, "claude-opus": dear}) == dear
    assert price_of("gpt", {"claude-": cheap}) is None
    assert Usage(1000, 1000, 1000, 1000).micro_usd(dear) == 22_050
    assert Usage(1000, 1000, 0, 0).micro_usd(cheap) == 2000


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1, null]", b'{"usage": 7}', b'{"usage": {"input_tokens": "x"}}', b"\xff"]
)
def test_an_answer_that_counts_nothing_is_counted_by_its_length(text: bytes) -> None:
    """A provider that says nothing, or nonsense, does not make its tokens free; nor does a stream that breaks off."""
    plain, cut = Meter(400, is_stream=False), Meter(400, is_stream=True)
    plain.feed(text + b" " * 4000)
    cut.feed(b'data: {"message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}\n' + b"x" * 4000)

    assert plain.total(is_complete=True) == Usage(100, 0, 0, (len(text) + 4000) // 4)
    assert cut.total(is_complete=False).output > 1000


def test_usage_is_kept_for_each_turn_and_summed_for_run_and_day(database: Database) -> None:
    """What was used on another day counts for the run alone."""
    access = ModelAccess(provider="anthropic", key_env="K")
    meter = MemoryMeter()
    meter.add("m", Usage(1, 2, 3, 4), 5)
    day = 86_400_000_000
    with database.write() as connection:
        owner = organizations.create(connection, name="Acme", now=1).id
        order = TurnRequest(owner, "made", "github", "acme/api", "/srv/api.git", None, "do it", {}, None)
        turn = turns.of(connection, runs.accept(connection, order, 1).id)[0]
        for now in (day, day, 2 * day):
            use = usage_store.ModelUse("/made", access.provider, "m", Usage(1, 2, 3, 4), 5)
            usage_store.add(connection, turn, use, now)
        kept = usage_store.of_turns(connection, turn.run_id)
        spent = usage_store.spent(connection, turn.run_id, "/made", 2 * day)

    assert (spent.run_micro_usd, spent.day_micro_usd, spent.run_tokens) == (15, 5, 30)
    assert kept == {1: UsageFigures(requests=3, input_tokens=12, cached_tokens=6, output_tokens=12, micro_usd=15)}
    assert meter.spent().run_tokens == 10
