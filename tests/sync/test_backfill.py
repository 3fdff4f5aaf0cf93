"""Fetching what history is missing, from a service that the test scripts."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.api.budget import Priority
from app.api.errors import UnreachableError
from app.config import HistorySettings
from app.events import BackfillMoved, Event
from app.sync.backfill import Backfill
from app.sync.windows import PARALLEL
from storage.cache import Cache
from tests.service_process import ROOT
from tests.sync.conftest import Desk, ended, held
from tests.sync.peer import MINUTE, Answer, Peer
from tests.waiting import until

HOUR = timedelta(hours=1)


async def test_everything_that_the_configuration_names_is_fetched(history: Peer, desk: Desk) -> None:
    """After it, the cache holds the whole list, says so, and there is nothing left to do."""
    async with desk.begun() as engine:
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        assert (await engine.cache.coverage()).whole is False
        assert (await engine.cache.coverage()).gaps[0].before < history.now - timedelta(days=29)
        history.asked()
        assert await engine.backfill.run()
        assert history.asked() == 0
        assert engine.backfill.progress.phase == "done"


async def test_at_rest_it_looks_once_for_what_is_missing(
    history: Peer, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks every few seconds for as long as a console runs, and shares no progress that there is not."""
    async with desk.begun() as engine:
        assert await engine.backfill.run()
        looked: list[Cache] = []
        coverage = Cache.coverage
        monkeypatch.setattr(Cache, "coverage", lambda cache: looked.append(cache) or coverage(cache))

        await engine.backfill.work()

        assert len(looked) == 3


async def test_what_a_person_waits_for_has_a_persons_priority(history: Peer, desk: Desk) -> None:
    """The command in the foreground asks as a person does, also while the background is paused."""
    async with desk.begun() as engine:
        sent = engine.client.budget.sent
        assert await engine.backfill.run(days=1 / 24)
        assert sent[Priority.BACKFILL] > 0
        before = dict(sent)
        await engine.backfill.pause()
        assert await engine.backfill.run(is_asked=True)

        assert sent == before | {Priority.ASKED: sent[Priority.ASKED]}
        assert sent[Priority.ASKED] > before[Priority.ASKED]


async def test_history_ends_at_the_configured_age(history: Peer, desk: Desk) -> None:
    """What is older than that stays with the service, and the cache says from when on it is complete."""
    async with desk.begun() as engine:
        assert await engine.backfill.run(days=1 / 24)

        assert 60 <= await held(engine) <= 60 + 2 * 20
        since = (await engine.cache.coverage()).complete_since
        assert since is not None
        assert since <= history.now - HOUR + MINUTE


async def test_history_ends_at_the_configured_number(history: Peer, desk: Desk) -> None:
    """A busy organization does not fill the disk."""
    async with desk.begun() as engine:
        assert await Backfill(engine.runs, engine.client, engine.doorbell.ring, HistorySettings(runs=200)).run()

        assert 200 <= await held(engine) <= 220


async def test_a_failure_in_the_middle_costs_nothing_that_came_before(history: Peer, desk: Desk) -> None:
    """What was fetched is not asked for again."""
    async with desk.begun() as engine:
        history.before(40, lambda: "reset")
        with pytest.raises(UnreachableError):
            await engine.backfill.run()
        assert await held(engine) > 300
        history.asked()
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        # Windows begin anew in each gap, and small ones are seldom full.
        assert history.asked() < 3 * 1_000 / 20


async def test_a_failure_in_the_background_is_waited_out_and_told(history: Peer, desk: Desk) -> None:
    """The progress says why it waits and until when; the next look goes on."""
    async with desk.begun() as engine:
        history.before(5, lambda: "reset")
        assert await engine.backfill.work() == 5

        assert engine.backfill.progress.phase == "waiting"
        assert engine.backfill.progress.why == "unreachable"
        assert engine.backfill.progress.until is not None


async def test_a_pause_holds_for_every_process_and_ends_where_it_began(history: Peer, desk: Desk) -> None:
    """While it is paused nothing is asked; afterwards it goes on."""
    async with desk.begun() as engine:
        await engine.backfill.pause()
        async with desk.engine(page_size=20) as other:
            history.asked()
            await other.backfill.work()
            assert other.backfill.progress.phase == "paused"
            assert history.asked() == 0
            await other.backfill.resume()
        await engine.backfill.work()

        assert await held(engine) == 1_000


async def test_a_pause_takes_effect_at_once(history: Peer, desk: Desk) -> None:
    """No more is asked for than what was under way."""
    history.latency_s = 0.01
    async with desk.begun() as engine:
        filling = asyncio.create_task(engine.backfill.run())
        await until(lambda: engine.backfill.progress.done_runs >= 100)
        await engine.backfill.pause()
        assert not await filling
        count = await held(engine)

        assert count < 1_000
        assert engine.backfill.progress.phase == "paused"
        assert not await engine.backfill.run()
        assert await held(engine) == count


async def test_progress_is_told_while_it_runs(history: Peer, desk: Desk) -> None:
    """How many came, about how many there will be, how far back everything is held."""
    history.latency_s = 0.05
    events: list[Event] = []
    async with desk.begun() as engine:
        engine.subscribe(events.append)
        await engine.backfill.run(days=900 / 1440)
    told = [event.progress for event in events if isinstance(event, BackfillMoved)]
    running = [progress for progress in told if progress.phase == "running"]

    assert len(running) >= 2
    assert all(progress.oldest is not None for progress in running)
    assert any(progress.estimated_runs and 700 < progress.estimated_runs < 1_200 for progress in running)
    assert told[-1].phase == "done"


