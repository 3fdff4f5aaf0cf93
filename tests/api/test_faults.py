"""Broken connections and answers, and what the client may conclude about the request."""

import asyncio
from contextlib import aclosing

import pytest

from app.api.client import Client
from app.api.errors import ApiError, RequestTimeoutError, UnreachableError, UnusableAnswerError
from app.profiles.token import Token
from tests.api.conftest import ORGANIZATION, create, nothing, read
from tests.lab import Drip, Drop, Hang, Raw, Respond, Server, Step

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def test_a_connection_dropped_at_once_is_unreachable(server: Server, client: Client) -> None:
    """Whether the request had begun is a race; in either case the service has received none."""
    server.script(Drop("accepted"))

    error = await create(client)

    assert type(error) is UnreachableError
    assert server.requests == []


@pytest.mark.parametrize("step", [Drip(), Raw(b"HTTP/1.1 200 OK\r\nX: ", then="hang")], ids=["dripping", "half"])
async def test_the_deadline_covers_the_whole_answer(server: Server, step: Step) -> None:
    """A server that is silent or endlessly slow costs one deadline, and leaves a write's outcome unknown."""
    server.script(step)

    async with aclosing(Client(server.base_url, Token("t"), deadline_s=0.5)) as client:
        for _ in range(20):  # a busy machine may spend the deadline before the first byte
            error = await create(client)
            if not error.surely_not_sent:
                break

    server.wait_for(1)
    assert type(error) is RequestTimeoutError
    assert error.may_have_been_executed
    assert len(server.requests) == 1


LOST: list[Step] = [
    Drop("unread"),
    Drop("read"),
    Raw(HEAD + b"Content-Length: 100\r\n\r\n{"),
    Raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
    Raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
]
UNREADABLE: list[Step] = [
    Respond(200, {"organization_id": "org_1"}, {"Content-Encoding": "gzip"}),
    Drip(0, 65_536),
    Respond(200, "no JSON"),
    Respond(200, '{"organization_id": "org_1", "more": [{"deep": -Infinity}]}'),
    Respond(200, r'{"organization_id": "\ud800"}'),
    Respond(200, '{"organization_id": "org_1", "more": ' + "[" * 5000 + "]" * 5000 + "}"),
    Respond(200, {"organization_id": ""}),
    Raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    Respond(308, b"", {"Location": "http://169.254.169.254/"}),
    Respond(699, b""),
]


@pytest.mark.parametrize(
    ("step", "kind"),
    [*((step, UnreachableError) for step in LOST), *((step, UnusableAnswerError) for step in UNREADABLE)],
    ids=lambda value: str(value)[:60],
)
async def test_a_lost_or_unreadable_answer_leaves_a_write_unknown(
    server: Server, client: Client, step: Step, kind: type[ApiError]
) -> None:
    """Half an answer does not prove that nothing happened, and the request is not sent again."""
    server.script(step)

    error = await create(client)

    assert type(error) is kind
    assert error.may_have_been_executed
    assert not error.surely_not_sent
    assert len(server.requests) == (0 if step == Drop("unread") else 1)


async def test_an_answer_without_a_usable_list_is_refused_whole(server: Server, client: Client) -> None:
    """Nothing is stored of an answer without a list, without a usable next page, or that is not JSON."""
    for body in (b'{"runs": [], "next_token": 7}', b'{"runs": null}', b'{"runs": [{"run_id": "1", "cost": NaN}]}'):
        server.script(Respond(200, body))
        assert type(await read(client)) is UnusableAnswerError


async def test_a_cancelled_write_is_not_sent_again(server: Server, client: Client) -> None:
    server.script(Hang())
    task = asyncio.create_task(client.send(ORGANIZATION, before_first_byte=nothing))
    await asyncio.to_thread(server.wait_for, 1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(server.requests) == 1
