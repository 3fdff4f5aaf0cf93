"""The runs of several caches as one list, in one order."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from storage.cache.cache import Cache
from storage.cache.run_sql import in_order
from storage.records import RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from storage.records.run import row_id, split_row_id

T = TypeVar("T")


class MergedCaches(Struct, eq=False):
    """Reads the caches of several profiles, keyed by name. Equal runs are ordered by profile."""

    _caches: Mapping[str, Cache]

    async def count(self, condition: RunFilter) -> int:
        return sum(await self._each(lambda _, cache: cache.count(condition)))

    async def stuck(self) -> frozenset[str]:
        stuck = await self._each(lambda _, cache: cache.stuck())
        return frozenset(row_id(name, run_id) for name, ids in zip(self._caches, stuck, strict=True) for run_id in ids)

    async def window(self, request: WindowRequest) -> RunWindow:
        """The rows around a position, as `Cache.window`, without gaps and groups; each row has its profile."""
        condition, sort, limit = request.condition, request.sort, request.limit
        counts = dict(zip(self._caches, await self._each(lambda _, cache: cache.count(condition)), strict=True))
        total = sum(counts.values())
        anchor = await self._place(request.anchor_id, condition, sort)
        shift = 0 if anchor is None else anchor - request.anchor_index
        offset = max(0, min(request.offset + shift, total - limit))
        # From the nearer end: each cache may hold all rows up to there.
        from_end = total - offset
        is_near_end = from_end < offset + limit
        reach = from_end if is_near_end else offset + limit
        own_keys = await self._each(lambda _, cache: cache.keys(condition, sort, reach, is_backwards=is_near_end))
        keys = in_order([(key, name) for name, own in zip(self._caches, own_keys, strict=True) for key in own], sort)
        chosen = [name for _, name in (keys[-reach:] if is_near_end else keys[offset:])[:limit]]
        above = Counter(name for _, name in keys[:offset])
        if is_near_end:
            above = Counter(counts) - Counter(name for _, name in keys[-reach:])
        share = Counter(chosen)

        async def read(name: str) -> deque[RunRow]:
            rows = await self._caches[name].rows(condition, sort, offset=above[name], limit=share[name])
            return deque(row.of(name) for row in rows)

        rows = dict(zip(share, await asyncio.gather(*map(read, share)), strict=True))
        visible = tuple(rows[name].popleft() for name in chosen if rows[name])
        cursor = next((offset + at for at, row in enumerate(visible) if row.run_id == request.cursor_id), None)
        if cursor is None:
            cursor = await self._place(request.cursor_id, condition, sort)
        return RunWindow(total, offset, visible, shift, cursor)

    async def _place(self, row: str | None, condition: RunFilter, sort: RunSort) -> int | None:
        profile, run_id = split_row_id(row or "")
        key = None
        if profile in self._caches:
            key = await self._caches[profile].key(run_id, condition, sort)
        if key is None:
            return None
        names = list(self._caches)
        first = names[: names.index(profile)]
        return sum(
            await self._each(lambda name, cache: cache.rows_before(key, condition, sort, is_after_equal=name in first))
        )

    async def _each(self, read: Callable[[str, Cache], Awaitable[T]]) -> list[T]:
        """The results of one read per cache, in the order of the profiles."""
        return await asyncio.gather(*(read(name, cache) for name, cache in self._caches.items()))
