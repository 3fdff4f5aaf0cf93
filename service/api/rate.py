"""The rate limit of an organization, shared by every process on the database (spec 8)."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from service.clock import Clock
from service.store import rate_limits
from service.store.database import Database

_HANDFULS: Final = 100
"""So many times a minute at most a process goes to the database for one organization, when that asks steadily."""


class RateLimit(Protocol):
    """Counts requests."""

    def wait_s(self, organization_id: str) -> int | None:
        """Count one request; return None when it may pass, else the whole seconds to wait."""
        ...


@dataclass(slots=True)
class _Purse:
    """What this process has taken out of an organization's bucket and not yet spent."""

    left: int = 0
    empty_until: float = 0.0
    """Monotonic seconds: before this the bucket cannot have anything, whoever asks."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class SharedBuckets:
    """A bucket for each organization, in the database; each process spends from handfuls, so that counting is cheap.

    Never more passes than the bucket holds. What a process took and did not spend is missing to the others until it
    refills: a hundredth of a minute's worth at most.
    """

    def __init__(
        self, database: Database, per_minute: int, clock: Clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._per_minute = per_minute
        self._handful = max(1, per_minute // _HANDFULS)
        self._clock = clock
        self._monotonic = monotonic
        self._purses: dict[str, _Purse] = {}
        self._lock = threading.Lock()

    def wait_s(self, organization_id: str) -> int | None:
        """Count one request; return None when it may pass, else the whole seconds to wait."""
        with self._lock:
            purse = self._purses.setdefault(organization_id, _Purse())
        with purse.lock:
            if purse.left == 0 and self._monotonic() >= purse.empty_until:
                self._fill(purse, organization_id)
            if purse.left:
                purse.left -= 1
                return None
            return max(1, math.ceil(purse.empty_until - self._monotonic()))

    def _fill(self, purse: _Purse, organization_id: str) -> None:
        with self._database.write() as connection:
            taken, wait_s = rate_limits.take(connection, organization_id, self._handful, self._per_minute, self._clock)
        purse.left = taken
        # Others can only take: until then there is nothing, and refusing costs no look at the database.
        purse.empty_until = self._monotonic() + wait_s
