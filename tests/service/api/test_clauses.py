"""Clauses of the specification that concern every endpoint, and those without another test."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api import errors
from service.git import GitCommandError
from tests.service.conftest import BARE

ENDPOINTS = (
    ("POST", "/external/organizations"),
    ("GET", "/external/runs"),
    ("POST", "/external/runs"),
    ("POST", "/external/agents/scribe/runs"),
    ("GET", "/external/installation/health"),
    ("POST", "/external/gitlab/projects"),
)


def test_without_a_valid_token_every_endpoint_answers_401(idle: Any) -> None:
    """A missing, malformed or unknown token is a 401 with a challenge, before the body is read."""
    for given in (None, "Bearer", "Basic YTpi", "Bearer rwt_unknown"):
        for method, path in ENDPOINTS:
            headers, body = {} if given is None else {"Authorization": given}, {} if method == "POST" else None
            answer = BARE.request(method, idle.service.base_url + path, headers=headers, json=body)

            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["error_code"] in {"missing_token", "invalid_token"}
            assert "bearer" in answer.json()["message"].lower()


def test_an_unacceptable_body_is_refused(idle: Any) -> None:
    """400, 413 or 415 with a failure body, never 422 and never a 500 (spec 7.2)."""
    cases: list[tuple[bytes, dict[str, str], int, str]] = [
        *((body, {}, 400, "malformed_json") for body in (b"{", b'{"a": NaN}', b"[" * 100_000)),
        *((body, {}, 400, "invalid_text") for body in (b'{"a": "\\u0000"}', b'{"a": "\\ud800"}')),
        (b"[]", {}, 400, "invalid_request"),
        (b"{}", {"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        (b" " * (1 << 20) + b"{}", {}, 413, "body_too_large"),
    ]
    for body, more, status, code in cases:
        headers = {"Content-Type": "application/json"} | more
        answer = idle.http.post("/external/runs", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error_code"]) == (status, code), body[:20]


def test_an_unknown_method_is_refused_with_allow(idle: Any) -> None:
    """The 405 lists all allowed methods in Allow, on any path (RFC 9110)."""
    cases = {"/v1/external/runs": "GET, POST", "/v1/external/agents": "GET", "/livez": "GET", "/hooks/github": "POST"}
    for path, allowed in cases.items():
        answer = idle.http.delete(idle.http.base_url.join(path))
        assert (answer.status_code, answer.json()["error_code"]) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == allowed, path


async def test_an_unexpected_error_is_a_500_and_a_line_of_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller learns nothing about the machine; the log has the error's text."""
    app = FastAPI()
    errors.install(app)

    @app.get("/foreseen-by-none")
    async def fail() -> None:
        raise GitCommandError("git fetch failed: the disk is full")

    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.get("/foreseen-by-none")

    assert (answer.status_code, answer.json()["error_code"]) == (500, "internal_error")
    said = [one for one in caplog.records if "the disk is full" in one.getMessage()]
    assert [(one.name, one.exc_info) for one in said] == [("service.api.errors", None)]
