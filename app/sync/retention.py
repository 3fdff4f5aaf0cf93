"""Old runs are dropped from the cache, as the configuration says."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from app.engine.events import Announce, RunsChanged
from app.profiles import HistorySettings
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import RunChanges

_EVERY_S: Final = 3600.0
_MEGABYTE: Final = 1_000_000


class Retention(Struct, frozen=True):
    """Drops the oldest runs of a cache that has grown too old or too large."""

    cache: Cache
    ledger: Ledger
    announce: Announce
    history: HistorySettings
    clock: Callable[[], datetime]

    async def work(self) -> float:
        """Drop runs that are too old or too many; return the seconds until the next check."""
        kept = await self.ledger.run_ids()
        dropped = 0
        if self.history.keep_days:
            before = self.clock() - timedelta(days=self.history.keep_days)
            while some := await self.cache.drop_oldest(before, kept):
                dropped += some
        while self.history.max_mb and await self.cache.used_bytes() > self.history.max_mb * _MEGABYTE:
            some = await self.cache.drop_oldest(None, kept)
            dropped += some
            if not some:
                break  # Only active and followed runs and those in the ledger are left.
            await asyncio.sleep(0)
        if dropped:
            self.announce(RunsChanged(RunChanges()))
        return _EVERY_S
