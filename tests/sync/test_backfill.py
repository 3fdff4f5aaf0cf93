"""Fetching what history is missing, from a service that the test scripts."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.api.budget import Priority
from app.api.errors import EndlessListError, RejectedError, UnreachableError
from app.engine.engine import Engine
from app.engine.events import BackfillMoved, Event
from app.profiles import HistorySettings
from app.sync.backfill import Backfill
from storage.records import RunFilter
from tests.cli.conftest import CommandLine
from tests.lab import Drop, Lab, Respond
from tests.sync.conftest import MINUTE, Desk, Recorder, unreadable
from tests.waiting import until

HOUR, SECOND, TICK = timedelta(hours=1), timedelta(seconds=1), timedelta(microseconds=1)
PATIENCE_S = 60.0
RUNS = 300


def ended(peer: Lab, count: int, name: str = "run", *, after: int = 0) -> None:
    """Add ended runs that took some seconds, one a minute, the newest number 0; `after` are newer than that."""
    now = peer.now
    for n in range(count):
        created = now - (after + n + 1) * MINUTE
        peer.put(f"{name}_{n:05}", created=created, updated=created + timedelta(seconds=10 + n % 40))


async def held(engine: Engine) -> int:
    """How many runs the cache holds."""
    return await engine.cache.count(RunFilter())


@pytest.fixture
def history(peer: Recorder) -> Recorder:
    """The service with some hundred ended runs."""
    ended(peer, RUNS)
    return peer


@pytest.fixture
def long_history(history: Recorder) -> Recorder:
    """A service whose history takes a while to fetch."""
    ended(history, 1_000 - RUNS, "old", after=RUNS)
    return history


async def test_everything_that_the_configuration_names_is_fetched(history: Recorder, desk: Desk) -> None:
    """After it, the cache holds the whole list, says so, and there is nothing left to do."""
    async with desk.begun() as engine:
        assert await engine.backfill.run()

        assert await held(engine) == RUNS
        assert (await engine.cache.coverage()).whole is False
        assert (await engine.cache.coverage()).gaps[0].before < history.now - timedelta(days=29)
        desk.asked()
        assert await engine.backfill.run()
        assert desk.asked() == 0
        assert engine.backfill.progress.phase == "done"


async def test_what_a_person_waits_for_has_a_persons_priority(history: Recorder, desk: Desk) -> None:
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


@pytest.mark.parametrize("peer", [{"endless": "around", "nulls": 2}, {"endless": "around"}], indirect=True)
async def test_a_list_that_never_ends_ends_the_filling(desk: Desk) -> None:
    """Not even its windows without a usable run are followed for ever, nor one after the other below the first run."""
    ended(desk.peer, 60)
    async with desk.engine(page_size=5, first_runs=10) as engine:
        with suppress(EndlessListError):
            await engine.runs.refresh()
        with suppress(EndlessListError):
            await asyncio.wait_for(engine.backfill.run(), PATIENCE_S)

        assert await held(engine) == 60
        assert desk.asked() < 200


async def test_runs_of_one_instant_are_not_followed_by_windows_of_an_instant(desk: Desk) -> None:
    """How dense they were tells nothing about the hours below them."""
    at = desk.peer.now - HOUR
    ended(desk.peer, 40, "old", after=10_000)
    for number in range(10):
        desk.peer.put(f"together_{number}", created=at + number * TICK, updated=at + MINUTE - number * SECOND)
    ended(desk.peer, 20, "new")
    async with desk.engine(page_size=5, first_runs=10) as engine:
        await engine.runs.refresh()
        newest = (await engine.cache.coverage()).ranges[0]
        await engine.cache.extend_coverage(at + 10 * TICK, newest.start)
        await engine.cache.extend_coverage(at - SECOND / 2, at - SECOND / 4)
        desk.asked()
        await asyncio.wait_for(engine.backfill.run(days=30), PATIENCE_S)

        assert desk.asked() < 200


async def test_history_ends_at_the_configured_number(history: Recorder, desk: Desk) -> None:
    """A busy organization does not fill the disk."""
    async with desk.begun() as engine:
        assert await Backfill(engine.runs, engine.client, engine.doorbell.ring, HistorySettings(runs=200)).run()

        assert 200 <= await held(engine) <= 220


async def test_a_failure_in_the_middle_costs_nothing_that_came_before(long_history: Recorder, desk: Desk) -> None:
    """What was fetched is not asked for again."""
    async with desk.begun() as engine:
        long_history.before(40, Drop)
        with pytest.raises(UnreachableError):
            await engine.backfill.run()
        assert await held(engine) > 300
        desk.asked()
        assert await engine.backfill.run()

        assert await held(engine) == 1_000
        # Windows begin anew in each gap, and small ones are seldom full.
        assert desk.asked() < 3 * 1_000 / 20


async def test_a_failure_in_the_background_is_waited_out_and_told(history: Recorder, desk: Desk) -> None:
    """The progress says why it waits and until when; the next look goes on."""
    async with desk.begun() as engine:
        history.before(5, Drop)
        assert await engine.backfill.work() == 5

        assert engine.backfill.progress.phase == "waiting"
        assert engine.backfill.progress.why == "unreachable"
        assert engine.backfill.progress.until is not None


async def test_a_pause_holds_for_every_process_and_ends_where_it_began(history: Recorder, desk: Desk) -> None:
    """While it is paused nothing is asked; afterwards it goes on."""
    async with desk.begun() as engine:
        await engine.backfill.pause()
        async with desk.engine(page_size=20) as other:
            desk.asked()
            await other.backfill.work()
            assert other.backfill.progress.phase == "paused"
            assert desk.asked() == 0
            await other.backfill.resume()
        await engine.backfill.work()

        assert await held(engine) == RUNS


async def test_progress_is_told_while_it_runs(long_history: Recorder, desk: Desk) -> None:
    """How many came, about how many there will be, how far back everything is held."""
    long_history.latency_s = 0.05
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


RARER: list[dict[str, Any]] = [
    *({"date_filter": date, "paging": "key"} for date in ("updated_at", "")),
    {"order": "updated_at", "date_filter": ""},
]
KINDS = [
    {"date_filter": "created_at", "paging": "key"},
    {"order": "updated_at", "date_filter": "updated_at", "paging": "offset"},
    *(pytest.param(kind, marks=pytest.mark.campaign) for kind in RARER),
]


@pytest.mark.parametrize("peer", KINDS, ids=[str(number) for number in range(len(KINDS))], indirect=True)
async def test_every_kind_of_service_is_filled_though_its_runs_come_and_go(peer: Recorder, desk: Desk) -> None:
    """Whatever its dates are compared with, and though one second holds more runs than a page, and tokens expire."""
    ended(peer, 400)
    crowd = peer.now - 50 * MINUTE
    for n in range(50):
        peer.put(f"crowd_{n:03}", created=crowd, updated=crowd + timedelta(seconds=20))

    def change(n: int) -> Respond | None:
        del peer.runs[f"run_{n * 9:05}"]
        peer.put(f"new_{n}")
        # The first question is whether the service filters by creation; a later one has a token.
        return Respond(400, {"message": "This is not valid."}) if n in {1, 9} else None

    async with desk.begun() as engine:
        for n in range(1, 20):
            peer.before(n, partial(change, n))
        for _ in range(4):
            with suppress(RejectedError):
                await engine.backfill.run(days=10_000)
            await engine.runs.refresh()

        assert [run_id for run_id in peer.runs if await engine.cache.detail(run_id) is None] == []


async def test_times_that_cannot_be_read_are_filled_by_the_list(history: Recorder, desk: Desk) -> None:
    """The walk goes on to the end, in several goes; nothing is claimed of such a list."""
    history.show_time = unreadable
    async with desk.begun() as engine:
        history.before(8, Drop)
        with pytest.raises(UnreachableError):
            await engine.backfill.run()
        desk.asked()
        assert await engine.backfill.run()

        assert await held(engine) == RUNS
        assert (await engine.cache.coverage()).ranges == ()
        assert desk.asked() < RUNS / 20


# because a person asked


async def test_older_runs_are_fetched_on_demand(history: Recorder, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking once brings a limited number more; since a time, all of them since then."""
    monkeypatch.setattr("app.sync.backfill.OLDER_RUNS", 200)
    ended(history, 400, "old", after=RUNS)
    async with desk.begun() as engine:
        await engine.backfill.run(days=0.1)
        before = await held(engine)
        await engine.backfill.fetch_older()
        assert before + 180 <= await held(engine) <= before + 400

        since = history.now - 600 * MINUTE
        await engine.backfill.fetch_older(since=since)
        complete_since = (await engine.cache.coverage()).complete_since
        assert complete_since is not None
        assert complete_since <= since


