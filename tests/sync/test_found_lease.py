"""Of several processes the one that can poll does."""

import asyncio
from collections.abc import Sequence

import pytest

from app.api.errors import ApiError
from app.events import Event, LinkChanged
from storage.records import LinkState
from tests.sync.conftest import Desk
from tests.sync.peer import Asked
from tests.waiting import until


async def _first_answers(desk: Desk, *tokens: str) -> int:
    """Consoles start one after the other; how many requests are answered well in the seconds after that."""
    async with desk.engine(token=tokens[0], runs_s=1) as first, desk.engine(token=tokens[1], runs_s=1) as second:
        first.start_polling()
        await until(lambda: len(desk.peer.log) >= 2)
        second.start_polling()
        await until(lambda: len(_answered(desk)) >= 8)
    return len(_answered(desk))


def _answered(desk: Desk) -> list[Asked]:
    return [asked for asked in desk.peer.log if asked.status == 200]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_refresh_beside_a_working_poller(desk: Desk, status: int) -> None:
    """A console or a command with an expired token is told so itself; for the others the link is as it was."""
    desk.peer.refused["expired"] = status
    desk.peer.fill(5)
    told: list[Event] = []
    links = asyncio.run(_refused(desk, told))

    assert [link.error_kind for link in links] == [None, None]
    assert [
        event.own_failure.http_status for event in told if isinstance(event, LinkChanged) and event.own_failure
    ] == [status] * 2


async def _refused(desk: Desk, told: list[Event]) -> Sequence[LinkState]:
    """The state of the link after runs and health were asked for in vain, while another process polls."""
    async with desk.engine(token="good") as poller, desk.engine(token="expired") as other:
        poller.start_polling()
        await until(lambda: len(_answered(desk)) >= 4)
        other.subscribe(told.append)
        for refresh in (other.runs.refresh, other.health.refresh):
            with pytest.raises(ApiError):
                await refresh()
        return await poller.cache.links()


def test_a_refused_refresh_of_the_only_process(desk: Desk) -> None:
    """Then it is the state of the link."""
    desk.peer.refused["test-token"] = 401
    desk.poll()

    assert desk.within(lambda engine: engine.cache.links())[0].error_kind == "not_authorized"


def test_the_link_says_what_the_working_poller_sees(desk: Desk) -> None:
    """The refusal of one process's token is not the state of the link for the others."""
    desk.peer.refused["expired"] = 401
    desk.peer.fill(5)
    asyncio.run(_first_answers(desk, "expired", "good"))
    links = desk.within(lambda engine: engine.cache.links())

    assert [link.error_kind for link in links] == [None, None]
