"""Jobs on the event loop that set their own pace.

A job's work returns the seconds until its next run, by the monotonic clock. A job that hangs is stopped at its
deadline, and one that fails is reported and tried again. A clock that jumps (suspend, NTP, a user) is reported.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct

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
    broken: dict[str, str] = {}
    """The reason why a job's last run failed, other than one that the work itself reports, by job."""
    _jobs: dict[str, JobWork] = {}
    _running: dict[str, asyncio.Task[None]] = {}
    _next: dict[str, asyncio.TimerHandle] = {}
    """The next run, by job."""
    _watch: asyncio.Task[None] | None = None

    def start(self, jumped: Callable[[float], None] | None = None) -> None:
        """Start.

        `jumped` is called with the seconds that the wall clock jumped ahead: after a suspend, or when it was set.
        """
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
        """Cancel every run and wait until it has ended."""
        if self._watch is not None:
            self._watch.cancel()
        self._jobs.clear()
        for timer in self._next.values():
            timer.cancel()
        tasks = [*self._running.values(), *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _plan(self, name: str, wait_s: float) -> None:
        if name in self._next:
            self._next[name].cancel()
        self._next[name] = asyncio.get_running_loop().call_later(wait_s, self._begin, name)

    def _begin(self, name: str) -> None:
        self._running[name] = asyncio.create_task(self._run(name), name=name)

    async def _run(self, name: str) -> None:
        work = self._jobs[name]
        wait_s, problem = self._after_crash_s, ""
        try:
            async with asyncio.timeout(self._deadline_s):
                wait_s = await work()
            self.broken.pop(name, None)
        except TimeoutError:
            self.broken[name] = problem = f"It did not end within {self._deadline_s:.0f} s and was stopped."
            log.warning("%s: %s", name, problem)
        except RunwardenError as error:
            problem = str(error)
            log.exception("%s failed", name)
        except Exception as error:
            # A job's boundary: the failure is reported, and the next run is still planned.
            self.broken[name] = problem = f"It broke ({type(error).__name__}: {error}); the log has more."
            log.exception("%s broke", name)
        finally:
            if problem:
                self._failed(f"{name.capitalize()}: {problem}" if name in self.broken else problem)
            del self._running[name]
            if name in self._jobs:
                self._plan(name, wait_s)

    async def _watch_clock(self, jumped: Callable[[float], None] | None) -> None:
        while True:
            wall, steady = time.time(), time.monotonic()
            await asyncio.sleep(WATCH_S)
            jump_s = (time.time() - wall) - (time.monotonic() - steady)
            if abs(jump_s) > JUMP_S:
                log.info("the clock jumped by %+.0f s", jump_s)
                if jumped is not None:
                    jumped(jump_s)