KINDS: list[dict[str, Any]] = [
    {"order": order, "date_filter": date_filter, "paging": paging}
    for order in ("created", "updated")
    for date_filter in ("created", "updated", "ignored")
    for paging in ("key", "offset")
] + [{"local_offset": timedelta(hours=5, minutes=30), "shown_unit": timedelta(seconds=1)}]


@pytest.mark.parametrize("peer", KINDS, ids=lambda kind: "-".join(map(str, kind.values())), indirect=True)
async def test_every_kind_of_service_is_filled(peer: Peer, desk: Desk) -> None:
    """Whatever its dates are compared with, in either order, with either kind of page token, and with local times."""
    ended(peer, 400)
    async with desk.begun() as engine:
        assert await engine.backfill.run(days=10_000)

        assert await held(engine) == 400


async def test_times_that_cannot_be_read_are_filled_by_the_list(history: Peer, desk: Desk) -> None:
    """The walk goes on to the end, in several goes; nothing is claimed of such a list."""
    history.has_readable_times = False
    async with desk.begun(page_size=50) as engine:
        history.before(8, lambda: "reset")
        with pytest.raises(UnreachableError):
            await engine.backfill.run()
        history.asked()
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        assert (await engine.cache.coverage()).ranges == ()
        assert history.asked() < 1_000 / 50


async def test_a_walk_whose_token_is_refused_begins_again(history: Peer, desk: Desk) -> None:
    """Tokens may expire."""
    history.date_filter = "ignored"
    async with desk.begun(page_size=50) as engine:
        history.before(8, lambda: "reset")
        with pytest.raises(UnreachableError):
            await engine.backfill.run(days=10_000)
        # The first question is whether the service filters by creation.
        history.before(2, lambda: Answer(400, {"message": "This page token is not valid."}))
        assert await engine.backfill.run(days=10_000)

        assert await held(engine) == 1_000


async def test_a_service_that_refuses_dates_is_walked(history: Peer, desk: Desk) -> None:
    """The question whether it filters by creation is no reason to fail."""
    async with desk.begun(page_size=50) as engine:
        history.before(1, lambda: Answer(400, {"message": "There is no such filter."}))
        assert await engine.backfill.run(days=10_000)

        assert await held(engine) == 1_000


@pytest.mark.parametrize("date_filter", ["created", "ignored"])
@pytest.mark.parametrize("paging", ["key", "offset"])
async def test_runs_that_come_and_go_during_it_leave_nothing_out(
    peer: Peer, desk: Desk, paging: str, date_filter: str
) -> None:
    """While pages are fetched, runs are added above and deleted everywhere: all that remain are held in the end."""
    peer.paging, peer.date_filter = paging, date_filter  # type: ignore[assignment]
    ended(peer, 400)
    async with desk.begun() as engine:
        for n in range(1, 40):
            peer.before(n, partial(change, peer, n))
        while len(peer.log) < 40:
            await engine.runs.refresh()
            assert await engine.backfill.run(days=10_000)
        # What came during the last round is found by the next ones.
        for _ in range(2):
            await engine.runs.refresh()
            assert await engine.backfill.run(days=10_000)

        missing = [run_id for run_id in peer.runs if await engine.cache.detail(run_id) is None]
        assert missing == []


def change(peer: Peer, n: int) -> None:
    del peer.runs[f"run_{n * 9:05}"]
    peer.put(f"new_{n}")


async def test_one_second_may_hold_more_runs_than_a_page(peer: Peer, desk: Desk) -> None:
    """They are walked by the page token."""
    ended(peer, 100)
    crowd = peer.now - 50 * MINUTE
    for n in range(300):
        peer.put(f"crowd_{n:03}", created=crowd, updated=crowd + timedelta(seconds=20))
    async with desk.begun() as engine:
        assert await engine.backfill.run()

        assert await held(engine) == 400


KILLED = """
import asyncio, os
from dataclasses import replace
from app.config import load
from app.engine import Engine
async def main():
    settings = load(None, os.environ)
    profile = settings.profile()
    profile = replace(profile, poll=replace(profile.poll, first_runs=200, page_size=20))
    async with await Engine.open(settings, profile, actor="cli") as engine:
        await engine.runs.refresh()
        await engine.backfill.run()
asyncio.run(main())
"""


async def test_a_killed_backfill_goes_on_where_it_was(peer: Peer, desk: Desk) -> None:
    """After kill -9 in the middle only what was on its way into the cache is asked for again."""
    ended(peer, 1_200)
    peer.latency_s = 0.02
    unbroken = await requests_without_a_kill(Desk(peer, desk.folder / "unbroken"))
    asked_before = len(peer.log)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RUNWARDEN_BASE_URL": peer.base_url,
        "RUNWARDEN_TOKEN": "test-token",
        "RUNWARDEN_DATA_DIR": str(desk.folder / "data"),
    }
    process = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", KILLED], env=environment)
    await until(lambda: len(peer.log) >= asked_before + 40)
    process.send_signal(signal.SIGKILL)
    process.wait()
    first = peer.asked()
    async with desk.engine(first_runs=200, page_size=20) as engine:
        before = await held(engine)
        await engine.runs.refresh()
        assert await engine.backfill.run()

        assert 200 < before < 1_200
        assert await held(engine) == 1_200
    on_their_way = PARALLEL
    # The windows are cut elsewhere the second time: each may end with a page that is not full, and one more refresh.
    assert first + peer.asked() <= unbroken + on_their_way + PARALLEL + 4


async def requests_without_a_kill(desk: Desk) -> int:
    async with desk.engine(first_runs=200, page_size=20) as engine:
        await engine.runs.refresh()
        assert await engine.backfill.run()
    return desk.peer.asked()
