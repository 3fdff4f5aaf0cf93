"""The rate limit of an organization: a bucket that refills steadily (spec 8)."""

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol


class RateLimit(Protocol):
    """Counts requests."""

    def wait_s(self, organization_id: str) -> int | None:
        """Count one request; return None when it may pass, else the whole seconds to wait."""
        ...


class TokenBuckets:
    """A bucket for each organization, in this process."""

    def __init__(self, per_minute: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._capacity = float(per_minute)
        self._per_second = per_minute / 60
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}
        """Organization to (what is left, when that was counted)."""
        self._lock = threading.Lock()

    def wait_s(self, organization_id: str) -> int | None:
        """Count one request; return None when it may pass, else the whole seconds to wait."""
        now = self._monotonic()
        with self._lock:
            left, counted = self._buckets.get(organization_id, (self._capacity, now))
            left = min(self._capacity, left + (now - counted) * self._per_second)
            passes = left >= 1
            self._buckets[organization_id] = (left - 1 if passes else left, now)
        return None if passes else math.ceil((1 - left) / self._per_second)
