"""Threads beside those that requests run in, so that slow work of one kind does not hold up the rest."""

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio.to_thread

T = TypeVar("T")


class Threads:
    """At most `size` calls at a time, and of those at most `share` for the same caller; the others wait their turn."""

    def __init__(self, size: int, share: int | None = None) -> None:
        self._size = size
        self._share = share or size
        self._all: anyio.CapacityLimiter | None = None
        self._callers: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    async def run(self, call: Callable[[], T], caller: str = "") -> T:
        """Call in a thread and return what it returns."""
        if self._all is None:
            self._all = anyio.CapacityLimiter(self._size)
        own = self._callers.get(caller)
        if own is None:
            own = self._callers[caller] = anyio.CapacityLimiter(self._share)
        async with own:
            return await anyio.to_thread.run_sync(call, limiter=self._all)
