"""Waiting for logs to grow: one thread checks for all waiting requests, with a connection only while it checks."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from service.store.turn_files import Key

Look = Callable[[Sequence[Key]], Awaitable[Mapping[Key, tuple[int, bool]]]]
"""Given turns: how long the log of each is, and whether the turn has ended; those that are gone are left out."""
_PAUSE_S: Final = 0.4


class LogWatch:
    """Wakes requests that wait for a log, on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Key, set[tuple[int, asyncio.Future[None]]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def grown(self, look: Look, key: Key, size: int, patience_s: float) -> None:
        """Wait until a log is longer than a size, or its turn has ended or is gone, or patience is over."""
        if self._is_closed or patience_s <= 0:
            return
        entry = (size, asyncio.get_running_loop().create_future())
        self._waiting[key].add(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(look))
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(entry[1], patience_s)
        finally:
            self._waiting[key].discard(entry)
            if not self._waiting[key]:
                del self._waiting[key]

    def close(self) -> None:
        """Answer all waiting requests, and accept no more: the service goes down."""
        self._is_closed = True
        self._wake({})

    async def _watch(self, look: Look) -> None:
        while self._waiting:
            try:
                found = await look(list(self._waiting))
            except Exception:  # noqa: BLE001 — the boundary: who waited asks for itself, and answers with the fault
                found = {}
            self._wake(found)
            await asyncio.sleep(_PAUSE_S)

    def _wake(self, found: Mapping[Key, tuple[int, bool]]) -> None:
        for key, entries in self._waiting.items():
            length, is_over = found.get(key, (0, True))
            for size, future in entries:
                if not future.done() and (is_over or length > size):
                    future.set_result(None)