async def test_every_process_sees_how_far_it_is_and_can_pause_it(long_history: Recorder, desk: Desk) -> None:
    """One that does not fetch reads the progress in the cache; its pause is heard in the middle of a filling."""
    long_history.latency_s = 0.3
    async with desk.begun() as one, desk.engine() as other:
        filling = asyncio.create_task(one.backfill.run())
        await until(lambda: one.backfill.progress.done_runs > 0, "the first runs are fetched")

        async def is_seen_running() -> bool:
            shared = await other.cache.backfill_progress(other.clock())
            return shared is not None and shared.phase == "running"

        await until(is_seen_running, "the other process sees the progress")
        await other.backfill.pause()

        assert await filling is False
        told = await other.cache.backfill_progress(other.clock())
        assert told is not None
        assert told.phase == "paused"
        assert await other.cache.backfill_progress(other.clock() + MINUTE) is None


async def test_fetching_older_runs_can_be_stopped(long_history: Recorder, desk: Desk) -> None:
    """What came is kept, and nothing more is asked for."""
    long_history.latency_s = 0.02
    async with desk.begun() as engine:
        fetching = asyncio.create_task(engine.backfill.fetch_older(since=long_history.now - 2_000 * MINUTE))
        await until(lambda: engine.backfill.progress.done_runs >= 100, "a hundred runs are fetched")
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        count, asked = await held(engine), len(long_history.requests)
        await until(lambda: all(each.status for each in long_history.requests), "all that was asked is answered")

        assert 100 < count < 1_000
        assert len(long_history.requests) - asked <= 8
        assert engine.backfill.progress.phase == "idle"
        await engine.backfill.fetch_older(since=long_history.now - 2_000 * MINUTE)
        assert await held(engine) == 1_000


@pytest.mark.parametrize(
    ("command", "peer"),
    [(("sync", "--days", "1000"), {}), (("sync", "--days", "1000"), {"date_filter": ""}), (("list", "--all"), {})],
    indirect=["peer"],
    ids=["windows", "walk", "list"],
)
def test_killed_at_any_request(desk: Desk, command: tuple[str, ...]) -> None:
    """Killed with -9: nothing is called complete that is not; what came stays, and only the rest is fetched."""
    desk.peer.fill(700, until=desk.peer.now - HOUR)
    line = CommandLine(desk.folder, desk.peer.base_url, "test-token")
    held: set[str] = set()
    for request in (1, 7):
        desk.peer.fill(3, "working")
        process = line.begin("runs", *command, "--json")
        desk.peer.before(request, process.kill)
        process.communicate()

        assert process.returncode == -9
        document = desk.facts("runs", "list", "--cached", "--all")
        assert not desk.false_claims(document)
        assert held <= (held := {run["run_id"] for run in document["runs"]})

    assert desk.run("runs", *command, "--json").code == 0
    assert not desk.missing()
