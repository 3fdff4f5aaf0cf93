"""Work that is asked for more often than it can be done: one at a time, and once more for all that came meanwhile."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol


class Work(Protocol):
    """Something that was begun."""

    def cancel(self) -> object:
        """Gives it up."""


Start = Callable[[Coroutine[None, None, None]], Work]


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
        self._turn = 0
        """Counts what was given up: who comes back from an earlier turn has nothing to say."""
        self._busy: Work | None = None

    def ask(self) -> None:
        """Wants it done, with what is known now."""
        self._wanted = True
        if self._busy is None:
            self._busy = self._start(self._drain(self._turn))

    def restart(self) -> None:
        """Wants it done, and gives up what is being done: nobody waits for that any more."""
        busy, self._busy = self._busy, None
        self._turn += 1
        if busy is not None:
            busy.cancel()
        self.ask()

    async def _drain(self, turn: int) -> None:
        try:
            while self._wanted and turn == self._turn:
                self._wanted = False
                await self._work()
        finally:
            if turn == self._turn:
                self._busy = None
