"""Whatever the service and the network do, no claim is false, and in the end the cache equals the service."""

import asyncio
import contextlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.api.budget import Budget
from app.api.errors import ApiError, EndlessListError
from storage.records import Coverage, RunDetail, RunFilter
from tests.lab import OMITTED, START, Drop, Raw, Received, Respond, Step, stamp
from tests.sync.conftest import MINUTE, Desk, Recorder, seconds, unreadable
from tests.sync.test_listing import listed
from tests.sync.test_run_sync import HOSTS, HOUR, ODD, UNIDENTIFIED, eastern, milliseconds

SECOND: Final = timedelta(seconds=1)
HANGS_S: Final = 300.0
"""No step takes this long."""
PAGE: Final = 5
TICK: Final = timedelta(microseconds=1)
TIMES: Final = ("created_at", "updated_at")
ANSWERING: Final = SECOND / 20
"""How long each request takes."""
ACTIVE: Final = ("queued", "working")
SLACK: Final = 2 * SECOND
"""How long an answer may leave the service after its request."""
FINAL: Final = ("completed", "failed", "cancelled")


HABITS: Final[list[tuple[str, Any]]] = [
    *(("show_time", how) for how in (seconds, milliseconds, eastern, unreadable)),
    ("clock_offset", -2 * HOUR),
    ("clock_offset", 3 * HOUR),
    ("order", "updated_at"),
    ("date_filter", "updated_at"),
    ("date_filter", ""),
    ("ignore_status", True),
    ("paging", "offset"),
    ("largest_page", 3),
    ("endless", "same"),
    ("endless", "stays"),
    ("endless", "around"),
    ("retry_after", "date"),
    ("nulls", 2),
    ("shuffles_ties", True),
    ("total_count", "12"),
    ("total_count", True),
]
"""A service's possible habits; it has some of them."""
KINDS: Final = sorted([*ODD, *UNIDENTIFIED])
"""The kinds of odd runs."""
CUT: Final = Raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{")
FAULTS: Final = st.sampled_from(["limited", "reset", "truncated", "down"])
PLACES: Final = st.integers(0, 10_000)
"""Which run: a position in the list from the newest, modulo its length."""


class TimedRecorder(Recorder):
    """A service that records everything it ever showed, and whose time passes with each request."""

    def __init__(self, **habits: Any) -> None:
        self.lives: dict[str, list[tuple[datetime, str | None]]] = defaultdict(list)
        """Each run's shown statuses, each with the time from which it is shown. None: deleted."""
        self.true_now = START
        super().__init__(clock=lambda: self.true_now, **habits)
        self.clock_offsets = [self.clock_offset]
        """All runs that it ever had."""
        self.hides_its_future = False
        """Whether its clock was set back before the first poll, and no shown time reveals it: nothing can detect
        that."""

    def put(self, run_id: str, status: str = "completed", **more: Any) -> None:
        super().put(run_id, status, **more)
        self.note(run_id)

    def move(self, run_id: str, status: str, *, updated: float | datetime | None = None) -> None:
        super().move(run_id, status, updated=updated)
        self.note(run_id)

    def delete(self, run_id: str) -> None:
        """Delete the run."""
        del self.runs[run_id]
        self.lives[run_id].append((self.now, None))

    def note(self, run_id: str) -> None:
        """Record the status that is shown from now on."""
        shown = self.runs[run_id].get("status")
        text = shown if isinstance(shown, str) else "" if shown in {None, OMITTED} else json.dumps(shown)
        self.lives[run_id].append((self.now, text))

    def had(self, run_id: str, status: str, first: datetime, last: datetime) -> bool:
        """Whether the run was shown with this status at any moment in this period."""
        life = self.lives[run_id]
        ends = [*(at for at, _ in life[1:]), datetime.max.replace(tzinfo=START.tzinfo)]
        return any(was == status and at <= last and end >= first for (at, was), end in zip(life, ends, strict=True))

    def identified(self) -> dict[str, dict[str, Any]]:
        """The runs with a usable id, by id, as shown."""
        nameless = [fields["run_id"] for fields in UNIDENTIFIED.values()]
        return {run_id: self.document(run) for run_id, run in self.runs.items() if run["run_id"] not in nameless}

    def answer(self, request: Received) -> Step:
        self.true_now += ANSWERING
        return super().answer(request)

    def set_clock(self, by: timedelta, *, is_heard: bool) -> None:
        """Set its clock; `is_heard`: a poll compared it with ours before."""
        self.clock_offset += by
        self.clock_offsets.append(self.clock_offset)
        if not is_heard and self.show_time not in (stamp, seconds, milliseconds):
            now = stamp(self.now + self.clock_offset)
            self.hides_its_future |= any(times["updated_at"] > now for times in self._true_times.values())

    def distort(self, run_id: str, kind: str) -> None:
        """Show a run with odd fields from now on; its id stays."""
        fields = {name: value for name, value in ODD[kind].items() if name != "run_id"}
        self.runs[run_id] |= {"updated_at": self._stored(self.now), **fields}
        self.note(run_id)

    def arrive(self, count: int, status: str, *, together: bool = False, kind: str = "") -> None:
        """Add new runs, one after the other or in the same instant; odd ones of a kind."""
        for n in range(count):
            number = len(self.lives)
            run_id, fields = f"run_{number:05}", {**ODD, **UNIDENTIFIED}.get(kind, {})
            if kind == "numeric run_id":
                run_id, fields = f"{number}", {"run_id": number}
            self.put(run_id, status, created=self.true_now - (0 if together else count - 1 - n) * TICK)
            self.runs[run_id] |= fields
            self.lives[run_id].clear()
            self.note(run_id)

    def nth(self, place: int, statuses: Container[str]) -> str | None:
        """The run at this position among those with these statuses."""
        found = sorted((self.created(run_id), run_id) for run_id, run in self.runs.items() if run["status"] in statuses)
        return found[-1 - place % len(found)][1] if found else None

    @property
    def hides_its_past(self) -> bool:
        """Whether its clock was set back while its list was out of order.

        Then runs came where no poll must look again.
        """
        was_set_back = any(later < earlier for earlier, later in pairwise(self.clock_offsets))
        return was_set_back and not self.is_orderly

    @property
    def shows_its_future(self) -> bool:
        """Whether its clock was set back, and is still before the times that it showed."""
        return any(self.created(run_id) > self.now + self.clock_offset for run_id in self.runs)

    @property
    def is_orderly(self) -> bool:
        """Whether its list, read without changes, proves that it is complete."""
        has_times = all(isinstance(self.document(run).get(name), str) for run in self.runs.values() for name in TIMES)
        is_plain = self.show_time in (stamp, seconds, milliseconds) and self.order == "created_at"
        return has_times and is_plain and not self.endless and self.total_count is None


Held = Mapping[str, RunDetail]


def check_coverage(peer: Recorder, held: Held, coverage: Coverage) -> None:
    """Assert that no run is missing from claimed periods, and that entries without an id are reported."""
    for number, claim in enumerate(coverage.ranges):
        # The newest range is complete as of a time; the others are closed.
        as_of = coverage.as_of if number == 0 else peer.now
        missing = [
            run_id
            for run_id in peer.identified().keys() - held.keys()
            if as_of is not None
            and peer.born[run_id] < as_of
            and (claim.start is None or claim.start <= peer.read(run_id))
            and (number == 0 or (claim.end is not None and peer.read(run_id) <= claim.end))
        ]
        assert not missing, (claim, as_of, missing)


class SyncModel(RuleBasedStateMachine):
    """A service with some habits, and one data folder whose engine survives everything."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.open = contextlib.AsyncExitStack()
        self.engine: Any = None
        self.peer = TimedRecorder()
        self.polled_at: datetime | None = None
        """Our clock at the start of the last poll, if it succeeded and nothing happened since."""

    @initialize(habits=st.lists(st.sampled_from(HABITS), max_size=3).map(dict), count=st.sampled_from([0, 3, 12, 40]))
    def begin(self, habits: dict[str, Any], count: int) -> None:
        async def start() -> None:
            folder = self.open.enter_context(tempfile.TemporaryDirectory())
            self.open.enter_context(self.peer)
            self.desk = Desk(self.peer, Path(folder))
            await self.reopen()

        self.peer = TimedRecorder(**habits)
        for n in range(count):
            created = START - (count - n) * 7 * MINUTE
            self.peer.put(f"run_{n:05}", FINAL[n % 3], created=created, updated=created + (10 + n % 40) * SECOND)
        self.runner.run(start())

    def teardown(self) -> None:
        if self.engine is not None:
            self.settle()
        self.runner.run(self.open.aclose())
        self.runner.close()

    # the service's side

    @rule(
        count=st.sampled_from([1, 2, 7, 30]),
        status=st.sampled_from([*ACTIVE, *FINAL]),
        together=st.booleans(),
        kind=st.one_of(st.just(""), st.sampled_from(KINDS)),
    )
    def runs_arrive(self, count: int, status: str, together: bool, kind: str) -> None:
        self.peer.arrive(count, status, together=together, kind=kind)

    @rule(place=PLACES, kind=st.sampled_from(sorted(ODD)))
    def a_run_becomes_odd(self, place: int, kind: str) -> None:
        if run_id := self.peer.nth(place, ACTIVE + FINAL):
            self.peer.distort(run_id, kind)

    @rule(place=PLACES, status=st.sampled_from([*ACTIVE, *FINAL]), backwards=st.booleans())
    def an_active_run_moves(self, place: int, status: str, backwards: bool) -> None:
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
        def fail() -> Step:
            if fault == "limited":
                return self.peer.rate_limited(3_600)
            return CUT if fault == "truncated" else Drop() if fault == "reset" else Respond(503, {"message": "Down."})

        self.peer.before(request, fail)

    @rule(gone=st.sampled_from([SECOND, 10 * SECOND, HOUR, 30 * HOUR]))
    def time_passes(self, gone: timedelta) -> None:
        self.peer.true_now += gone

    @rule(by=st.sampled_from([-13 * HOUR, -HOUR, HOUR]))
    def the_services_clock_is_set(self, by: timedelta) -> None:
        query = "SELECT count(*) FROM notes WHERE name = 'clock_ahead_us'"
        read = self.engine.cache.writer.run(lambda connection: connection.execute(query).fetchone()[0])
        self.peer.set_clock(by, is_heard=bool(self.runner.run(read)))

    # our side

    @rule()
    def poll(self) -> None:
        self.carry_out(self.refreshed())

    @rule(odd=st.sampled_from(HOSTS))
    def poll_health(self, odd: Any) -> None:
        self.peer.health = {"gitlab": {"status": "healthy"}, "github": odd}
        self.carry_out(self.engine.health.refresh())

    @rule(count=st.sampled_from([1, 7, None]), status=st.sampled_from([(), (), ("failed",)]))
    def list_runs(self, count: int | None, status: tuple[str, ...]) -> None:
        self.carry_out(listed(self.engine, RunFilter(statuses=status), count))

    @rule()
    def fill_gaps(self) -> None:
        self.carry_out(self.engine.backfill.run())

    @rule(what=st.sampled_from(["poll", "fill"]), request=st.integers(1, 9), awaits=st.integers(0, 60))
    def the_poller_is_killed(self, what: str, request: int, awaits: int) -> None:
        """Kill the process at a request, or after this many steps; it closes nothing."""

        async def killed() -> None:
            doing = asyncio.create_task(self.refreshed() if what == "poll" else self.engine.backfill.run())
            if awaits > 30:
                self.peer.before(request, lambda: doing.cancel() and None)
            else:
                for _ in range(awaits):
                    await asyncio.sleep(0)
                doing.cancel()
            async with asyncio.timeout(HANGS_S):
                with contextlib.suppress(asyncio.CancelledError, ApiError):
                    await doing
            await self.reopen(dropping=True)

        self.runner.run(killed())

    @rule()
    def restart(self) -> None:
        self.runner.run(self.reopen())

    @precondition(lambda self: self.engine is not None)
    @rule()
    def settle(self) -> None:
        """With the service healthy and unchanged, everything is found out."""
        self.peer.upcoming.clear()
        self.restart()
        for step in ("runs", "runs", "history", "history", "runs", "health"):
            self.peer.true_now += MINUTE
            steps = {"runs": self.refreshed, "history": self.engine.backfill.run, "health": self.engine.health.refresh}
            error = self.carry_out(steps[step]())
            assert error is None or (bool(self.peer.endless) and isinstance(error, EndlessListError)), (step, error)
        self.runner.run(self.equals())

    async def refreshed(self) -> None:
        started_at = self.peer.now
        await self.engine.runs.refresh()
        self.polled_at = started_at

    def carry_out(self, doing: Any) -> ApiError | None:
        """Do it; after a failure, do it with a new process whose wait is over."""

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
            # Its recorded wait is dropped.
            await self.engine.client.budget.settle()
            await self.engine.cache.writer.run(lambda connection: connection.execute("DELETE FROM budget").rowcount)
        if self.engine is not None and not dropping:
            await self.engine.close()
        self.engine = await self.open.enter_async_context(
            self.desk.engine(clock=lambda: self.peer.now, page_size=PAGE, first_runs=2 * PAGE)
        )
        self.compare_clocks(self.engine.client.budget)

    def compare_clocks(self, budget: Budget) -> None:
        """Compare the clocks in the model's time, since the budget uses the real one."""
        hear = budget.read_headers

        def heard(headers: Mapping[str, str], sent_s: float) -> None:
            hear(headers, sent_s)
            budget.heard_ahead = self.peer.clock_offset

        self.engine.client.transport.on_headers = heard

    # claims

    @invariant()
    def nothing_false_is_claimed(self) -> None:
        if self.engine is not None:
            self.runner.run(self.check())

    async def check(self) -> None:
        """Every live run is cached, every current status was true when seen, and active runs are in the last poll."""
        held = await self.held()
        if not self.peer.hides_its_future:
            check_coverage(self.peer, held, await self.engine.cache.coverage())
        for run_id, detail in held.items():
            seen_at, status = detail.last_seen_at, detail.run.status
            if detail.presence == "lost":
                assert run_id not in self.peer.runs, f"{run_id} lives, and is called lost"
            elif detail.presence == "current":
                was_so = self.peer.had(run_id, status, seen_at, seen_at + SLACK)
                assert was_so, (run_id, detail, self.peer.lives[run_id])
                assert self.polled_at is None or status not in ACTIVE or seen_at >= self.polled_at, (run_id, seen_at)

    async def equals(self) -> None:
        """The cache has what the service has, and says so if the service's list is in order."""
        peer, held, coverage = self.peer, await self.held(), await self.engine.cache.coverage()
        if peer.shuffles_ties or peer.hides_its_future or peer.shows_its_future or peer.hides_its_past:
            return  # Some runs of one instant may only be shown by chance, or some are below what is read.
        lives = peer.identified()
        assert sorted(lives.keys() - held.keys()) == []
        first = min((peer.read(run_id) for run_id in peer.runs), default=None)
        reaches = first is None or (coverage.complete_since is not None and coverage.complete_since <= first)
        assert coverage.whole or reaches or not peer.is_orderly, coverage
        assert [run_id for run_id in lives if held[run_id].presence == "lost"] == []
        active = {
            run_id: json.loads(each.run.raw_json)
            for run_id, each in held.items()
            if each.presence == "current" and each.run.status in ACTIVE
        }
        assert [(shown, lives.get(run_id)) for run_id, shown in active.items() if shown != lives.get(run_id)] == []

    async def held(self) -> Held:
        runs = await self.engine.cache.runs(RunFilter(), limit=None)
        return await self.engine.cache.details([run.run_id for run in runs])


SMALL: Final = settings(
    max_examples=8,
    stateful_step_count=20,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # Failing examples are long, and shrinking takes longer than reading them.
    suppress_health_check=list(HealthCheck),
)


class TestSmall(SyncModel.TestCase):
    """A few histories, the same ones each time."""

    settings = SMALL


@pytest.mark.campaign
@pytest.mark.timeout(6 * 3_600)
class TestCampaign(SyncModel.TestCase):
    """Hundreds of longer histories, different each time."""

    settings = settings(SMALL, max_examples=500, stateful_step_count=40, derandomize=False)
