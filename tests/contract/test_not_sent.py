"""When nothing is sent, the client says so, and it is true."""

import asyncio
from dataclasses import dataclass

import pytest

from app.api.client import Client
from app.api.errors import NoTokenError, NotSendableError, RejectedError, RequestTimeoutError, UnreachableError
from app.api.requests import StartAgent, StartRun
from app.profiles.token import Token, TokenError
from storage.records import Repository
from tests.contract.conftest import ORGANIZATION, create, nothing
from tests.lab import Drop, Respond, Server, free_port


async def test_no_listener_means_that_nothing_was_sent() -> None:
    """A refused connection is the one failure of the network that leaves no doubt."""
    commits: list[str] = []

    async def commit() -> None:
        commits.append("sending")

    async with Client(f"http://127.0.0.1:{free_port()}/v1", Token("t")) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.send(ORGANIZATION, before_first_byte=commit)

    assert caught.value.surely_not_sent
    assert not caught.value.may_have_been_executed
    assert commits == []


async def test_tls_that_is_none_means_that_nothing_was_sent(server: Server) -> None:
    """A failed handshake comes before the request."""
    server.script(Drop("unread"))
    async with Client(server.base_url.replace("http:", "https:"), Token("t"), deadline_s=60) as client:
        error = await create(client)

    assert isinstance(error, UnreachableError)
    assert error.surely_not_sent
    assert server.requests == []


@pytest.mark.parametrize("reason", [RuntimeError("disk full"), TimeoutError("busy"), OSError("gone")])
async def test_a_commit_that_fails_sends_nothing(server: Server, client: Client, reason: Exception) -> None:
    """What cannot be written down first is not sent, and the reason comes through as it is."""

    async def refuse() -> None:
        raise reason

    with pytest.raises(type(reason)) as caught:
        await client.send(ORGANIZATION, before_first_byte=refuse)

    assert caught.value is reason
    server.script(Respond(400, {"message": "x"}))
    await create(client)
    assert len(server.requests) == 1


async def test_a_commit_that_takes_too_long_sends_nothing(server: Server) -> None:
    """The deadline may pass while the ledger writes: then no byte has left."""

    async def forever() -> None:
        await asyncio.Event().wait()

    async with Client(server.base_url, Token("t"), deadline_s=0.2) as client:
        with pytest.raises(RequestTimeoutError) as caught:
            await client.send(ORGANIZATION, before_first_byte=forever)

    assert caught.value.surely_not_sent
    assert server.requests == []


async def test_the_commit_comes_before_the_first_byte_and_once(server: Server, client: Client) -> None:
    """When the commit runs, the server has seen nothing of the request."""
    seen: list[int] = []

    async def commit() -> None:
        seen.append(len(server.requests))

    server.script(Respond(400, {"message": "x"}))
    with pytest.raises(RejectedError):
        await client.send(ORGANIZATION, before_first_byte=commit)

    assert seen == [0]


@dataclass(frozen=True)
class _Elsewhere:
    """A request whose path leaves the API."""

    path: str
    kind: str = "run.start"


@pytest.mark.parametrize(
    "path",
    ["/external/../admin", "//evil.example/x", "/external/runs?x=1", "@evil.example/", "", "/a b", "/external/é"],
)
async def test_a_path_that_would_leave_the_api_is_not_sent(server: Server, client: Client, path: str) -> None:
    """The token goes to the paths of the API and nowhere else."""
    with pytest.raises(NotSendableError) as caught:
        await client.send(_Elsewhere(path), body_json="{}", before_first_byte=nothing)  # type: ignore[arg-type]

    assert caught.value.surely_not_sent
    assert server.requests == []


@pytest.mark.parametrize(
    "request_",
    [
        *(StartAgent(name, "acme/api") for name in ("..", ".", "", "a\nb", "\ud800")),
        StartRun("broken \ud800", Repository.parse("acme/api")),
    ],
    ids=ascii,
)
async def test_text_that_cannot_go_over_the_wire_is_not_sent(
    server: Server, client: Client, request_: StartAgent | StartRun
) -> None:
    """A name that would change the path, and a lone surrogate, are refused before the commit."""
    with pytest.raises(NotSendableError) as caught:
        await client.send(request_, body_json=None, before_first_byte=nothing)

    assert caught.value.surely_not_sent
    assert server.requests == []


@pytest.mark.parametrize("name", ["../runs", "a/b", "%2e%2e", "naïve agent", "?x=1#y", "a;b"])
async def test_an_odd_agent_name_stays_one_segment(server: Server, client: Client, name: str) -> None:
    """Whatever a name holds, it is one part of the path."""
    server.script(Respond(201, {"execution_id": "exec_1"}))

    await client.send(StartAgent(name, "acme/api"), before_first_byte=nothing)

    before, _, rest = server.requests[0].target.partition("/agents/")
    assert before == "/v1/external"
    assert rest.count("/") == 1
    assert rest.endswith("/runs")


@pytest.mark.parametrize("token", [None, TokenError("The token is empty.", cure="Create one.")])
async def test_without_a_token_nothing_is_asked(server: Server, token: TokenError | None) -> None:
    """The error says why there is none."""
    async with Client(server.base_url, token) as client:
        with pytest.raises(NoTokenError) as caught:
            await client.list_runs()

    assert caught.value.surely_not_sent
    assert str(token or "runwarden token check") in str(caught.value)
    assert server.requests == []
