"""Every way in which a service can fail, and what the client may say of the request's fate."""

import asyncio
from dataclasses import dataclass

import pytest

from app.api.client import Client
from app.api.errors import (
    ApiError,
    Forbidden,
    NotAuthorized,
    NotFound,
    NoToken,
    NotSendable,
    RateLimited,
    Rejected,
    ServerFailed,
    TimedOut,
    Unreachable,
    UnusableAnswer,
)
from app.api.requests import CreateOrganization, StartAgent, StartRun, as_json
from app.token import Token, TokenError
from storage.records import Repository
from tests.fault_server import Drip, Drop, FaultServer, Flood, Hang, Raw, Respond, Step, free_port

ORGANIZATION = CreateOrganization("ada@example.com")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HUGE = str(2**63).encode()


async def nothing() -> None:
    """Commit without more."""


async def create(client: Client) -> ApiError:
    """The error of one attempt to create an organization."""
    with pytest.raises(ApiError) as caught:
        await client.create_organization(ORGANIZATION, before_first_byte=nothing)
    return caught.value


async def read(client: Client) -> ApiError:
    """The error of one look at the runs."""
    with pytest.raises(ApiError) as caught:
        await client.list_runs()
    return caught.value


async def test_a_connection_that_is_dropped_at_once_is_lost(server: FaultServer, client: Client) -> None:
    """Whether the request had begun depends on who was faster; the service has seen none in either case."""
    server.script(Drop("accepted"))

    error = await create(client)

    assert type(error) is Unreachable
    assert server.requests == []


@pytest.mark.parametrize("when", ["unread", "read"])
async def test_a_dropped_connection_leaves_a_write_in_doubt(server: FaultServer, client: Client, when: str) -> None:
    """Once the request has begun, a lost connection says nothing about its effect."""
    server.script(Drop(when))  # type: ignore[arg-type]

    error = await create(client)

    assert isinstance(error, Unreachable)
    assert error.may_have_been_executed
    assert not error.surely_not_sent
    assert len(server.requests) == (1 if when == "read" else 0)


@pytest.mark.parametrize(
    "step",
    [
        Raw(b""),
        Raw(HEAD + b"Content-Length: 100\r\n\r\n{"),
        Raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
        Raw(HEAD + b"Content-Length: 100\r\n\r\n{", then="reset"),
        Raw(b"HTTP/1.1 200"),
        Raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    ],
    ids=["closed", "truncated", "chunk truncated", "reset in body", "half a head", "not HTTP"],
)
async def test_an_answer_that_breaks_off_is_a_lost_connection(server: FaultServer, client: Client, step: Step) -> None:
    """Half an answer is none."""
    server.script(step)

    error = await create(client)

    assert type(error) is Unreachable
    assert error.may_have_been_executed


@pytest.mark.parametrize(
    "step",
    [
        Hang(),
        Drip(),
        Raw(b"HTTP/1.1 200 OK\r\nX: ", then="hang"),
        Raw(HEAD + b"Content-Length: 9\r\n\r\n{", then="hang"),
    ],
    ids=["silent", "dripping", "half a head", "half a body"],
)
async def test_the_deadline_covers_the_whole_answer(server: FaultServer, step: Step) -> None:
    """A server that is silent, or slow for ever, costs one deadline and leaves a write in doubt."""
    server.script(step)

    async with Client(server.base_url, Token("t"), deadline_s=0.2) as client:
        error = await create(client)

    assert type(error) is TimedOut
    assert error.may_have_been_executed
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "step",
    [
        Respond(200, {"organization_id": "org_1"}, {"Content-Encoding": "gzip"}),
        Respond(200, {"organization_id": "org_1"}, {"Content-Encoding": "br"}),
        Flood(),
        Respond(200, "no JSON"),
        Respond(200, b'{"organization_id": "\xff"}'),
        Respond(200, '{"organization_id": "org_1", "more": NaN}'),
        Respond(200, '{"organization_id": "org_1", "more": [{"deep": -Infinity}]}'),
        Respond(200, '{"organization_id": "org_1", "more": 1e999}'),
        Respond(200, r'{"organization_id": "\ud800"}'),
        Respond(200, '{"organization_id": "org_1", "more": ' + "[" * 5000 + "]" * 5000 + "}"),
        Respond(200, []),
        Respond(200, {"organization_id": ""}),
        Respond(200, {"organization_name": "nameless"}),
        Respond(201, b""),
        Raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
        Respond(302, b"", {"Location": "https://elsewhere.example/"}),
        Respond(307, b"", {"Location": "/v1/external/organizations"}),
        Respond(308, b"", {"Location": "http://169.254.169.254/"}),
        Respond(699, b""),
    ],
    ids=str,
)
async def test_a_success_that_cannot_be_read_leaves_a_write_in_doubt(
    server: FaultServer, client: Client, step: Step
) -> None:
    """What does not read as the spec says is no proof that nothing happened; nothing is sent a second time."""
    server.script(step)

    error = await create(client)

    assert type(error) is UnusableAnswer
    assert error.may_have_been_executed
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"runs": [], "total_count": ' + HUGE + b"}",
        b'{"runs": [], "next_token": 7}',
        b'{"runs": null}',
        b'{"runs": [{"run_id": "run_1", "status": "queued"}]}',
        b'{"runs": [{"run_id": 1, "status": "queued", "repository": {"platform": "github"}}]}',
    ],
)
async def test_a_list_that_breaks_the_spec_is_refused_whole(server: FaultServer, client: Client, body: bytes) -> None:
    """A page is taken whole or not at all: a part of it would pass for all of it."""
    server.script(Respond(200, body))

    assert type(await read(client)) is UnusableAnswer


