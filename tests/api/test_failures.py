"""Failures that the service reports: their kinds and waits, and the client's reaction."""

from pathlib import Path

import pytest

from app.api.client import Client
from app.api.errors import (
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    ServerFailedError,
)
from app.profiles.token import FileToken
from tests.api.conftest import create, read
from tests.lab import Raw, Respond, Server, Step


async def test_a_failure_has_its_kind_its_message_and_its_code(server: Server, client: Client) -> None:
    """Message and error_code come through (spec 2.8 and 7); only a 5xx leaves a write's outcome unknown."""
    for status, kind, in_doubt in (
        (400, RejectedError, False),
        (401, NotAuthorizedError, False),
        (403, ForbiddenError, False),
        (404, NotFoundError, False),
        (409, RejectedError, False),
        (429, RateLimitedError, False),
        (500, ServerFailedError, True),
        (503, ServerFailedError, True),
    ):
        server.script(Respond(status, {"message": "no such offer", "error_code": "OFFER"}))

        error = await create(client)

        assert type(error) is kind
        assert (error.message, error.error_code, error.status) == ("no such offer", "OFFER", status)  # type: ignore[attr-defined]
        assert error.may_have_been_executed is in_doubt


async def test_a_failures_status_decides_whatever_its_body(server: Server, client: Client) -> None:
    """The status alone promises that nothing was done."""
    head = b"HTTP/1.1 403 Forbidden\r\n"
    steps: list[Step] = [
        Respond(403, "<html>forbidden</html>"),
        Respond(403, {"message": ["no", "text"]}),
        Raw(head + b"Content-Length: 50\r\n\r\n{"),
        Raw(head + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"),
        Respond(403, b" " * 100_000),
    ]
    server.script(*steps)

    for step in steps:
        error = await create(client)
        assert (type(error), error.message) == (ForbiddenError, "The service answered 403 Forbidden."), step


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "999999999"}, 86_400.0),
        ({"Retry-After": "-5"}, None),
        ({}, None),
    ],
)
async def test_a_rate_limit_says_how_long_to_wait(
    server: Server, client: Client, headers: dict[str, str], wait_s: float | None
) -> None:
    """The wait may be in seconds, a date by the server's own clock, or missing."""
    server.script(*[Respond(429, {"message": "slow down"}, headers)] * 2)  # A short wait is waited out once.

    error = await read(client)

    assert isinstance(error, RateLimitedError)
    assert error.retry_after_s == wait_s


async def test_a_wait_applies_to_every_read_of_the_client(server: Server, client: Client) -> None:
    """After a 429 no reads are sent; a write that a user asked for still is."""
    server.script(Respond(429, {"message": "slow down"}, {"Retry-After": "60"}), Respond(400, {"message": "bad email"}))
    await read(client)

    with pytest.raises(RateLimitedError) as caught:
        await client.health()
    refused = await create(client)

    assert 0 < (caught.value.retry_after_s or 0) <= 60
    assert isinstance(refused, RejectedError)
    assert [request.method for request in server.requests] == ["GET", "POST"]


async def test_a_replaced_token_is_read_again(server: Server, client: Client, tmp_path: Path) -> None:
    """When the service refuses the old token, a read is sent again and a write is not; the source is rarely read."""
    file = tmp_path / "token"
    file.write_text("another-token")
    file.chmod(0o600)
    client.transport.source = FileToken(file)
    server.script(
        Respond(401, {"message": "expired"}),
        Respond(200, {"runs": [], "next_token": None}),
        Respond(401, {"message": "no"}),
        Respond(200, {"runs": [], "next_token": None}),
    )
    assert (await client.list_runs()).runs == ()
    file.write_text("a-third-token")
    refused = await create(client)
    await client.list_runs()

    assert [each.token for each in server.requests] == ["token-for-tests", *["another-token"] * 3]
    assert isinstance(refused, NotAuthorizedError)
