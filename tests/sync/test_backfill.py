"""Fetching what history is missing, from a service that the test scripts."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from app.api.budget import Priority
from app.api.errors import UnreachableError
from app.cli.progress import line
from app.config import HistorySettings
from app.engine import Engine
from app.events import BackfillMoved, Event
from app.sync.backfill import Backfill
from app.sync.fill import PARALLEL, UNSTORED
from storage.records import RunFilter
from storage.records.backfill import BackfillProgress
from tests.service_process import ROOT
from tests.sync.conftest import Desk
from tests.sync.peer import MINUTE, Answer, Peer

HOUR = timedelta(hours=1)


@pytest.fixture
def history(peer: Peer) -> Peer:
    """A thousand runs, one a minute, each of which took some seconds."""
    fill(peer, 1_000)
    return peer


def fill(peer: Peer, count: int, *, every: timedelta = MINUTE) -> None:
    """Ended runs, the newest a minute ago."""
    newest = peer.now - MINUTE
    for n in range(count):
        created = newest - n * every
        peer.put(f"run_{len(peer.runs):05}", created=created, updated=created + timedelta(seconds=10 + n % 40))


@asynccontextmanager
async def begun(desk: Desk, **poll: int) -> AsyncIterator[Engine]:
    """An engine whose first refresh is over."""
    async with desk.engine(**{"first_runs": 20, "page_size": 20, **poll}) as engine:
        await engine.runs.refresh()
        yield engine


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 — what it waits for happens on another thread
            await asyncio.sleep(0.002)


async def held(engine: Engine) -> int:
    return await engine.cache.count(RunFilter())


async def test_everything_that_the_configuration_names_is_fetched(history: Peer, desk: Desk) -> None:
    """After it, the cache holds the whole list, says so, and there is nothing left to do."""
    async with begun(desk) as engine:
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        assert (await engine.cache.coverage()).whole is False
        assert (await engine.cache.coverage()).gaps[0].before < history.now - timedelta(days=29)
        history.asked()
        assert await engine.backfill.run()
        assert history.asked() == 0
        assert engine.backfill.progress.phase == "done"


async def test_what_a_person_waits_for_has_a_persons_priority(history: Peer, desk: Desk) -> None:
    """The command in the foreground asks as a person does, also while the background is paused."""
    async with begun(desk) as engine:
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
    async with begun(desk) as engine:
        assert await engine.backfill.run(days=1 / 24)

        assert 60 <= await held(engine) <= 60 + 2 * 20
        since = (await engine.cache.coverage()).complete_since
        assert since is not None
        assert since <= history.now - HOUR + MINUTE


async def test_history_ends_at_the_configured_number(history: Peer, desk: Desk) -> None:
    """A busy organization does not fill the disk."""
    async with begun(desk) as engine:
        assert await Backfill(engine.runs, engine.client, engine.doorbell.ring, HistorySettings(runs=200)).run()

        assert 200 <= await held(engine) <= 220


async def test_older_runs_are_fetched_on_demand(history: Peer, desk: Desk) -> None:
    """Asking once brings about a thousand more; since a time, all of them since then; a run, as far as that run."""
    fill_older(history, 3_000)
    async with begun(desk, page_size=100) as engine:
        await engine.backfill.run(days=0.1)
        before = await held(engine)
        await engine.backfill.fetch_older()
        assert before + 900 <= await held(engine) <= before + 2_000

        since = history.now - 2_000 * MINUTE
        await engine.backfill.fetch_older(since=since)
        complete_since = (await engine.cache.coverage()).complete_since
        assert complete_since is not None
        assert complete_since <= since

        assert await engine.cache.detail("old_02500") is None
        await engine.backfill.fetch_older(run_id="old_02500")
        assert await engine.cache.detail("old_02500") is not None
        await engine.backfill.fetch_older(run_id="there is no such run")
        assert (await engine.cache.coverage()).whole


def fill_older(peer: Peer, count: int) -> None:
    for n in range(count):
        created = peer.now - (1_001 + n) * MINUTE
        peer.put(f"old_{n:05}", created=created, updated=created + timedelta(seconds=15))


async def test_fetching_older_runs_can_be_stopped(history: Peer, desk: Desk) -> None:
    """What came is kept, and nothing more is asked for."""
    history.latency_s = 0.02
    async with begun(desk) as engine:
        fetching = asyncio.create_task(engine.backfill.fetch_older(since=history.now - 2_000 * MINUTE))
        await until(lambda: engine.backfill.progress.done_runs >= 100)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        count, asked = await held(engine), len(history.log)
        await asyncio.sleep(0.2)

        assert 100 < count < 1_000
        assert len(history.log) - asked <= 8
        assert engine.backfill.progress.phase == "idle"
        await engine.backfill.fetch_older(since=history.now - 2_000 * MINUTE)
        assert await held(engine) == 1_000


async def test_a_refusal_in_the_middle_is_waited_out(history: Peer, desk: Desk) -> None:
    """What was refused is asked for again, once the wait is over."""
    async with begun(desk) as engine:
        history.before(40, slow_down)
        assert await engine.backfill.run()

        assert await held(engine) == 1_000


def slow_down() -> Answer:
    return Answer(429, {"message": "Slow down."}, {"Retry-After": "3"})


async def test_a_failure_in_the_middle_costs_nothing_that_came_before(history: Peer, desk: Desk) -> None:
    """What was fetched is not asked for again."""
    async with begun(desk) as engine:
        history.before(30, lambda: "reset")
        with pytest.raises(UnreachableError):
            await engine.backfill.run()
        assert await held(engine) > 300
        history.asked()
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        assert history.asked() < 1_000 / 20


async def test_a_failure_in_the_background_is_waited_out_and_told(history: Peer, desk: Desk) -> None:
    """The progress says why it waits and until when; the next look goes on."""
    async with begun(desk) as engine:
        history.before(5, lambda: "reset")
        assert await engine.backfill.work() == 5

        assert engine.backfill.progress.phase == "waiting"
        assert engine.backfill.progress.why == "unreachable"
        assert engine.backfill.progress.until is not None


async def test_a_pause_holds_for_every_process_and_ends_where_it_began(history: Peer, desk: Desk) -> None:
    """While it is paused nothing is asked; afterwards it goes on."""
    async with begun(desk) as engine:
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
    async with begun(desk) as engine:
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
    async with begun(desk) as engine:
        engine.subscribe(events.append)
        await engine.backfill.run(days=900 / 1440)
    told = [event.progress for event in events if isinstance(event, BackfillMoved)]
    running = [progress for progress in told if progress.phase == "running"]

    assert len(running) >= 2
    assert all(progress.oldest is not None for progress in running)
    assert any(progress.estimated_runs and 700 < progress.estimated_runs < 1_200 for progress in running)
    assert told[-1].phase == "done"


@pytest.mark.parametrize("paging", ["key", "offset"])
@pytest.mark.parametrize("date_filter", ["created", "updated", "ignored"])
@pytest.mark.parametrize("order", ["created", "updated"])
async def test_every_kind_of_service_is_filled(
    history: Peer, desk: Desk, order: str, date_filter: str, paging: str
) -> None:
    """Whatever its dates are compared with, in either order, with either kind of page token."""
    history.order, history.date_filter, history.paging = order, date_filter, paging  # type: ignore[assignment]
    async with begun(desk, page_size=50) as engine:
        assert await engine.backfill.run(days=10_000)

        assert await held(engine) == 1_000
        assert (await engine.cache.traits()).date_filter == date_filter


async def test_local_times_and_whole_seconds_are_filled(history: Peer, desk: Desk) -> None:
    """Windows are asked for by the service's own times."""
    history.local_offset, history.shown_unit = timedelta(hours=5, minutes=30), timedelta(seconds=1)
    async with begun(desk, page_size=50) as engine:
        assert await engine.backfill.run(days=10_000)

        assert await held(engine) == 1_000
        assert (await engine.cache.traits()).date_filter == "created"


