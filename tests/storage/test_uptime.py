"""The hosts' health over time: what is known, and what is not."""

from datetime import timedelta

from storage.cache import Cache
from storage.records import HealthReport, HealthSample, HealthSpan
from tests.storage.conftest import NOON

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
GAP = 10 * MINUTE


def report(**statuses: str) -> HealthReport:
    return HealthReport(tuple(HealthSample(name, status, None, None, "{}") for name, status in statuses.items()))


async def test_a_status_holds_until_the_next_sample(cache: Cache) -> None:
    """Between two samples that are near each other nothing is unknown."""
    for minute, status in ((0, "ok"), (1, "ok"), (2, "bad"), (3, "ok")):
        await cache.store_health(report(github=status, gitlab="ok"), at=NOON + minute * MINUTE)

    spans = await cache.health_spans(NOON - DAY, longest_gap=GAP)

    assert spans == (
        HealthSpan("github", "ok", NOON, NOON + 2 * MINUTE),
        HealthSpan("github", "bad", NOON + 2 * MINUTE, NOON + 3 * MINUTE),
        HealthSpan("github", "ok", NOON + 3 * MINUTE, NOON + 3 * MINUTE),
        HealthSpan("gitlab", "ok", NOON, NOON + 3 * MINUTE),
    )


async def test_a_long_silence_is_unknown(cache: Cache) -> None:
    """Even between two samples of the same status; unless samples are meant to be that far apart."""
    await cache.store_health(report(github="ok"), at=NOON)
    await cache.store_health(report(github="ok"), at=NOON + 30 * MINUTE)

    assert await cache.health_spans(NOON - DAY, longest_gap=GAP) == (
        HealthSpan("github", "ok", NOON, NOON),
        HealthSpan("github", "ok", NOON + 30 * MINUTE, NOON + 30 * MINUTE),
    )
    assert await cache.health_spans(NOON - DAY, longest_gap=45 * MINUTE) == (
        HealthSpan("github", "ok", NOON, NOON + 30 * MINUTE),
    )


async def test_a_clock_set_back_makes_no_time_run_backwards(cache: Cache) -> None:
    """Stretches stay in order and never overlap."""
    for minute, status in ((5, "ok"), (3, "bad"), (6, "bad")):
        await cache.store_health(report(github=status), at=NOON + minute * MINUTE)

    spans = await cache.health_spans(NOON - DAY, longest_gap=GAP)

    assert spans == (
        HealthSpan("github", "ok", NOON + 5 * MINUTE, NOON + 5 * MINUTE),
        HealthSpan("github", "bad", NOON + 5 * MINUTE, NOON + 6 * MINUTE),
    )


async def test_old_spans_and_changes_are_forgotten(cache: Cache) -> None:
    """What ended more than 35 days ago goes; the last change of each platform stays, since its state began there."""
    await cache.store_health(report(github="ok", gitlab="ok"), at=NOON)
    await cache.store_health(report(github="bad", gitlab="ok"), at=NOON + MINUTE)
    await cache.store_health(report(github="ok", gitlab="ok"), at=NOON + 40 * DAY)

    spans = await cache.health_spans(NOON - DAY, longest_gap=GAP)

    assert [(span.platform, span.start) for span in spans] == [("github", NOON + 40 * DAY), ("gitlab", NOON + 40 * DAY)]
    github, gitlab = await cache.health()
    assert [change.new for change in github.history] == ["ok"]
    assert [change.new for change in gitlab.history] == ["ok"]
