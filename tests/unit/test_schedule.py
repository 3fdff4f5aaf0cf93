"""Jobs that pace themselves."""

import asyncio
import logging

import pytest

from app.sync.schedule import Job, Schedule
from tests.waiting import until


@pytest.fixture
async def schedule() -> Schedule:
    schedule = Schedule()
    schedule.start()
    yield schedule
    await schedule.stop()


async def test_a_job_that_breaks_is_told_and_tried_again(schedule: Schedule, caplog: pytest.LogCaptureFixture) -> None:
    """One broken run is not the end of the job, and it stays known as broken until it works, at its own pace."""
    is_broken, runs, problems = True, list[bool](), list[str]()

    async def work() -> float:
        runs.append(is_broken)
        if is_broken:
            raise RuntimeError("no luck")
        return 0.0

    with caplog.at_level(logging.ERROR):
        schedule.add(Job("job", work, 60.0, 0.0, problems.append))
        await until(lambda: len(runs) > 1, "a second run begins")

    assert "job broke" in caplog.text
    assert schedule.broken["job"].startswith("It broke (RuntimeError: no luck)")
    assert problems[0] == f"Job: {schedule.broken['job']}"
    is_broken = False
    await until(lambda: not schedule.broken, "it works again")
    await until(lambda: runs[-3:] == [False] * 3, "it goes on")


async def test_a_job_that_hangs_is_stopped_by_its_deadline(schedule: Schedule) -> None:
    """A hanging run does not silence the runs after it."""
    calls: list[int] = []

    async def hang() -> float:
        calls.append(1)
        await asyncio.Event().wait()
        return 0.0

    schedule.add(Job("job", hang, 0.01, after_crash_s=0.0))

    await until(lambda: len(calls) > 1, "a second run begins")
    assert "did not end within" in schedule.broken["job"]


async def test_stop_ends_runs_that_are_under_way() -> None:
    """Nothing goes on after stop has returned."""
    steps: list[str] = []

    async def long() -> float:
        steps.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")
        return 0.0

    schedule = Schedule()
    schedule.start()
    schedule.add(Job("job", long, 60.0, after_crash_s=0.0))
    await until(lambda: steps, "the job runs")
    await schedule.stop()

    assert steps == ["began", "ended"]