@pytest.mark.parametrize(
    ("status", "kind", "in_doubt"),
    [
        (400, Rejected, False),
        (401, NotAuthorized, False),
        (403, Forbidden, False),
        (404, NotFound, False),
        (409, Rejected, False),
        (422, Rejected, False),
        (429, RateLimited, False),
        (500, ServerFailed, True),
        (503, ServerFailed, True),
        (599, ServerFailed, True),
    ],
)
async def test_a_failure_has_its_kind_its_message_and_its_code(
    server: FaultServer, client: Client, status: int, kind: type[ApiError], *, in_doubt: bool
) -> None:
    """Spec 2.8 and 7: the message and error_code come through; only a 5xx leaves a write in doubt."""
    server.script(Respond(status, {"message": "no such offer", "error_code": "OFFER"}))

    error = await create(client)

    assert type(error) is kind
    assert (error.message, error.error_code, error.status) == ("no such offer", "OFFER", status)  # type: ignore[attr-defined]
    assert error.may_have_been_executed is in_doubt


@pytest.mark.parametrize(
    "step",
    [
        Respond(403, "<html>forbidden</html>"),
        Respond(403, {"message": ["no", "text"]}),
        Raw(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 50\r\n\r\n{"),
        Raw(b"HTTP/1.1 403 Forbidden\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"),
        Respond(403, b" " * 100_000),
    ],
    ids=["HTML", "odd message", "truncated", "encoded", "large"],
)
async def test_a_failure_counts_whatever_its_body(server: FaultServer, client: Client, step: Step) -> None:
    """The status alone is a promise that nothing was done."""
    server.script(step)

    error = await create(client)

    assert type(error) is Forbidden
    assert error.message == "The service answered 403 Forbidden."


async def test_a_failure_never_shows_the_token(server: FaultServer, client: Client) -> None:
    """A service that repeats the token does not get it onto the screen."""
    server.script(Respond(401, {"message": "bad token token-for-tests", "error_code": "token-for-tests"}))

    error = await read(client)

    assert "token-for-tests" not in str(error)
    assert error.error_code == "[token]"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "17"}, 17.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "999999999"}, 86_400.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({}, None),
    ],
)
async def test_a_rate_limit_says_how_long_to_wait(
    server: FaultServer, client: Client, headers: dict[str, str], wait_s: float | None
) -> None:
    """Seconds, a date (by the server's own clock), or nothing at all."""
    server.script(Respond(429, {"message": "slow down"}, headers))

    error = await read(client)

    assert isinstance(error, RateLimited)
    assert error.retry_after_s == wait_s


async def test_a_wait_holds_for_every_read_of_the_client(server: FaultServer, client: Client) -> None:
    """After a 429 the service is left in peace; a write, which a person asked for, still goes out."""
    server.script(Respond(429, {"message": "slow down"}, {"Retry-After": "60"}), Respond(400, {"message": "bad email"}))
    await read(client)

    with pytest.raises(RateLimited) as caught:
        await client.health()
    refused = await create(client)

    assert caught.value.retry_after_s == pytest.approx(60, abs=5)
    assert isinstance(refused, Rejected)
    assert [request.method for request in server.requests] == ["GET", "POST"]


async def test_nobody_listening_means_that_nothing_was_sent() -> None:
    """A refused connection is the one failure of the network that leaves no doubt."""
    commits: list[str] = []

    async def commit() -> None:
        commits.append("sending")

    async with Client(f"http://127.0.0.1:{free_port()}/v1", Token("t")) as client:
        with pytest.raises(Unreachable) as caught:
            await client.create_organization(ORGANIZATION, before_first_byte=commit)

    assert caught.value.surely_not_sent
    assert not caught.value.may_have_been_executed
    assert commits == []


async def test_tls_that_is_none_means_that_nothing_was_sent(server: FaultServer) -> None:
    """A failed handshake comes before the request."""
    server.script(Drop("unread"))
    async with Client(server.base_url.replace("http:", "https:"), Token("t"), deadline_s=5) as client:
        error = await create(client)

    assert isinstance(error, Unreachable)
    assert error.surely_not_sent
    assert server.requests == []


