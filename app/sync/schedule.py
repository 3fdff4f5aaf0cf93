"""Jobs on the event loop that set their own pace, run by APScheduler.

A job's work returns the seconds until its next run. A job that hangs is stopped at its deadline, one that fails is
reported and tried again, and a clock that jumps (suspend, NTP, a user) causes one catch-up run.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from msgspec import Struct, field

from storage import RunwardenError

JobWork = Callable[[], Awaitable[float]]
"""Do the job once; return the seconds until its next run."""

WATCH_S: Final = 5.0
"""How often the wall clock is compared with the monotonic one."""
JUMP_S: Final = 2.0
"""A larger difference is a jump of the clock."""

log = logging.getLogger(__name__)


class Schedule(Struct, eq=False):
    """Runs jobs until it is stopped. Start and stop it on the running event loop."""

    _deadline_s: float
    """A run that takes longer is cancelled."""
    _after_crash_s: float
    """The wait after a run that failed or hung."""
    _failed: Callable[[str], None] = lambda _: None
    """Called with the reason when the work failed or hung."""
    _scheduler: AsyncIOScheduler = field(default_factory=lambda: AsyncIOScheduler(timezone=UTC))
    broken: dict[str, str] = field(default_factory=dict)
    """The reason why a job's last run failed, other than one that the work itself reports, by job."""
    _jobs: dict[str, JobWork] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    """Monotonic seconds, by job; wall-clock times are computed again from these after a jump."""
    _watch: asyncio.Task[None] | None = None

    def start(self, jumped: Callable[[float], None] = lambda _: None) -> None:
        """Start; jobs that were added before run at once. `jumped` is called with the seconds of each jump."""
        self._scheduler.start()
        self._watch = asyncio.create_task(self._watch_clock(jumped), name="clock watch")

    def add(self, name: str, work: JobWork) -> None:
        """Add a job; its first run is at once."""
        self._jobs[name] = work
        self._plan(name, 0.0)

    def run_now(self, name: str) -> None:
        """Bring a job's next run forward to now; a run in progress counts as that run."""
        if name in self._jobs and name not in self._running:
            self._plan(name, 0.0)

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._jobs.clear()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        tasks = [*self._running.values(), *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _plan(self, name: str, wait_s: float) -> None:
        self._due[name] = time.monotonic() + wait_s
        self._scheduler.add_job(
            self._run,
            "date",
            run_date=datetime.now(UTC) + timedelta(seconds=wait_s),
            args=[name],
            id=name,
            replace_existing=True,
            # By default APScheduler drops a job that is a second late: after a suspend it would never run again.
            misfire_grace_time=None,
            coalesce=True,
            # `_running` lets one run through at a time. APScheduler counts a run until a moment after it finishes,
            # when the next one may be due already, and would drop that one.
            max_instances=2,
        )

    async def _run(self, name: str) -> None:
        work = self._jobs.get(name)
        task = asyncio.current_task()
        if work is None or task is None or name in self._running:
            return
        self._running[name] = task
        wait_s, problem = self._after_crash_s, ""
        try:
            async with asyncio.timeout(self._deadline_s):
                wait_s = await work()
            self.broken.pop(name, None)
        except asyncio.CancelledError:
            # Stopped: APScheduler would take the cancellation for an error and log it over the screen.
            if name in self._jobs:
                raise
        except TimeoutError:
            self.broken[name] = problem = f"It did not finish within {self._deadline_s:.0f} s and was stopped."
            log.warning("%s: %s", name, problem)
        except RunwardenError as error:
            problem = str(error)
            log.exception("%s failed", name)
        except Exception as error:
            # A job's boundary: the failure is reported, and the next run is still planned.
            self.broken[name] = problem = (
                f"It failed unexpectedly ({type(error).__name__}: {error}); see the log for details."
            )
            log.exception("%s broke", name)
        finally:
            if problem:
                self._failed(f"{name.capitalize()}: {problem}" if name in self.broken else problem)
            del self._running[name]
            if name in self._jobs:
                self._plan(name, wait_s)

    async def _watch_clock(self, jumped: Callable[[float], None]) -> None:
        while True:
            wall, steady = time.time(), time.monotonic()
            await asyncio.sleep(WATCH_S)
            jump_s = (time.time() - wall) - (time.monotonic() - steady)
            if abs(jump_s) > JUMP_S:
                log.info("the clock jumped by %+.0f s; planning every job again", jump_s)
                now = time.monotonic()
                for name in self._jobs.keys() - self._running.keys():
                    self._plan(name, max(0.0, self._due[name] - now))
                jumped(jump_s)
