"""Whatever the service and the network do: no claim is ever false, and in the end the cache equals the service."""

import asyncio
import contextlib
import json
import tempfile
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.api.errors import ApiError, EndlessListError
from app.engine import Engine
from storage.records import RunDetail, RunFilter
from tests.sync.conftest import Desk
from tests.sync.peer import MINUTE, SECOND, START, TICK, Answer, Fault, Peer, rate_limited
from tests.sync.peer_socket import serving

HOUR: Final = timedelta(hours=1)
ANSWERING: Final = SECOND / 20
"""What each request takes."""
SLACK: Final = 2 * SECOND
"""An answer may have left the service so long after it was asked for."""
HANGS_S: Final = 60.0
"""No step takes so long."""
PAGE: Final = 5
ACTIVE: Final = ("queued", "working")
FINAL: Final = ("completed", "failed", "cancelled")

HABITS: Final[list[tuple[str, Any]]] = [
    ("shown_unit", SECOND),
    ("shown_unit", SECOND / 1000),
    ("stored_unit", SECOND),
    ("local_offset", timedelta(hours=5, minutes=30)),
    ("local_offset", -8 * HOUR),
    ("clock_offset", -2 * HOUR),
    ("clock_offset", 3 * HOUR),
    ("order", "updated"),
    ("date_filter", "updated"),
    ("date_filter", "ignored"),
    ("has_status_filter", False),
    ("paging", "offset"),
    ("largest_page", 3),
    ("has_readable_times", False),
    ("endless", "same"),
    ("endless", "stays"),
    ("endless", "around"),
    ("retry_after", "date"),
]
"""Of a service; it has some of them."""
FAULTS: Final = st.sampled_from(["limited", "reset", "truncated", "down"])
PLACES: Final = st.integers(0, 10_000)
"""Which run: a place in the list, counted from the newest, modulo its length."""


class RecordingPeer(Peer):
    """A service whose time passes with each request, and that remembers what was true when."""

    def __init__(self, **habits: Any) -> None:
        super().__init__(clock=lambda: self.true_now, **habits)
        self.true_now = START
        self.lives: dict[str, list[tuple[datetime, str | None]]] = defaultdict(list)
        """By run: its statuses, each from a time on. None: deleted."""

    def answer(self, method: str, target: str, token: str, body: bytes) -> tuple[Answer, str]:
        self.true_now += ANSWERING
        return super().answer(method, target, token, body)

    def put(self, run_id: str, status: str = "completed", **more: Any) -> None:
        super().put(run_id, status, **more)
        self.lives[run_id].append((self.true_now, status))

    def move(self, run_id: str, status: str, *, updated: datetime | None = None) -> None:
        super().move(run_id, status, updated=updated)
        self.lives[run_id].append((self.true_now, status))

    def delete(self, run_id: str) -> None:
        del self.runs[run_id]
        self.lives[run_id].append((self.true_now, None))

    def had(self, run_id: str, status: str, first: datetime, last: datetime) -> bool:
        """Whether the run had this status at any moment between these."""
        life = self.lives[run_id]
        ends = [*(at for at, _ in life[1:]), datetime.max.replace(tzinfo=START.tzinfo)]
        return any(was == status and at <= last and end >= first for (at, was), end in zip(life, ends, strict=True))

    def arrive(self, count: int, status: str, *, together: bool = False) -> None:
        """New runs, one after the other or in the same instant."""
        for n in range(count):
            moment = self.true_now - (0 if together else count - 1 - n) * TICK
            self.put(f"run_{len(self.lives):05}", status, created=moment)

    def nth(self, place: int, statuses: tuple[str, ...]) -> str | None:
        """The run at a place in the list of those with these statuses."""
        found = sorted((run.created, run.run_id) for run in self.runs.values() if run.status in statuses)
        return found[-1 - place % len(found)][1] if found else None