async def test_times_that_cannot_be_read_are_filled_by_the_list(history: Peer, desk: Desk) -> None:
    """The walk goes on to the end, in several goes."""
    history.has_readable_times = False
    async with begun(desk, page_size=50) as engine:
        history.before(8, lambda: "reset")
        with pytest.raises(UnreachableError):
            await engine.backfill.run()
        history.asked()
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        assert (await engine.cache.coverage()).whole
        assert history.asked() < 1_000 / 50


async def test_a_walk_whose_token_is_refused_begins_again(history: Peer, desk: Desk) -> None:
    """Tokens may expire."""
    history.date_filter = "ignored"
    async with begun(desk, page_size=50) as engine:
        history.before(8, lambda: "reset")
        with pytest.raises(UnreachableError):
            await engine.backfill.run(days=10_000)
        history.before(1, lambda: Answer(400, {"message": "This page token is not valid."}))
        assert await engine.backfill.run(days=10_000)

        assert await held(engine) == 1_000


@pytest.mark.parametrize("date_filter", ["created", "ignored"])
@pytest.mark.parametrize("paging", ["key", "offset"])
async def test_runs_that_come_and_go_meanwhile_leave_nothing_out(
    history: Peer, desk: Desk, paging: str, date_filter: str
) -> None:
    """While pages are fetched, runs are added above and deleted everywhere: all that remain are held in the end."""
    history.paging, history.date_filter = paging, date_filter  # type: ignore[assignment]
    async with begun(desk, page_size=50) as engine:
        for n in range(1, 40):
            history.before(n, partial(change, history, n))
        for _ in range(3):
            await engine.runs.refresh()
            assert await engine.backfill.run(days=10_000)
        await engine.runs.refresh()

        missing = [run_id for run_id in history.runs if await engine.cache.detail(run_id) is None]
        assert missing == []


