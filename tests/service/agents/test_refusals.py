"""Failures in plain words with a fix, and agents' own reports, whose foreign values break no reader."""

import json
from itertools import product

from service.agents import outcome
from service.agents.options import ModelAccess
from service.agents.outcome import OutcomeReader, TurnFailure
from service.egress.refusals import failed_stream, of_answer

HOUR_S = 3600
NOW_S = 1_795_000_000.0
"""2026-11-18T11:06:40Z."""


def access(provider: str) -> ModelAccess:
    return ModelAccess.model_validate({"provider": provider, "key_env": "MODEL_KEY"})


def anthropic(kind: str, message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011"})


def openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}, indent=2)


def gemini(code: int, status: str, message: str, *details: object) -> str:
    return json.dumps({"error": {"code": code, "message": message, "status": status, "details": details}})


KEY_INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
QUOTA = "You exceeded your current quota, please check your plan and billing details."
LONG = "prompt is too long: 208310 tokens > 200000 maximum"
PLACE = "Country, region, or territory not supported"
ROWS = [
    ("anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), "stop", "no_key", "set MODEL_KEY to a"),
    ("anthropic", 400, anthropic("invalid_request_error", LONG), "pass_on", "failed", "longer than the model takes"),
    ("anthropic", 529, anthropic("overloaded_error", "Down"), "ask_again", "model_unreachable", "continue the run"),
    ("openai", 429, openai(QUOTA, "insufficient_quota"), "stop", "out_of_budget", "has no credit left"),
    ("openai", 403, openai(PLACE, "unsupported_country_region_territory"), "stop", "not_permitted", "set base_url to"),
    ("openai", 404, '{"detail": "Not Found"}', "pass_on", "failed", "check base_url"),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT", "API key not valid.", KEY_INFO), "stop", "no_key", "valid key"),
    ("gemini", 429, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY_INFO), "ask_again", "rate_limited", "raise the"),
]


def test_a_limits_end_is_read_in_every_providers_form() -> None:
    """The limit may be in seconds, an instant or a duration; of several limits, the exhausted one counts."""
    for headers, body, wait_s in (
        ({"retry-after": "30"}, "", 30),
        ({"retry-after": "Wed, 18 Nov 2026 12:06:40 GMT"}, "", HOUR_S),
        ({}, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY_INFO), 34.07),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h0m0.5s"}, "", HOUR_S + 0.5),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-18T12:06:40Z",
            },
            "",
            HOUR_S,
        ),
        ({"retry-after": "soon"}, "", None),
    ):
        assert of_answer(access("anthropic"), "m-1", 429, headers, body.encode(), NOW_S).wait_s == wait_s


def test_a_providers_error_is_reported_with_its_fix() -> None:
    """Only a 401 or its equivalents mention the key, and no JSON is shown.

    Gateways wrap errors in errors, pages and events.
    """
    for provider, status, body, then, reason, fix in ROWS:
        told = of_answer(access(provider), "m-1", status, {}, body.encode(), NOW_S)
        name = {"anthropic": "Anthropic", "openai": "OpenAI", "gemini": "Gemini"}[provider]

        assert told.failure.text.startswith(f"{name} answered {status} for m-1: ")
        assert (told.then, told.failure.reason) == (then, reason)
        assert fix in told.failure.text
        assert "{" not in told.failure.text

    for body, words in (
        ('{"error": {"message": "APIError - {\\"error\\": {\\"message\\": \\"inner\\"}}"}}', ": APIError - inner; "),
        ('event: error\ndata: {"type": "error", "error": {"type": "overl', " and gave no reason; "),
    ):
        assert words in of_answer(access("openai"), "m-1", 500, {}, body.encode(), NOW_S).failure.text

    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}'
    assert [failed_stream(start) for start in (error, b'data: {"error": {"code": 500}}')] == [529, 500]
    assert failed_stream(b'event: message_start\ndata: {"type":"message_start"}') is None


LISTENERS = (outcome.claude, outcome.codex, outcome.acp)
KINDS = ("result", "message", "error", "item.completed", "turn.failed")
FIELDS = ("type", "acp", "update", "errors", "error", "status", "message", "item", "part", "result", "subtype", "role")
VALUES = (5, [5], {"role": "assistant", "content": 5}, {"type": ["agent_message"]}, None)


def test_unexpected_and_split_events_are_read() -> None:
    """Readable parts are kept, and a reported error stays an error. ACP messages may be split anywhere."""
    for listener in LISTENERS:
        reader = OutcomeReader(listener)
        for kind, field, value in product(KINDS, FIELDS, VALUES):
            event = {"type": kind, "is_error": True, field: value}
            reader.feed(f"{json.dumps(event)}\n".encode())

        reader.feed(b'{"type": "result", "is_error": true, "errors": ["first", 2], "status": "failed"}\n')

        assert listener is not outcome.claude or reader.report.error == "first; 2"

    reader = OutcomeReader(outcome.acp)
    for piece in ("Let me", " look.\n", "All", " done."):
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": piece}}
        reader.feed(f"{json.dumps({'acp': 'update', 'update': update})}\n".encode())

    assert reader.report.summary == "Let me look.\nAll done."


EDIT = "a.txt\n```\n<<<<<<< SEARCH\n=======\nzebras\n>>>>>>> REPLACE\n```\n"
COUNTED = "\nTokens: 1.2k sent, 50 received. Cost: $0.0035 message, $0.0035 session.\n"


def test_aiders_last_answer_is_found_in_its_output() -> None:
    """The edits are left out, since they are in the change."""
    for ending, summary in ((f"Go on?\n{COUNTED}a.txt\nApplied edit\n", "I add it.\na.txt\nGo on?"), ("Half of", None)):
        reader = OutcomeReader(of_line=outcome.aider)
        reader.feed(f"Aider v0.86.2\nRepo-map: using 4096 tokens\n\nI add it.\n\n{EDIT}\n{ending}".encode())

        assert (reader.report.summary, reader.failure(0) is None) == (summary, summary is not None)


def test_a_programs_failure_is_reported_with_a_fix() -> None:
    """The program's own words come first, without JSON; if its answer was cut off, the model is named."""
    cut = {"type": "turn.failed", "error": {"message": "Incomplete response returned, reason: max_output_tokens"}}
    for listener, line, status, reason, words in (
        (
            outcome.claude,
            f'Error: {{"request": "{"x" * 600}", "error": {{"message": "It broke."}}}}\n',
            *(1, "failed", "the agent exited with status 1: Error: It broke; its log"),
        ),
        (
            outcome.codex,
            json.dumps(cut),
            1,
            "cut_short",
            "the answer of m-1 was cut at its limit of tokens: Incomplete",
        ),
    ):
        reader = OutcomeReader(listener)
        reader.feed(line.encode())
        told = reader.failure(status, None, "m-1")

        assert isinstance(told, TurnFailure)
        assert (told.reason, told.text[: len(words)]) == (reason, words)
