"""A poll costs what is active and new, however long the history and whatever the service's habits."""

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from app.engine import Engine
from storage.values import utc_now
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


@pytest.mark.parametrize("shows_times", [True, False])
def test_filters_that_are_ignored(desk: Desk, shows_times: bool) -> None:
    """20 active runs far below page 1, and no way to ask for them: a poll costs a few pages."""
    desk.peer.has_status_filter, desk.peer.date_filter = False, "ignored"
    desk.peer.has_readable_times = shows_times
    desk.peer.archive = Archive(range(5_000), newest=desk.peer.now - 3 * HOUR)
    active(desk)
    desk.poll()
    desk.peer.fill(300, every=SECOND)

    assert at_rest(desk) <= 10


@pytest.mark.parametrize("local", [None, 5.5 * HOUR])
@pytest.mark.parametrize("date_filter", ["created", "updated", "ignored"])
def test_active_runs_where_the_status_is_ignored(desk: Desk, date_filter: Any, local: timedelta | None) -> None:
    """31 of them below the head are all confirmed, and a poll costs a few pages, of a new process too."""
    desk.peer.has_status_filter, desk.peer.date_filter, desk.peer.local_offset = False, date_filter, local
    desk.peer.archive = Archive(range(20_000), newest=desk.peer.now - 3 * HOUR)
    desk.peer.fill(31, "working", until=desk.peer.now - 2 * HOUR)
    desk.poll()
    desk.peer.fill(300, every=SECOND)
    desk.poll(3)
    desk.peer.asked()
    desk.poll()

    assert desk.peer.asked() <= 8
    working = [run["observed"]["state"] for run in desk.held().values() if run["status"] == "working"]
    assert working == ["current"] * 31


def test_an_ignored_status_is_looked_at_again(desk: Desk) -> None:
    """After a day: a service may have been mended."""
    desk.peer.has_status_filter = False
    desk.peer.archive = Archive(range(500), newest=desk.peer.now - HOUR)
    desk.poll(2)
    desk.peer.has_status_filter = True
    swept = []
    for days in (0, 2):
        desk.peer.log.clear()
        desk.within(lambda engine: engine.runs.refresh(), clock=lambda days=days: utc_now() + timedelta(days=days))
        swept.append([asked.query["status"] for asked in desk.peer.log if "status" in asked.query][:2])

    assert swept == [[], ["queued", "working"]]


def test_one_run_that_has_just_moved_is_no_ignored_status(desk: Desk) -> None:
    """The only queued run is working by the time it is shown."""
    desk.peer.fill(150)
    desk.peer.put("run", "queued", created=desk.peer.now - 9 * HOUR)
    desk.peer.runs["run"].fields["status"] = "working"
    desk.poll(2)
    desk.peer.log.clear()
    desk.poll()

    assert [asked.query["status"] for asked in desk.peer.log if "status" in asked.query] == ["queued", "working"]


def test_an_endless_list_without_times_is_walked_once_a_day(desk: Desk) -> None:
    """By the process with the lease, or the next one: unless a head says that runs were missed."""
    desk.peer.endless, desk.peer.has_readable_times = "around", False
    desk.peer.fill(400)
    costs = []
    for days, new in ((0, 0), (0, 0), (2, 0), (2, 0), (2, 150)):
        desk.peer.fill(new)
        later: dict[str, Any] = {"clock": lambda days=days: utc_now() + timedelta(days=days), "first_runs": 200}
        desk.poll(**later)
        desk.peer.asked()
        desk.within(_worked, **later)
        costs.append(desk.peer.asked() > 0)

    assert costs == [True, False, True, False, True]
    assert not desk.missing()


async def _worked(engine: Engine) -> None:
    for _ in range(3):
        await engine.backfill.work()


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