@pytest.mark.parametrize("reason", [RuntimeError("disk full"), TimeoutError("busy"), OSError("gone")])
async def test_a_commit_that_fails_sends_nothing(server: FaultServer, client: Client, reason: Exception) -> None:
    """What cannot be written down first is not sent, and the reason comes through as it is."""

    async def refuse() -> None:
        raise reason

    with pytest.raises(type(reason)) as caught:
        await client.create_organization(ORGANIZATION, before_first_byte=refuse)

    assert caught.value is reason
    server.script(Respond(400, {"message": "x"}))
    await create(client)
    assert len(server.requests) == 1


async def test_a_commit_that_takes_too_long_sends_nothing(server: FaultServer) -> None:
    """The deadline may pass while the ledger writes: then no byte has left."""

    async def forever() -> None:
        await asyncio.Event().wait()

    async with Client(server.base_url, Token("t"), deadline_s=0.2) as client:
        with pytest.raises(TimedOut) as caught:
            await client.create_organization(ORGANIZATION, before_first_byte=forever)

    assert caught.value.surely_not_sent
    assert server.requests == []


async def test_the_commit_comes_before_the_first_byte_and_once(server: FaultServer, client: Client) -> None:
    """When the commit runs, the server has seen nothing of the request."""
    seen: list[int] = []

    async def commit() -> None:
        seen.append(len(server.requests))

    server.script(Respond(400, {"message": "x"}))
    with pytest.raises(Rejected):
        await client.create_organization(ORGANIZATION, before_first_byte=commit)

    assert seen == [0]


async def test_a_cancelled_write_is_not_sent_again(server: FaultServer, client: Client) -> None:
    """Cancellation comes through as itself; the request went out once."""
    server.script(Hang())
    task = asyncio.create_task(client.create_organization(ORGANIZATION, before_first_byte=nothing))
    await asyncio.to_thread(server.wait_for, 1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(server.requests) == 1


@dataclass(frozen=True)
class _Elsewhere:
    """A request whose path leaves the API."""

    path: str


@pytest.mark.parametrize(
    "path",
    ["/external/../admin", "//evil.example/x", "/external/runs?x=1", "@evil.example/", "", "/a b", "/external/é"],
)
async def test_a_path_that_would_leave_the_api_is_not_sent(server: FaultServer, client: Client, path: str) -> None:
    """The token goes to the paths of the API and nowhere else."""
    with pytest.raises(NotSendable) as caught:
        await client.send(_Elsewhere(path), body_json="{}", before_first_byte=nothing)  # type: ignore[arg-type]

    assert caught.value.surely_not_sent
    assert server.requests == []


@pytest.mark.parametrize("name", ["..", ".", "", "a\nb", "\ud800"])
async def test_an_agent_that_cannot_be_named_is_not_sent(server: FaultServer, client: Client, name: str) -> None:
    """A name that would change the path never reaches the wire."""
    request = StartAgent(name, "acme/api")

    with pytest.raises(NotSendable):
        await client.send(request, body_json=as_json(request), before_first_byte=nothing)

    assert server.requests == []


@pytest.mark.parametrize("name", ["../runs", "a/b", "%2e%2e", "naïve agent", "?x=1#y", "a;b"])
async def test_an_odd_agent_name_stays_one_segment(server: FaultServer, client: Client, name: str) -> None:
    """Whatever a name holds, it is one part of the path."""
    server.script(Respond(201, {"execution_id": "exec_1"}))

    await client.start_agent(StartAgent(name, "acme/api"), before_first_byte=nothing)

    before, _, rest = server.requests[0].target.partition("/agents/")
    assert before == "/v1/external"
    assert rest.count("/") == 1
    assert rest.endswith("/runs")


async def test_text_that_is_not_unicode_is_not_sent(server: FaultServer, client: Client) -> None:
    """A lone surrogate in the instructions is refused before the commit."""
    request = StartRun("broken \ud800", Repository.parse("acme/api"))

    with pytest.raises(NotSendable) as caught:
        await client.start_run(request, before_first_byte=nothing)

    assert caught.value.surely_not_sent
    assert server.requests == []


@pytest.mark.parametrize("token", [None, TokenError("The token is empty.", cure="Create one.")])
async def test_without_a_token_nothing_is_asked(server: FaultServer, token: TokenError | None) -> None:
    """The error says why there is none."""
    async with Client(server.base_url, token) as client:
        with pytest.raises(NoToken) as caught:
            await client.list_runs()

    assert caught.value.surely_not_sent
    assert str(token or "runwarden token check") in str(caught.value)
    assert server.requests == []


async def test_after_five_failures_one_request_at_a_time_finds_out(server: FaultServer, client: Client) -> None:
    """While the probe is under way all others fail at once; its success ends that."""
    for _ in range(5):
        server.script(Respond(503, {"message": "down"}))
        await read(client)
    server.script(Hang())
    probe = asyncio.create_task(client.list_runs())
    await asyncio.to_thread(server.wait_for, 6)

    other = await read(client)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    server.script(Respond(200, {"runs": []}), Respond(200, {"runs": []}))
    pages = [await client.list_runs() for _ in range(2)]

    assert isinstance(other, Unreachable)
    assert other.surely_not_sent
    assert [page.runs for page in pages] == [(), ()]
    assert len(server.requests) == 8
