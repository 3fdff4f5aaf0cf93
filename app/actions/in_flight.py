"""Actions under way: a cancelled caller loses no outcome."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

log = logging.getLogger(__name__)

OutcomeT = TypeVar("OutcomeT")


class InFlight:
    """Actions being sent or recorded: no outcome is lost because its caller was cancelled."""

    def __init__(self) -> None:
        self._sending: set[asyncio.Task[Any]] = set()
        self._settling: set[asyncio.Task[Any]] = set()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the current task as sending: `close` cancels it."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError
        self._sending.add(task)
        try:
            yield
        finally:
            self._sending.discard(task)

    async def to_its_end(self, settling: Coroutine[Any, Any, OutcomeT]) -> OutcomeT:
        """Finish the work even if the waiting task is cancelled; that task is cancelled afterwards."""
        task = asyncio.create_task(settling)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                log.warning("%s", failure)
            raise

    async def close(self) -> None:
        """Cancel what is being sent; return once every outcome is recorded."""
        for task in self._sending:
            task.cancel()
        while rest := (self._sending | self._settling) - {asyncio.current_task()}:
            await asyncio.wait(rest)
