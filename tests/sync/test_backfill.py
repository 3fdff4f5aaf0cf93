"""Missing history is fetched automatically and by `runwarden runs sync`."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.api.errors import RejectedError
from app.engine.engine import Engine
from app.engine.events import Event, RunsChanged
from app.profiles import HistorySettings
from app.sync.backfill import drop_old_runs
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import RunFilter, RunSort
from tests.cli.conftest import CommandLine
from tests.lab import Drop, Lab, Respond, stamp
from tests.storage.conftest import entry, make_run
from tests.sync.conftest import MINUTE, Desk, Recorder
from tests.waiting import present, until

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


RUNS = 300


def ended(peer: Lab, count: int, name: str = "run", *, after: int = 0) -> None:
    """Add ended runs, one a minute, the newest with number 0; `after` are newer than that."""
    now = peer.now
    for n in range(count):
        created = now - (after + n + 1) * MINUTE
        peer.put(f"{name}_{n:05}", created=created, updated=created + timedelta(seconds=10 + n % 40))


async def held(engine: Engine) -> int:
    """The number of cached runs."""
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


async def test_a_failed_backfill_keeps_what_it_fetched(history: Recorder, desk: Desk) -> None:
    """Background progress shows why it waits and until when; fetched runs are not requested again."""
    async with desk.begun() as engine:
        history.before(12, Drop)
        assert await engine.backfill.work() == 5
        progress = engine.backfill.progress
        assert (progress.phase, progress.why, progress.until is not None) == ("waiting", "unreachable", True)
        fetched = [history.created(run.run_id) for run in await engine.cache.runs(RunFilter(), None)]
        assert 20 < len(fetched) < RUNS
        desk.asked()
        await engine.backfill.work()

        assert await held(engine) == RUNS
        for request in history.requests:
            start, end = (datetime.fromisoformat(request.query[name]) for name in ("date_from", "date_to"))
            # Periods include their ends, which may be a run's own time.
            assert sum(start <= created <= end for created in fetched) <= 2


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
async def test_a_backfill_works_with_every_kind_of_service(peer: Recorder, desk: Desk) -> None:
    """Dates may filter by creation or change, a second may have more runs than a page, and tokens may expire."""
    ended(peer, 400)
    crowd = peer.now - 50 * MINUTE
    for n in range(50):
        peer.put(f"crowd_{n:03}", created=crowd, updated=crowd + timedelta(seconds=20))

    def change(n: int) -> Respond | None:
        del peer.runs[f"run_{n * 9:05}"]
        peer.put(f"new_{n}")
        # The first request tests whether the service filters by creation; a later one has a token.
        return Respond(400, {"message": "This is not valid."}) if n in {1, 9} else None

    async with desk.begun() as engine:
        for n in range(1, 20):
            peer.before(n, partial(change, n))
        for _ in range(4):
            with suppress(RejectedError):
                await engine.backfill.run(days=10_000)
            await engine.runs.refresh()

        assert [run_id for run_id in peer.runs if await engine.cache.detail(run_id) is None] == []


async def test_every_process_sees_and_pauses_a_backfill(long_history: Recorder, desk: Desk) -> None:
    """A process that does not fetch reads the progress in the cache, and its pause takes effect at once.

    It affects every process, and fetching continues afterwards.
    """
    long_history.latency_s = 0.3
    async with desk.begun() as one, desk.engine() as other:
        filling = asyncio.create_task(one.backfill.run())
        await until(lambda: one.backfill.progress.done_runs > 0, "the first runs are fetched")

        async def is_seen_running() -> bool:
            shared = (await other.cache.history(other.clock())).progress
            return shared is not None and shared.phase == "running"

        await until(is_seen_running, "the other process sees the progress")
        await other.backfill.pause(is_paused=True)

        assert await filling is False
        told = (await other.cache.history(other.clock())).progress
        assert present(told).phase == "paused"
        assert (await other.cache.history(other.clock() + MINUTE)).progress is None
        desk.asked()
        await other.backfill.work()
        assert desk.asked() == 0
        long_history.latency_s = 0.0
        await other.backfill.pause(is_paused=False)
        await one.backfill.work()
        assert await held(one) == 1_000


async def test_fetching_older_runs_can_be_stopped(long_history: Recorder, desk: Desk) -> None:
    """Fetched runs are kept, and no further request is sent."""
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


# because a user requested it


@pytest.mark.parametrize(
    ("command", "peer"),
    [(("sync", "--days", "1000"), {}), (("list", "--all"), {"date_filter": ""})],
    indirect=["peer"],
    ids=["windows", "list"],
)
def test_a_backfill_survives_a_kill_at_any_request(desk: Desk, command: tuple[str, ...]) -> None:
    """After kill -9 no incomplete period is called complete, fetched runs stay, and only the rest is fetched."""
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


# in the foreground: `runwarden runs sync`


def test_the_backfill_command_fetches_missing_runs(peer: Recorder, desk: Desk) -> None:
    """All runs of the requested age are cached, a rate limit is waited out, and a second call only requests the newest.

    Entries that cannot be stored are counted, so a complete period never omits them silently.
    """
    ended(peer, 1_000)
    ended(peer, 500, "old", after=1_000)
    peer.runs["old_00300"]["run_id"] = None
    assert desk.facts("runs", "sync", "--days", "0.1")["fetched"] == 0  # The first refresh fetches a thousand.
    peer.before(4, lambda: peer.rate_limited(0))
    second = desk.facts("runs", "sync", "--days", "1000")

    assert (second["fetched"], second["held"], second["whole"], second["dropped"]) == (499, 1_499, False, 1)
    assert second["complete_since"] <= stamp(peer.now - 1_500 * MINUTE)
    assert any(request.status == 429 for request in peer.requests)
    desk.asked()
    third = desk.facts("runs", "sync", "--days", "1000")
    assert (third["fetched"], "dropped" in third) == (0, False)
    assert desk.asked() <= 4


async def test_old_runs_are_dropped_except_in_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First those beyond the age are dropped, then the oldest until the cache fits; every console is notified."""
    march, heard = datetime(2026, 3, 1, 12, tzinfo=UTC), list[Event]()
    monkeypatch.setattr("storage.cache.retention.STEP", 5)
    async with (
        await Cache.open(tmp_path / "cache.sqlite3") as cache,
        await Ledger.open(tmp_path / "ledger.sqlite3") as ledger,
    ):
        runs = [make_run(n, "completed", created_at=march - n * DAY, note="x" * 2000) for n in range(30)]
        await cache.store_runs(runs, march)
        await ledger.prepare(entry("k", "run_0025", "run.continue"))

        async def kept(keep_days: float = 0, max_mb: int = 0) -> list[int]:
            history = HistorySettings(keep_days=keep_days, max_mb=max_mb)
            await drop_old_runs(cache, ledger, heard.append, history, lambda: march)
            return [int(row.run_id[-4:]) for row in await cache.rows(RunFilter(), RunSort(), offset=0, limit=99)]

        assert (await kept(), heard) == ([*range(30)], [])
        assert await kept(keep_days=19.5) == [*range(20), 25]
        assert [type(event) for event in heard] == [RunsChanged]
        monkeypatch.setattr("app.sync.backfill._MEGABYTE", await cache.used_bytes() - 20_000)
        assert await kept(max_mb=1) in ([*range(n), 25] for n in range(3, 18))
        monkeypatch.setattr("app.sync.backfill._MEGABYTE", 1)
        assert await kept(max_mb=1) == [25]
