"""Jobs that pace themselves."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from app.sync.schedule import Schedule
from tests.waiting import until


@asynccontextmanager
async def started(schedule: Schedule) -> AsyncIterator[Schedule]:
    schedule.start()
    yield schedule
    await schedule.stop()


async def test_a_failing_job_is_reported_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """The job continues, and stays marked as failing until it succeeds, at its own pace."""
    is_broken, runs, problems = True, list[bool](), list[str]()

    async def work() -> float:
        runs.append(is_broken)
        if is_broken:
            raise RuntimeError("no luck")
        return 0.0

    async with started(Schedule(60.0, 0.0, problems.append)) as schedule:
        with caplog.at_level(logging.ERROR):
            schedule.add("job", work)
            await until(lambda: len(runs) > 1, "a second run begins")

        assert "job broke" in caplog.text
        assert schedule.broken["job"].startswith("It failed unexpectedly (RuntimeError: no luck)")
        assert problems[0] == f"Job: {schedule.broken['job']}"
        is_broken = False
        await until(lambda: not schedule.broken, "it works again")
        await until(lambda: runs[-3:] == [False] * 3, "it goes on")


async def test_a_hanging_job_is_stopped() -> None:
    """A hanging run does not prevent later ones."""
    calls: list[int] = []

    async def hang() -> float:
        calls.append(1)
        await asyncio.Event().wait()
        return 0.0

    async with started(Schedule(0.01, 0.0)) as schedule:
        schedule.add("job", hang)

        await until(lambda: len(calls) > 1, "a second run begins")
        assert "did not finish within" in schedule.broken["job"]


async def test_stop_cancels_running_jobs() -> None:
    """Nothing runs after stop has returned."""
    steps: list[str] = []

    async def long() -> float:
        steps.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")
        return 0.0

    schedule = Schedule(60.0, 0.0)
    schedule.start()
    schedule.add("job", long)
    await until(lambda: steps, "the job runs")
    await schedule.stop()

    assert steps == ["began", "ended"]


async def test_a_clock_jump_runs_each_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspended machine finds its clock ahead; each job keeps its monotonic due time, and is not repeated."""
    monkeypatch.setattr("app.sync.schedule.WATCH_S", 0.0)
    planned: list[datetime] = []
    add_job = AsyncIOScheduler.add_job

    def noted(self: AsyncIOScheduler, *arguments: Any, **options: Any) -> Any:
        planned.append(options["run_date"])
        return add_job(self, *arguments, **options)

    monkeypatch.setattr(AsyncIOScheduler, "add_job", noted)
    jumps: list[float] = []
    schedule, slept_s = Schedule(60.0, 0.0), 0.0
    clock = SimpleNamespace(time=lambda: time.time() + slept_s, monotonic=time.monotonic)
    monkeypatch.setattr("app.sync.schedule.time", clock)
    schedule.start(jumps.append)
    runs: list[int] = []

    async def work() -> float:
        runs.append(1)
        return 3600.0

    schedule.add("job", work)
    await until(lambda: runs, "it has run")
    slept_s = 28_800.0
    await until(lambda: jumps, "the jump is reported")
    await schedule.stop()

    assert jumps == [pytest.approx(28_800, abs=60)]
    assert runs == [1]
    assert timedelta(0) < planned[-1] - datetime.now(UTC) <= timedelta(hours=1)
