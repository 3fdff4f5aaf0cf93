"""A poll costs what is active and new, however long the history and whatever the service's habits."""

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from app.engine import Engine
from tests.sync.conftest import Desk
from tests.sync.peer import SECOND, Archive

HOUR = timedelta(hours=1)
MILLION = 1_000_000


def at_rest(desk: Desk) -> int:
    """How many requests a poll of runs and health costs once nothing new is learnt."""
    desk.peer.limit = (200, 3_600.0)
    assert desk.poll(4) == [None] * 4
    desk.peer.asked()
    desk.within(Engine.refresh)
    return desk.peer.asked()


def active(desk: Desk, count: int = 20) -> None:
    desk.peer.fill(count, "working", until=desk.peer.now - 2 * HOUR)


def test_a_million_runs_with_three_final_statuses(desk: Desk) -> None:
    """20 active runs: the newest page, a sweep each for queued and working, and health."""
    desk.peer.archive = Archive(range(MILLION), newest=desk.peer.now - HOUR, every=SECOND)
    active(desk)

    assert at_rest(desk) == 4


@pytest.mark.parametrize("cancelled", [10, 3_000])
def test_a_third_final_status(desk: Desk, cancelled: int) -> None:
    """Before anything is learnt, an unknown status costs one page."""
    desk.peer.archive = Archive(range(cancelled), newest=desk.peer.now - HOUR, statuses=("cancelled",))
    active(desk)
    desk.poll()
    desk.peer.asked()
    desk.poll()

    assert desk.peer.asked() <= 5


@pytest.mark.parametrize(("polls", "others"), [(0, 0), (1, 5), (0, 150), (1, 150)])
def test_waiting_for_a_run_that_is_cancelled(desk: Desk, polls: int, others: int) -> None:
    """`runs wait` ends when the run does, whatever the service calls it, on a machine that has seen nothing yet too."""
    desk.peer.fill(others, "cancelled", until=desk.peer.now - HOUR)
    desk.peer.put("run", "working")
    desk.poll(polls)
    desk.peer.before(3, lambda: desk.peer.move("run", "cancelled"))

    assert desk.run("runs", "wait", "run", "--timeout", "8s", "--json").code == 1


def test_a_status_that_the_filter_refuses(desk: Desk) -> None:
    """A poll succeeds, and sees the working runs."""
    desk.peer.filtered_statuses = {"queued", "working", "completed", "failed"}
    desk.peer.put("run_odd", "cancelled", created=desk.peer.now - HOUR)
    active(desk)

    assert desk.poll(2) == [None, None]
    assert not desk.missing()


def test_times_that_cannot_be_read(desk: Desk) -> None:
    """What is held already is recognized by its id."""
    desk.peer.has_readable_times = False
    desk.peer.archive = Archive(range(5_000), newest=desk.peer.now - HOUR)
    active(desk)

    assert at_rest(desk) <= 5


@pytest.mark.parametrize("paging", ["key", "offset"])
@pytest.mark.parametrize("endless", ["same", "stays", "around"])
def test_a_cursor_that_never_ends(desk: Desk, endless: Any, paging: Any) -> None:
    """A walk that shows nothing any more that it has not shown before stops; the runs are all here."""
    desk.peer.endless, desk.peer.paging = endless, paging
    desk.peer.fill(250)
    stop_at(desk, 60)
    desk.poll()
    for _ in range(3):
        desk.run("runs", "list", "--all", "--json")

    assert desk.peer.asked() < 60
    assert not desk.missing()


def stop_at(desk: Desk, requests: int) -> None:
    """The cursor ends after so many requests after all, so that a test that fails ends too."""

    def end() -> None:
        desk.peer.endless = ""

    desk.peer.before(requests, end)


def test_ten_processes_cost_what_one_costs(desk: Desk) -> None:
    """Consoles on one data folder: one of them polls, every half a second for as long as they are open."""
    desk.peer.fill(150)
    desk.poll(3)
    desk.peer.asked()
    desk.poll()
    cost = desk.peer.asked()
    asked, open_s = asyncio.run(_consoles(desk, 10))

    assert asked <= 1.3 * cost * (open_s / 0.5 + 1) + 4


async def _consoles(desk: Desk, count: int) -> tuple[int, float]:
    """How many requests so many consoles send in a few seconds, and in how many."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(desk.engine(runs_s=0.5, health_s=0.5)) for _ in range(count)]
        desk.peer.asked()
        began = time.monotonic()
        for engine in engines:
            engine.start_polling()
        await asyncio.sleep(2)
    return desk.peer.asked(), time.monotonic() - began
