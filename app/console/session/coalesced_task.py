"""Work that is requested more often than it can be done: one run at a time, then one more for all later requests."""

import asyncio
from collections.abc import Callable, Coroutine

Start = Callable[[Callable[[], Coroutine[None, None, None]]], object]


class CoalescedTask:
    """Runs its work when asked; requests during a run lead to exactly one more run."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]], start: Start) -> None:
        """Prepare; `start` runs a coroutine function in the background, such as a screen's `run_worker`."""
        self._work = work
        self._start = start
        self._wanted = False
        self._busy = False
        self._run: asyncio.Task[None] | None = None
        self._is_given_up = False

    def ask(self) -> None:
        """Run the work now, or once more after the current run."""
        self._wanted = True
        if not self._busy:
            self._busy = True
            self._start(self._drain)

    def ask_anew(self) -> None:
        """Run the work now: a current run is cancelled, since nobody needs its result."""
        if self._run is not None:
            self._is_given_up = True
            self._run.cancel()
        self.ask()

    async def _drain(self) -> None:
        has_failed = False
        try:
            while self._wanted:
                self._wanted = self._is_given_up = False
                self._run = asyncio.ensure_future(self._work())
                try:
                    await self._run
                except asyncio.CancelledError:
                    if not self._is_given_up:
                        self._run.cancel()
                        raise
                finally:
                    self._run = None
        except Exception:
            has_failed = True
            raise
        finally:
            self._busy = False
            # The error is reported at once; requests from before it are served by another task.
            if has_failed and self._wanted:
                self.ask()