def change(peer: Peer, n: int) -> None:
    del peer.runs[f"run_{n * 23:05}"]
    peer.put(f"new_{n}")


async def test_one_second_may_hold_more_runs_than_a_page(peer: Peer, desk: Desk) -> None:
    """They are walked by the page token."""
    fill(peer, 100)
    crowd = peer.now - 50 * MINUTE
    for n in range(300):
        peer.put(f"crowd_{n:03}", created=crowd, updated=crowd + timedelta(seconds=20))
    async with begun(desk) as engine:
        assert await engine.backfill.run()

        assert await held(engine) == 400


KILLED = """
import asyncio, sys
from app.config import load
from app.config import HistorySettings
from app.engine import Engine
import os
async def main():
    settings = load(None, os.environ)
    async with await Engine.open(settings, settings.profile(), actor="cli") as engine:
        await engine.runs.refresh()
        await engine.backfill.run()
asyncio.run(main())
"""


async def test_a_killed_backfill_goes_on_where_it_was(peer: Peer, desk: Desk) -> None:
    """After kill -9 in the middle only what was on its way into the cache is asked for again."""
    fill(peer, 12_000)
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
    await until(lambda: len(peer.log) >= asked_before + 80)
    process.send_signal(signal.SIGKILL)
    process.wait()
    first = peer.asked()
    async with desk.engine() as engine:
        before = await held(engine)
        await engine.runs.refresh()
        assert await engine.backfill.run()

        assert 1_000 < before < 12_000
        assert await held(engine) == 12_000
    on_their_way = UNSTORED + PARALLEL
    # The windows are cut elsewhere the second time: each may end with a page that is not full, and one more refresh.
    assert first + peer.asked() <= unbroken + on_their_way + PARALLEL + 4


async def requests_without_a_kill(desk: Desk) -> int:
    async with desk.engine() as engine:
        await engine.runs.refresh()
        assert await engine.backfill.run()
    return desk.peer.asked()


def test_the_command_fetches_what_is_missing_and_says_how_far_it_came(history: Peer, desk: Desk) -> None:
    """Everything of the age asked for is held; a second time nothing is asked for but the newest."""
    fill_older(history, 500)
    assert desk.facts("runs", "sync", "--days", "0.1")["fetched"] == 0  # The first refresh brings a thousand.
    second = desk.facts("runs", "sync", "--days", "1000")

    assert (second["fetched"], second["held"], second["whole"]) == (500, 1_500, False)
    assert second["complete_since"] <= history.shown(history.now - 1_500 * MINUTE)
    history.asked()
    assert desk.facts("runs", "sync", "--days", "1000")["fetched"] == 0
    assert history.asked() <= 4


@pytest.mark.parametrize("date_filter", ["created", "ignored"])
def test_the_command_counts_entries_that_cannot_be_kept(history: Peer, desk: Desk, date_filter: str) -> None:
    """What is called complete never leaves them out silently."""
    fill_older(history, 500)
    history.runs["old_00300"].fields["run_id"] = None
    history.date_filter = date_filter  # type: ignore[assignment]

    assert desk.facts("runs", "sync", "--days", "1000")["dropped"] == 1
    assert "dropped" not in desk.facts("runs", "sync", "--days", "1000")


def test_the_command_waits_out_a_limit(history: Peer, desk: Desk) -> None:
    """It ends when all is here, not at the first refusal."""
    fill_older(history, 1_000)
    history.before(16, slow_down)

    assert desk.facts("runs", "sync")["held"] == 2_000


def test_the_command_says_why_it_cannot(history: Peer, desk: Desk) -> None:
    """A refused token ends it."""
    history.refused = {"test-token": 401}

    assert desk.run("runs", "sync", "--json").code == 4


def test_the_bar_says_how_far_it_is() -> None:
    """A bar where the end is known, the runs fetched, how far back, and the time left."""
    progress = BackfillProgress("running", 2_500, 10_000, datetime(2026, 5, 1, 12, tzinfo=UTC), 75.0)

    assert (
        line(progress)
        == "██████░░░░░░░░░░░░░░░░░░  25% · 2,500 runs of about 10,000 · back to 2026-05-01 12:00 · 1m15s left"
    )
    assert line(BackfillProgress("running", 2_500)) == "2,500 runs"