class SyncModel(RuleBasedStateMachine):
    """A service with some habits, and one data folder whose engine lives through all that happens."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.open = contextlib.AsyncExitStack()
        self.engine: Engine | None = None
        self.peer = RecordingPeer()
        self.polled_at: datetime | None = None
        """Our clock at the start of the last poll, if it succeeded and nothing happened since."""

    @initialize(habits=st.lists(st.sampled_from(HABITS), max_size=3).map(dict), count=st.sampled_from([0, 3, 12, 40]))
    def begin(self, habits: dict[str, Any], count: int) -> None:
        async def start() -> None:
            folder = self.open.enter_context(tempfile.TemporaryDirectory())
            await self.open.enter_async_context(serving(self.peer))
            self.desk = Desk(self.peer, Path(folder))
            await self.reopen()

        self.peer = RecordingPeer(**habits)
        for n in range(count):
            self.peer.put(f"run_{n:05}", FINAL[n % 3], created=START - (count - n) * 7 * MINUTE)
        self.runner.run(start())

    def teardown(self) -> None:
        if self.engine is not None:
            self.settle()
        self.runner.run(self.open.aclose())
        self.runner.close()

    # the service's side

    @rule(count=st.sampled_from([1, 2, 7, 30]), status=st.sampled_from([*ACTIVE, *FINAL]), together=st.booleans())
    def runs_arrive(self, count: int, status: str, together: bool) -> None:  # noqa: FBT001 — drawn
        self.peer.arrive(count, status, together=together)

    @rule(place=PLACES, status=st.sampled_from([*ACTIVE, *FINAL]), backwards=st.booleans())
    def an_active_run_moves(self, place: int, status: str, backwards: bool) -> None:  # noqa: FBT001 — drawn
        if run_id := self.peer.nth(place, ACTIVE):
            self.peer.move(run_id, status, updated=self.peer.now - SECOND / 2 if backwards else None)

    @rule(place=PLACES, status=st.sampled_from([*ACTIVE, *FINAL]))
    def a_final_run_is_continued(self, place: int, status: str) -> None:
        if run_id := self.peer.nth(place, FINAL):
            self.peer.move(run_id, status)

    @rule(place=PLACES)
    def a_run_is_deleted(self, place: int) -> None:
        if run_id := self.peer.nth(place, ACTIVE + FINAL):
            self.peer.delete(run_id)

    @rule(request=st.integers(1, 6), count=st.sampled_from([1, 6]))
    def runs_will_arrive_between_pages(self, request: int, count: int) -> None:
        self.peer.before(request, lambda: self.peer.arrive(count, "queued"))

    @rule(request=st.integers(1, 6), place=PLACES, to=st.sampled_from([None, "working", "failed"]))
    def a_run_will_move_between_pages(self, request: int, place: int, to: str | None) -> None:
        def change() -> None:
            run_id = self.peer.nth(place, ACTIVE + FINAL)
            if run_id and to:
                self.peer.move(run_id, to)
            elif run_id:
                self.peer.delete(run_id)

        self.peer.before(request, change)

    @rule(request=st.integers(1, 8), fault=FAULTS)
    def a_request_will_fail(self, request: int, fault: str) -> None:
        def fail() -> Fault:
            answers = {"limited": rate_limited(self.peer, 3_600), "down": Answer(503, {"message": "Down."})}
            return answers.get(fault, fault)

        self.peer.before(request, fail)

    @rule(gone=st.sampled_from([SECOND, 10 * SECOND, HOUR, 30 * HOUR]))
    def time_passes(self, gone: timedelta) -> None:
        self.peer.true_now += gone

    # our side

    @rule()
    def poll(self) -> None:
        self.carry_out(self.refreshed())

    @rule(count=st.sampled_from([1, 7, None]), status=st.sampled_from([(), (), ("failed",)]))
    def list_runs(self, count: int | None, status: tuple[str, ...]) -> None:
        self.carry_out(_listed(self.engine, RunFilter(statuses=status), count))

    @rule()
    def fill_gaps(self) -> None:
        self.carry_out(_filled(self.engine))

    @rule()
    def read_again(self) -> None:
        self.carry_out(_read_again(self.engine))

    @rule(what=st.sampled_from(["poll", "fill"]), request=st.integers(1, 9))
    def the_poller_is_killed(self, what: str, request: int) -> None:
        async def killed() -> None:
            doing = asyncio.create_task(self.refreshed() if what == "poll" else _filled(self.engine))
            self.peer.before(request, lambda: doing.cancel() and None)
            await self.end(doing)

        self.runner.run(killed())

    @rule(awaits=st.integers(1, 60))
    def the_poller_is_killed_anywhere(self, awaits: int) -> None:
        async def killed() -> None:
            doing = asyncio.create_task(self.refreshed())
            for _ in range(awaits):
                await asyncio.sleep(0)
            doing.cancel()
            await self.end(doing)

        self.runner.run(killed())

    async def end(self, doing: asyncio.Task[Any]) -> None:
        """Wait for the task that was killed; nothing of its process is closed."""
        async with asyncio.timeout(HANGS_S):
            with contextlib.suppress(asyncio.CancelledError, ApiError):
                await doing
        await self.reopen(dropping=True)

    @rule()
    def restart(self) -> None:
        self.runner.run(self.reopen())

    @precondition(lambda self: self.engine is not None)
    @rule()
    def settle(self) -> None:
        """The service is well and quiet: everything is found out."""
        self.peer._script.clear()
        self.restart()
        for step in (self.refreshed, self.refreshed, self.filled, self.reread, self.reread, self.refreshed):
            self.peer.true_now += MINUTE
            error = self.carry_out(step())
            is_expected = bool(self.peer.endless) and isinstance(error, EndlessListError)
            assert error is None or is_expected, f"{step.__name__}: {error!r}"
        self.runner.run(self.equals())

    async def filled(self) -> None:
        await _filled(self.engine)

    async def reread(self) -> None:
        await _read_again(self.engine)

    async def refreshed(self) -> None:
        started_at = self.peer.now
        await self.engine.runs.refresh()
        self.polled_at = started_at

    def carry_out(self, doing: Any) -> ApiError | None:
        """Do it; after a failure with a new process, as if its wait were over."""

        async def done() -> ApiError | None:
            try:
                async with asyncio.timeout(HANGS_S):
                    await doing
            except ApiError as error:
                await self.reopen()
                return error
            return None

        self.polled_at = None
        return self.runner.run(done())

    async def reopen(self, *, dropping: bool = False) -> None:
        self.polled_at = None
        if self.engine is not None:
            # What it noted of a wait is forgotten.
            await self.engine.client.budget.settle()
            await self.engine.cache.writer.run(_forget_waits)
        if self.engine is not None and not dropping:
            await self.engine.close()
        self.engine = await self.open.enter_async_context(
            self.desk.engine(clock=lambda: self.peer.now, page_size=PAGE, first_runs=2 * PAGE)
        )

    # what is claimed

    @invariant()
    def nothing_false_is_claimed(self) -> None:
        if self.engine is not None:
            self.runner.run(self.check())

    async def held(self) -> dict[str, RunDetail]:
        runs = await self.engine.cache.runs(RunFilter(), limit=None)
        return await self.engine.cache.details([run.run_id for run in runs])

    async def check(self) -> None:
        held = await self.held()
        await self.check_coverage(held)
        self.check_presence(held)
        if self.polled_at is not None:
            self.check_active(held)

    async def check_coverage(self, held: dict[str, RunDetail]) -> None:
        coverage = await self.engine.cache.coverage()
        for number, claim in enumerate(coverage.ranges):
            # The newest one is complete as of a time; the others are closed.
            as_of = coverage.as_of if number == 0 else self.peer.now
            missing = [
                run
                for run in self.peer.runs.values()
                if run.run_id not in held
                and as_of is not None
                and run.born < as_of
                and (claim.start is None or claim.start <= self.read(run.created))
                and (number == 0 or (claim.end is not None and self.read(run.created) <= claim.end))
            ]
            assert not missing, (claim, as_of, missing)

    def read(self, moment: datetime) -> datetime:
        """A stored time as we read what is shown of it."""
        if not self.peer.has_readable_times:
            return datetime.min.replace(tzinfo=START.tzinfo)
        shown = datetime.fromisoformat(self.peer.shown(moment))
        return shown if shown.tzinfo else shown.replace(tzinfo=START.tzinfo)

    def check_presence(self, held: dict[str, RunDetail]) -> None:
        for run_id, detail in held.items():
            if detail.presence == "lost":
                assert run_id not in self.peer.runs, f"{run_id} lives, and is called lost"
            elif detail.presence == "current":
                seen_at, status = detail.last_seen_at, detail.run.status
                assert self.peer.had(run_id, status, seen_at, seen_at + SLACK), (
                    run_id,
                    detail,
                    self.peer.lives[run_id],
                )

    def check_active(self, held: dict[str, RunDetail]) -> None:
        """After a good poll, what is shown as active and current was seen in it."""
        for run_id, detail in held.items():
            if detail.presence == "current" and detail.run.status in ACTIVE:
                assert detail.last_seen_at >= self.polled_at, (run_id, detail.last_seen_at, self.polled_at)

    async def equals(self) -> None:
        held = await self.held()
        missing = self.peer.runs.keys() - held.keys()
        assert not missing, (len(missing), sorted(missing)[:5])
        coverage = await self.engine.cache.coverage()
        first = min((self.read(run.created) for run in self.peer.runs.values()), default=None)
        reaches = first is None or (coverage.complete_since is not None and coverage.complete_since <= first)
        assert coverage.whole or reaches or self.peer.endless, coverage
        shown = {run_id: json.loads(each.run.raw_json) for run_id, each in held.items() if each.presence != "lost"}
        lives = {run_id: self.peer.document(run) for run_id, run in self.peer.runs.items()}
        gone = {run_id for run_id in shown.keys() - lives.keys() if held[run_id].presence == "current"}
        if self.peer.date_filter != "created" or not self.peer.has_readable_times:
            # Nothing can be asked for that would prove it; nothing says that the run was seen, either.
            gone = {run_id for run_id in gone if held[run_id].last_seen_at > self.peer.now - 3 * MINUTE}
        assert not gone, f"not called lost: {[(run_id, held[run_id]) for run_id in sorted(gone)]}"
        assert not (lives.keys() - shown.keys()), f"called lost: {sorted(lives.keys() - shown.keys())}"
        other = [(shown[run_id], lives[run_id]) for run_id in lives if shown[run_id] != lives[run_id]]
        assert not other, other


async def _listed(engine: Engine, condition: RunFilter, limit: int | None) -> None:
    async for _ in engine.listing.pages(condition, limit=limit):
        pass


async def _filled(engine: Engine) -> None:
    await engine.backfill.run()


async def _read_again(engine: Engine) -> None:
    await engine.reread.whole_pass()


def _forget_waits(connection: Any) -> None:
    connection.execute("DELETE FROM budget")


SMALL: Final = settings(
    max_examples=30,
    stateful_step_count=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class TestSmall(SyncModel.TestCase):
    """A few histories, the same ones each time."""

    settings = SMALL


@pytest.mark.campaign
class TestCampaign(SyncModel.TestCase):
    """Hundreds of them, longer ones, and others each time."""

    settings = settings(SMALL, max_examples=500, stateful_step_count=40, derandomize=False)
