"""The results extension (docs/dev/api.md): its requests, its answers, and services without it."""

from collections.abc import Awaitable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from app.api.client import Client
from app.api.errors import (
    ApiError,
    NotFoundError,
    NotOfferedError,
    NotSendableError,
    RejectedError,
    UnusableAnswerError,
)
from app.api.requests import CancelRun, ResendInvitation, SayToRun, WriteRequest
from storage.records.results import LogChunk, ModelUsage, ReportedFinding, Turn
from tests.api.conftest import nothing
from tests.lab import Respond, Server

COMMIT = "4f1c" * 10
PATCH = {"Content-Type": "text/plain; charset=utf-8"}
TURNS = {"run_id": "run_1", "status": "failed", "turns": [{"number": 2, "state": "working"}, {"number": 1}]}
PLACE = {
    "Runwarden-Log-Offset": "5",
    "Runwarden-Log-Next": "8",
    "Runwarden-Log-Size": "9",
    "Runwarden-Log-Ended": "true",
}


async def test_turns_are_in_order_with_their_known_fields(client: Client, server: Server) -> None:
    """Unknown fields are ignored; an invalid commit id is dropped, since git would get it."""
    first = {
        "number": 1,
        "instructions": "go",
        "caller": "ci",
        "state": "cancelled",
        "outcome": "cancelled",
        "started_at": "2026-05-01T12:00:00Z",
        "commit": COMMIT,
        "files": 2,
        "usage": {"requests": 3, "input_tokens": 1000, "cached_tokens": 200, "output_tokens": 3, "cost_usd": 0.35},
        "findings": [
            {"path": "a.py", "line": 3, "title": "x", "severity": "dire", "id": "0"},
            {"path": "b", "line": 0},
        ],
        "mood": "fine",
    }
    server.script(Respond(200, TURNS | {"turns": [{"number": 2, "commit": "--upload-pack=x"}, first]}))
    told = await client.run_detail("run 1/x")

    assert server.requests[0].target == "/v1/external/runs/run%201%2Fx"
    began = datetime(2026, 5, 1, 12, tzinfo=UTC)
    used = ModelUsage(3, 1000, 200, 3, 0.35)
    found = ReportedFinding("a.py", 3, "x"), ReportedFinding("b", None, "")
    assert told.turns[0] == Turn(
        1, "cancelled", "go", "ci", began, outcome="cancelled", commit=COMMIT, files=2, usage=used, findings=found
    )
    assert str(told.turns[0].usage) == "1,203 tokens  $0.3500"
    assert str(replace(used, cost_usd=None)) == "1,203 tokens  cost unknown"
    listed = replace(used, cost_usd=2, unpriced_requests=1, list_prices_of="2026-11-24")
    assert str(listed) == "1,203 tokens  at least $2.00, list prices of 2026-11-24"
    assert (told.turns[1].commit, told.turns[1].usage, told.turns[1].findings) == (None, None, None)


async def test_pull_requests_are_shown_and_only_web_addresses_are_links(client: Client, server: Server) -> None:
    """What was not posted has a line with the reason; a posted status has none, and only web addresses are shown."""
    url = "https://github.example/acme/api/pull/7"
    posted = [
        {"kind": "status", "state": "posted"},
        {"kind": "pull_request", "state": "posted", "url": url, "reason": "pull request 7 is closed"},
        {"kind": "review", "state": "refused", "url": "javascript:alert(1)", "reason": "no token"},
        {"kind": "odd", "state": "waiting"},
    ]
    server.script(Respond(200, TURNS | {"postings": posted}), Respond(200, TURNS))
    told, bare = await client.run_detail("run_1"), await client.run_detail("run_1")

    assert [str(one) for one in told.notable_postings] == [
        f"pull request: {url} · pull request 7 is closed",
        "review: not posted · no token",
        "odd: not posted yet",
    ]
    assert (told.notable_postings[0].url, bare.postings) == (url, ())


