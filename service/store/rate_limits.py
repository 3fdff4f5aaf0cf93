"""The rate limit of an organization: a bucket of a minute's requests, which all processes share (spec 8)."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from service.clock import SECOND_MICROS, Clock
from service.store.database import Database, now_in
from service.store.rows import insert_new, update
from service.store.schema import rate_limits

_TAKES_PER_MINUTE: Final = 100
"""How often per minute, at most, a process asks the database about one organization under steady load."""


@dataclass(slots=True)
class _Allowance:
    """This process's unspent part of an organization's bucket."""

    left: int = 0
    empty_until: float = 0.0
    """Monotonic seconds: before this the bucket is empty for every process."""
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(eq=False)
class RateLimiter:
    """Counts requests against the buckets in the database, in batches so that counting is cheap.

    No more requests pass than the bucket holds. Requests that a process took out but did not use are lost to the
    others: at most a hundredth of a minute's requests.
    """

    _database: Database
    _per_minute: int
    _clock: Clock
    _monotonic: Callable[[], float] = time.monotonic
    _allowances: dict[str, _Allowance] = field(default_factory=dict)

    def wait_s(self, organization_id: str) -> int | None:
        """Count one request; return None if it may pass, or the whole seconds to wait."""
        allowance = self._allowances.setdefault(organization_id, _Allowance())
        with allowance.lock:
            if allowance.left == 0 and self._monotonic() >= allowance.empty_until:
                batch = max(1, self._per_minute // _TAKES_PER_MINUTE)
                with self._database.write() as connection:
                    taken, wait_s = take(connection, organization_id, batch, self._per_minute, self._clock)
                allowance.left = taken
                # The bucket fills only with time, so requests are refused until then without asking the database.
                allowance.empty_until = self._monotonic() + wait_s
            if allowance.left:
                allowance.left -= 1
                return None
            return max(1, math.ceil(allowance.empty_until - self._monotonic()))


def take(
    connection: sa.Connection, organization_id: str, count: int, per_minute: int, clock: Clock
) -> tuple[int, float]:
    """Take up to `wanted` requests out of the bucket; return how many, and, if none, the seconds until there is one."""
    now = now_in(connection, clock)
    row = {"organization_id": organization_id, "remaining": float(per_minute), "counted_at": now}
    insert_new(connection, rate_limits, row)
    is_own = rate_limits.c.organization_id == organization_id
    columns = (rate_limits.c.remaining, rate_limits.c.counted_at)
    remaining, counted_at = connection.execute(sa.select(*columns).where(is_own).with_for_update()).one()
    per_second = per_minute / 60
    # A clock that was set back refills nothing; a clock that was set forward fills the bucket at most.
    passed_s = max(0, now - counted_at) / SECOND_MICROS
    remaining = min(float(per_minute), remaining + passed_s * per_second)
    taken = min(count, int(remaining))
    update(connection, rate_limits, is_own, remaining=remaining - taken, counted_at=now)
    return taken, 0.0 if taken else (1 - remaining) / per_second
