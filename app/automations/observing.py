"""Observing: what cache and ledger hold that may set a rule off."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.automations.occurrences import Seen
from app.notify.incidents import IncidentReader
from storage.cache import Cache
from storage.ledger import Ledger
from storage.records.following import Watermark

LOOK_BACK: Final = timedelta(days=31)
"""Runs that are first seen, and are older than this, are history."""


@dataclass(slots=True)
class Observer:
    """Reads one profile's cache and ledger; changes of status only since what was `passed`."""

    cache: Cache
    ledger: Ledger
    incidents: IncidentReader
    _watermark: Watermark = field(default_factory=Watermark)
    _file: int = 0
    """Which of the cache's files the watermark belongs to."""

    async def observe(self, now: datetime) -> Seen:
        """What can set rules off now.

        Raises:
            StorageError: Cache or ledger cannot be read.
        """
        if self._file != self.cache.opened:
            self._file, self._watermark = self.cache.opened, Watermark()
        ahead = await self.cache.run_clock_ahead()
        found = await self.cache.following.changes(self._watermark, since=now + ahead - LOOK_BACK)
        return Seen(
            now,
            found.changes,
            ahead,
            await self.cache.following.stuck_runs(),
            await self.incidents.read(now),
            await self.ledger.unresolved(),
            found.watermark,
        )

    def passed(self, seen: Seen) -> None:
        """Everything seen then was decided on: the next look begins after it."""
        self._watermark = seen.watermark
