"""Clauses of the specification that concern every endpoint, and those that no other test is about."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.api import errors
from service.execution.git import GitCommandError
from tests.service.conftest import BARE, OPERATIONS, http_client

BODIES = {path: document for method, path, document, _ in OPERATIONS.values() if method == "POST"}
ENDPOINTS = [(method, path) for method, path, *_ in OPERATIONS.values()]


def test_without_a_valid_token_every_endpoint_answers_401(idle: Any) -> None:
    """A missing, malformed or unknown token is 401 with a challenge, before the body is looked at."""
    for given in (None, "Bearer", "Basic YTpi", "Bearer rwt_unknown"):
        for method, path in ENDPOINTS:
            headers, body = {} if given is None else {"Authorization": given}, {} if method == "POST" else None
            answer = BARE.request(method, idle.service.base_url + path, headers=headers, json=body)

            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["error_code"] in {"missing_token", "invalid_token"}
            assert "bearer" in answer.json()["message"].lower()


def test_each_endpoint_refuses_a_body_that_cannot_be_taken(idle: Any) -> None:
    """400, 413 or 415 with a failure body, never 422 and never a 500 (spec 7.2)."""
    malformed = [b"{", b"", b'{"a": NaN}', b'{"a": ' + b"9" * 5000 + b"}", b"[" * 100_000]
    malformed.append(b'{"a": ' + b'{"a":' * 70 + b"1" + b"}" * 71)
    cases: list[tuple[bytes, dict[str, str], int, str]] = [
        *((body, {}, 400, "malformed_json") for body in malformed),
        *((body, {}, 400, "invalid_text") for body in (b'{"a": "\\u0000"}', b'{"a": "\\ud800"}')),
        *((body, {}, 400, "invalid_request") for body in (b"[]", b"{}")),
        (b"{}", {"Content-Type": "text/json"}, 415, "unsupported_media_type"),
        (b"{}", {"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
        (b" " * (1 << 20) + b"{}", {}, 413, "body_too_large"),
    ]
    for body, headers, status, code in cases:
        for path in BODIES:
            answer = idle.http.post(path, content=body, headers={"Content-Type": "application/json"} | headers)

            assert (answer.status_code, answer.json()["error_code"]) == (status, code), (path, body[:20])
            assert answer.json()["message"]


def test_a_wrong_method_is_405_and_a_wrong_path_404(idle: Any) -> None:
    """Allow names every method of the path, not those of one route; /livez is the one open door."""
    root = idle.service.base_url.removesuffix("/v1")
    for method in ("DELETE", "OPTIONS"):
        answer = idle.http.request(method, f"{root}/v1/external/runs")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
        assert answer.json()["error_code"] == "method_not_allowed"
    # No client is redirected with a token in hand; the version is part of the address (spec 1, 9).
    for path in ("/v1/nothing", "/v1/external/agents/a/b/runs", "/v1/livez", "/v1/external/runs/", "/external/runs"):
        answer = idle.http.get(root + path)
        assert (answer.status_code, answer.json()["error_code"]) == (404, "not_found"), path
    assert BARE.get(f"{root}/livez").json() == {"status": "ok"}
    assert BARE.get(f"{root}/v1/external/runs", headers={"Authorization": f"bearer {idle.token}"}).status_code == 200


def test_a_child_is_closed_to_its_parent(idle: Any) -> None:
    """The parent's administrator lists neither the child's runs nor its hosts: attribution only (spec 2.2, 4.1)."""
    child = idle.post("/external/organizations", BODIES["/external/organizations"]).json()
    owned = ("--org", child["organization_id"])
    url = str(idle.service.repositories["acme/api"])
    idle.service.admin("repository", "add", "api", *owned, "--platform", "github", "--path", "acme/api", "--url", url)
    value = idle.service.admin("token", "create", *owned, "--scope", "admin")["value"]
    run = http_client(value, idle.service.base_url).post("/external/runs", json=BODIES["/external/runs"]).json()
    continued = idle.post("/external/runs", BODIES["/external/runs"] | {"run_id": run["run_id"]})
    listed = idle.get("/external/runs", params={"page_size": 100}).json()["runs"]

    assert run["run_id"] not in [one["run_id"] for one in listed]
    assert (continued.status_code, continued.json()["error_code"]) == (404, "run_not_found")


async def test_an_error_that_no_endpoint_foresees_is_a_500_and_one_line_of_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller learns nothing of the machine, the operator what the error says; a traceback is of faults alone."""
    app = FastAPI()
    errors.install(app, [])

    @app.get("/foreseen-by-none")
    async def fail() -> None:
        raise GitCommandError("git fetch failed: the disk is full")

    @app.get("/fault")
    async def divide() -> float:
        return 1 / 0

    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.get("/foreseen-by-none")
        with pytest.raises(ZeroDivisionError):
            await client.get("/fault")

    assert (answer.status_code, answer.json()["error_code"]) == (500, "internal_error")
    said = [one for one in caplog.records if "the disk is full" in one.getMessage()]
    assert [(one.name, one.exc_info) for one in said] == [("service.api.errors", None)]
