"""No action is left without its outcome in the ledger because whoever asked for it went away."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


class InFlight:
    """The actions that are being sent, and those whose outcome is being written down."""

    def __init__(self) -> None:
        self._sending: set[asyncio.Task[Any]] = set()
        self._settling: set[asyncio.Task[Any]] = set()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Within it, the task at work is broken off when this closes."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError
        self._sending.add(task)
        try:
            yield
        finally:
            self._sending.discard(task)

    async def to_its_end(self, settling: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Writes an outcome down, even when whoever waits for it is cancelled."""
        task = asyncio.create_task(settling)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Breaks off what is being sent; returns when every outcome is written down."""
        for task in self._sending:
            task.cancel()
        while rest := (self._sending | self._settling) - {asyncio.current_task()}:
            await asyncio.wait(rest)
