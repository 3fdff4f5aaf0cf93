"""A past of the hosts' health, sample by sample."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from storage.records import HealthReport, HealthSample
from tests.console.conftest import Scene

Lived = Callable[..., Awaitable[None]]

DAYS_AGO = 2.5
EVERY = timedelta(minutes=10)
TROUBLES: Sequence[tuple[str, str, float, float]] = (
    ("gitlab", "unreachable", 31.0, 30.0),
    ("gitlab", "degraded", 30.0, 28.5),
    ("github", "degraded", 14.0, 13.5),
    ("gitlab", "unauthorized", 9.0, 8.5),
    ("gitlab", "degraded", 0.2, 0.0),
)
"""Platform, status, and hours before now of beginning and end."""
SILENCE = (20.0, 16.0)
"""Hours before now in which nobody looked."""


def report(**statuses: str) -> HealthReport:
    where = {"gitlab": ("gitlab.acme.example", "acme")}
    return HealthReport(
        tuple(HealthSample(name, status, *where.get(name, (None, None)), "{}") for name, status in statuses.items())
    )


@pytest.fixture
def lived() -> Lived:
    """Two and a half days of samples, with troubles and a silence; the screen has seen them."""

    async def live(scene: Scene) -> None:
        now, before = scene.clock(), timedelta(days=DAYS_AGO)
        while before >= timedelta(0):
            hours = before.total_seconds() / 3600
            troubles = {platform: status for platform, status, start, end in TROUBLES if end <= hours < start}
            statuses = {"github": "ok", "gitlab": "ok", **troubles}
            if not SILENCE[1] <= hours < SILENCE[0]:
                await scene.engine.cache.store_health(report(**statuses), at=now - before)
            before -= EVERY
        await scene.ring()
        await scene.tick(seconds=1)

    return live