async def test_logs_and_diffs_state_their_position_in_headers(client: Client, server: Server) -> None:
    """The log's offset and the diff's commits are in headers; the bytes are unchanged."""
    server.script(
        Respond(200, b"\xff\x1b\0", PLACE),
        Respond(200, b"diff --git", PATCH | {"Runwarden-Head": COMMIT, "Runwarden-Base": "main"}),
        Respond(200, b"", PATCH),
        Respond(200, {"runs": []}),
    )
    chunk = await client.run_log("run_1", 3, offset=-9, wait_s=7)
    change, whole = await client.run_diff("run_1", 2), await client.run_diff("run_1")

    with pytest.raises(UnusableAnswerError, match="not a patch"):
        await client.run_diff("run_1")

    assert chunk == LogChunk(5, 8, 9, ended=True, data=b"\xff\x1b\0")
    assert (change.head, change.base, change.patch, change.source) == (COMMIT, None, b"diff --git", "service")
    assert (whole.head, whole.patch) == (None, b"")
    assert [request.target for request in server.requests[:3]] == [
        "/v1/external/runs/run_1/turns/3/log?offset=-9&wait=7",
        "/v1/external/runs/run_1/turns/2/diff",
        "/v1/external/runs/run_1/diff",
    ]


async def test_a_log_without_its_position_is_unusable(client: Client, server: Server) -> None:
    """Following such a log would never stop, or skip lines; one that shrank starts at its end."""
    # At offset 5 the log has ended, and the answer omits its end.
    odd = (("Next", "4"), ("Next", "5"), ("Offset", "0"), ("Size", "-1"), ("Size", "9" * 99))
    for headers in ({}, *(PLACE | {f"Runwarden-Log-{name}": value} for name, value in odd)):
        server.script(Respond(200, b"x", headers))
        with pytest.raises(UnusableAnswerError):
            await client.run_log("run_1", 1, offset=5)
    server.script(Respond(200, b"", PLACE | {"Runwarden-Log-Offset": "9", "Runwarden-Log-Next": "9"}))

    assert (await client.run_log("run_1", 1, offset=50)).offset == 9


async def test_an_id_that_would_change_the_path_is_not_sent(client: Client, server: Server) -> None:
    for run_id in ("", ".", "..", "a\0b", "\ud800"):
        with pytest.raises(NotSendableError):
            await client.run_detail(run_id)
    assert server.requests == []


REFUSALS = [
    (404, "not_found", NotOfferedError),
    (405, "method_not_allowed", NotOfferedError),
    (501, "not_implemented", NotOfferedError),
    (404, "run_not_found", NotFoundError),
    (410, "log_not_kept", RejectedError),
]


async def test_a_missing_extension_differs_from_a_missing_run(client: Client, server: Server) -> None:
    """The error code of the extension's own 404 distinguishes them."""
    for status, code, kind in REFUSALS:
        server.script(Respond(status, {"message": "no", "error_code": code}))
        with pytest.raises(ApiError) as caught:
            await client.run_detail("run_1")
        assert type(caught.value) is kind, (status, code)


async def test_the_error_names_what_is_not_offered(client: Client, server: Server) -> None:
    """The error of each read and write names its subject."""

    def sent(request: WriteRequest) -> Awaitable[object]:
        return client.send(request, before_first_byte=nothing)

    for asked, what in (
        (lambda: client.run_log("run_1", 1), "results of runs"),
        (client.agents, "a list of agents"),
        (client.invitations, "invitations"),
        (client.may_create_organizations, "invitations"),
        (client.failure_facts, "questions of agents"),
        (lambda: sent(CancelRun("run_1")), "cancelling runs"),
        (lambda: sent(SayToRun("run_1", "Stop.")), "messages to runs"),
        (lambda: sent(ResendInvitation("inv_1")), "resending invitations"),
    ):
        server.script(Respond(404, {"message": "Not Found"}))
        with pytest.raises(NotOfferedError, match=rf"^This service does not offer {what}\.$"):
            await asked()
