"""The client reports that nothing was sent, and only if that is certain."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from app.api.client import Client
from app.api.errors import NoTokenError, NotSendableError, RejectedError, UnreachableError
from app.api.requests import CancelRun, StartAgent, StartRun
from app.profiles.token import Token, TokenError
from storage.records import Repository
from tests.api.conftest import ORGANIZATION, create, nothing
from tests.lab import Drop, Respond, Server, free_port


async def test_a_refused_connection_or_handshake_means_nothing_was_sent(server: Server) -> None:
    """A refused connection or handshake is the only network failure with a certain outcome."""
    commits: list[str] = []

    async def commit() -> None:
        commits.append("sending")

    async with aclosing(Client(f"http://127.0.0.1:{free_port()}/v1", Token("t"))) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.send(ORGANIZATION, before_first_byte=commit)
    # A failed TLS handshake comes before the request as well.
    server.script(Drop("unread"))
    async with aclosing(Client(server.base_url.replace("http:", "https:"), Token("t"), deadline_s=60)) as client:
        of_tls = await create(client)

    assert isinstance(of_tls, UnreachableError)
    assert (of_tls.surely_not_sent, caught.value.surely_not_sent) == (True, True)
    assert not caught.value.may_have_been_executed
    assert (commits, server.requests) == ([], [])


async def test_the_commit_happens_once_before_the_first_byte(server: Server, client: Client) -> None:
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


PATHS = ("/external/../admin", "//evil.example/x", "/external/runs?x=1", "@evil.example/", "", "/a b", "/external/é")
UNSENDABLE: list[Any] = [
    *((_Elsewhere(path), "{}") for path in PATHS),
    *((StartAgent(name, "acme/api"), None) for name in ("..", ".", "", "a\nb", "\ud800")),
    *((CancelRun(run_id), None) for run_id in ("", ".", "..", "a\0b", "\ud800")),
    (StartRun("broken \ud800", Repository.parse("acme/api")), None),
]


async def test_a_request_outside_the_api_or_unencodable_is_not_sent(server: Server, client: Client) -> None:
    """The token only goes to paths of the API; any other request is refused before it is recorded."""
    for request, body in UNSENDABLE:
        with pytest.raises(NotSendableError) as caught:
            await client.send(request, body_json=body, before_first_byte=nothing)
        assert caught.value.surely_not_sent
    assert server.requests == []


async def test_an_odd_agent_name_stays_one_segment(server: Server, client: Client) -> None:
    for name in ("../runs", "a/b", "%2e%2e", "naïve agent", "?x=1#y", "a;b"):
        server.script(Respond(201, {"execution_id": "exec_1"}))
        await client.send(StartAgent(name, "acme/api"), before_first_byte=nothing)

        before, _, rest = server.requests[-1].target.partition("/agents/")
        assert (before, rest.count("/"), rest.endswith("/runs")) == ("/v1/external", 1, True)


@pytest.mark.parametrize("token", [None, TokenError("The token is empty.", fix="Create one.")])
async def test_nothing_is_sent_without_a_token(server: Server, token: TokenError | None) -> None:
    async with aclosing(Client(server.base_url, token)) as client:
        with pytest.raises(NoTokenError) as caught:
            await client.list_runs()

    assert caught.value.surely_not_sent
    assert str(token or "runwarden token check") in str(caught.value)
    assert server.requests == []
