"""How far a walk down the run list has come, and what the cache holds completely because of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from storage.cache import Cache
from storage.records import RunPage

TICK: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class HeadScan:
    """A walk from the newest run downwards, page by page, with nothing left out on the way."""

    since: datetime | None = None
    """The oldest creation that was asked for, inclusive. None: down to the very first run."""
    newest: datetime | None = None
    oldest: datetime | None = None
    ended: bool = False
    """The service said that there is no further page."""

    def step(self, page: RunPage) -> None:
        """Takes the next page in."""
        times = [run.created_at for run in page.runs if run.created_at is not None]
        self.newest = max([*times, *([self.newest] if self.newest else [])], default=None)
        self.oldest = min([*times, *([self.oldest] if self.oldest else [])], default=None)
        self.ended = page.next_token is None

    async def keep(self, cache: Cache, now: datetime) -> None:
        """Notes in the cache which range of time is held completely now.

        Args:
            cache: Where the runs of every page are already.
            now: Up to when an empty list is known to be empty.
        """
        if self.ended:
            await cache.extend_coverage(self.since, max(self.newest or now, self.since or now))
        elif self.newest is not None and self.oldest is not None and self.oldest < self.newest:
            # Others of the oldest one's very instant may be on the next page.
            await cache.extend_coverage(self.oldest + TICK, self.newest)
