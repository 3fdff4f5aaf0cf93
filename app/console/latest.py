"""Work that is asked for more often than it can be done: one at a time, and once more for all that came meanwhile."""

from collections.abc import Awaitable, Callable, Coroutine

Start = Callable[[Coroutine[None, None, None]], object]


class Latest:
    """Does its work as soon as it is asked; being asked while at it means once more, however often it was."""

    def __init__(self, work: Callable[[], Awaitable[None]], start: Start) -> None:
        """Nothing is done yet.

        Args:
            work: What to do; it reads what is wanted at its own beginning.
            start: Runs a coroutine in the background, such as a screen's `run_worker`.
        """
        self._work = work
        self._start = start
        self._wanted = False
        self._busy = False

    def ask(self) -> None:
        """Wants it done, with what is known now."""
        self._wanted = True
        if not self._busy:
            self._busy = True
            self._start(self._drain())

    async def _drain(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._work()
        finally:
            self._busy = False
