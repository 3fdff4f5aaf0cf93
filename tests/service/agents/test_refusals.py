"""Failures of a model in words: the status, the provider, the model, the provider's own sentence, and the cure."""

import json

from service.agents.options import ModelAccess
from service.agents.sentences import in_words
from service.egress.refusals import answered, failed_stream

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
NO_MODEL = "Project `proj_1` does not have access to model `gpt-x`"
ROWS = [
    ("anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), "stop", "no_key", "set MODEL_KEY to a"),
    ("anthropic", 404, anthropic("not_found_error", "model: claude-x"), "pass_on", "not_permitted", "the model's name"),
    ("anthropic", 400, anthropic("invalid_request_error", LONG), "pass_on", "failed", "longer than the model takes"),
    ("anthropic", 529, anthropic("overloaded_error", "Down"), "ask_again", "model_unreachable", "continue the run"),
    ("openai", 429, openai(QUOTA, "insufficient_quota"), "stop", "out_of_budget", "has no credit left"),
    ("openai", 403, openai(PLACE, "unsupported_country_region_territory"), "stop", "not_permitted", "set base_url to"),
    ("openai", 403, openai(NO_MODEL, "model_not_found"), "pass_on", "not_permitted", "set the model's name to one"),
    ("openai", 402, '{"error": {"message": "Insufficient Balance"}}', "stop", "out_of_budget", "no credit left"),
    ("openai", 404, '{"detail": "Not Found"}', "pass_on", "failed", "check base_url"),
    ("gemini", 400, gemini(400, "INVALID_ARGUMENT", "API key not valid.", KEY_INFO), "stop", "no_key", "valid key"),
    ("gemini", 429, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY_INFO), "ask_again", "rate_limited", "raise the"),
    ("gemini", 503, f"[{gemini(503, 'UNAVAILABLE', 'Overloaded.')}]", "ask_again", "model_unreachable", "continue"),
]


def test_an_error_is_told_as_the_provider_says_it_with_its_cure() -> None:
    """Only 401 and its like speak of the key; no JSON is left."""
    for provider, status, body, then, reason, cure in ROWS:
        told = answered(access(provider), "m-1", status, {}, body.encode(), NOW_S)
        name = {"anthropic": "Anthropic", "openai": "OpenAI", "gemini": "Gemini"}[provider]

        assert told.failure.text.startswith(f"{name} answered {status} for m-1: ")
        assert (told.then, told.failure.reason) == (then, reason)
        assert cure in told.failure.text
        assert "{" not in told.failure.text


def test_a_body_of_any_shape_becomes_a_sentence_or_none() -> None:
    """Gateways wrap errors in errors, pages and events."""
    for body, words in (
        ("", "answered 500 for m-1 and gave no reason; "),
        ("<html>\n<head><title>504 Gateway Time-out</title></head>", ": 504 Gateway Time-out; "),
        ('{"error": {"message": "APIError - {\\"error\\": {\\"message\\": \\"inner\\"}}"}}', ": APIError - inner; "),
        ('event: error\ndata: {"type": "error", "error": {"message": "in a stream"}}\n\n', ": in a stream; "),
        ('event: error\ndata: {"type": "error", "error": {"type": "overl', " and gave no reason; "),
    ):
        assert words in answered(access("openai"), "m-1", 500, {}, body.encode(), NOW_S).failure.text


ANTHROPIC = "anthropic-ratelimit-"
USED_UP = {f"{ANTHROPIC}requests-remaining": "0", f"{ANTHROPIC}requests-reset": "2026-11-18T12:06:40Z"}
LEFT = {f"{ANTHROPIC}tokens-remaining": "9", f"{ANTHROPIC}tokens-reset": "2026-11-19T12:06:40Z"}
UNIFIED = {f"{ANTHROPIC}unified-status": "rejected", f"{ANTHROPIC}unified-reset": str(int(NOW_S) + HOUR_S)}


def test_when_a_limit_ends_is_read_from_all_that_providers_say() -> None:
    """As seconds, an instant or a duration; of several limits, the one that is used up."""
    for headers, body, wait_s in (
        ({"Retry-After": "30"}, "", 30),
        ({"Retry-After": "Wed, 18 Nov 2026 12:06:40 GMT"}, "", HOUR_S),
        ({}, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, RETRY_INFO), 34.07),
        ({}, json.dumps({"error": {"message": gemini(429, "X", QUOTA, RETRY_INFO)}}), 34.07),
        (USED_UP | LEFT, "", HOUR_S),
        (UNIFIED, "", HOUR_S),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h0m0.5s"}, "", HOUR_S + 0.5),
        ({"Retry-After": "soon"}, "", None),
        ({}, "", None),
    ):
        assert answered(access("anthropic"), "m-1", 429, headers, body.encode(), NOW_S).wait_s == wait_s


def test_a_stream_that_begins_with_an_error_is_told_from_an_answer() -> None:
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}'
    assert [failed_stream(start) for start in (error, b'data: {"error": {"code": 500}}')] == [529, 500]
    assert failed_stream(b'event: message_start\ndata: {"type":"message_start"}') is None


def test_what_a_program_says_of_an_error_is_shown_in_words() -> None:
    """Without JSON, whole or cut off, and without the names of classes; the words around it stay."""
    for said, words in (
        (f"API Error: 529 {anthropic('overloaded_error', 'Overloaded')} · wait", "API Error: 529 Overloaded · wait"),
        (f"got status: 503. [{gemini(503, 'UNAVAILABLE', 'Overloaded.')}]", "got status: 503. Overloaded."),
        ("Error code: 401 - {'error': {'message': \"It isn't\", 'code': None}}", "Error code: 401 - It isn't"),
        ("Connection broken: IncompleteRead(0 bytes read)", "Connection broken: the connection was cut"),
        ("see [the docs] and {this}", "see [the docs] and {this}"),
        (f"Error: {openai('long ' * 200)}", f"Error: {'long ' * 78}lon…"),
    ):
        assert in_words(said) == words
