"""Rate limits: one bucket for each organization, from which every process takes handfuls."""

import sqlalchemy as sa

from service.clock import SECOND_MICROS, Clock
from service.store.database import insert_new, now_in
from service.store.schema import rate_limits


def take(
    connection: sa.Connection, organization_id: str, wanted: int, per_minute: int, clock: Clock
) -> tuple[int, float]:
    """Take up to `wanted` requests out of the bucket; return how many, and the seconds until there is one again.

    The bucket holds a minute's worth and refills steadily. The seconds are 0 when something was taken.
    """
    now = now_in(connection, clock)
    row = {"organization_id": organization_id, "remaining": float(per_minute), "counted_at": now}
    insert_new(connection, rate_limits, row)
    mine = rate_limits.c.organization_id == organization_id
    columns = (rate_limits.c.remaining, rate_limits.c.counted_at)
    remaining, counted_at = connection.execute(sa.select(*columns).where(mine).with_for_update()).one()
    per_second = per_minute / 60
    # A clock that was set back refills nothing; one that was set forward no more than a full bucket.
    passed_s = max(0, now - counted_at) / SECOND_MICROS
    remaining = min(float(per_minute), remaining + passed_s * per_second)
    taken = min(wanted, int(remaining))
    connection.execute(sa.update(rate_limits).where(mine).values(remaining=remaining - taken, counted_at=now))
    return taken, 0.0 if taken else (1 - remaining) / per_second
