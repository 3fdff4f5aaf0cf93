"""The hosts' health over time: what is known, and what is not."""

from datetime import datetime, timedelta

from storage.cache import Cache
from storage.records import HealthReport, HealthSample, HealthSpan

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
GAP = 10 * MINUTE


def report(**statuses: str) -> HealthReport:
    return HealthReport(tuple(HealthSample(name, status, None, None, "{}") for name, status in statuses.items()))


async def test_a_status_holds_until_the_next_sample(cache: Cache, noon: datetime) -> None:
    """Between two samples that are near each other nothing is unknown."""
    for minute, status in ((0, "ok"), (1, "ok"), (2, "bad"), (3, "ok")):
        await cache.store_health(report(github=status, gitlab="ok"), at=noon + minute * MINUTE)

    spans = await cache.health_spans(noon - DAY, longest_gap=GAP)

    assert spans == (
        HealthSpan("github", "ok", noon, noon + 2 * MINUTE),
        HealthSpan("github", "bad", noon + 2 * MINUTE, noon + 3 * MINUTE),
        HealthSpan("github", "ok", noon + 3 * MINUTE, noon + 3 * MINUTE),
        HealthSpan("gitlab", "ok", noon, noon + 3 * MINUTE),
    )


async def test_a_long_silence_is_unknown(cache: Cache, noon: datetime) -> None:
    """Even between two samples of the same status; unless samples are meant to be that far apart."""
    await cache.store_health(report(github="ok"), at=noon)
    await cache.store_health(report(github="ok"), at=noon + 30 * MINUTE)

    assert await cache.health_spans(noon - DAY, longest_gap=GAP) == (
        HealthSpan("github", "ok", noon, noon),
        HealthSpan("github", "ok", noon + 30 * MINUTE, noon + 30 * MINUTE),
    )
    assert await cache.health_spans(noon - DAY, longest_gap=45 * MINUTE) == (
        HealthSpan("github", "ok", noon, noon + 30 * MINUTE),
    )


async def test_a_clock_set_back_makes_no_time_run_backwards(cache: Cache, noon: datetime) -> None:
    """Stretches stay in order and never overlap."""
    for minute, status in ((5, "ok"), (3, "bad"), (6, "bad")):
        await cache.store_health(report(github=status), at=noon + minute * MINUTE)

    spans = await cache.health_spans(noon - DAY, longest_gap=GAP)

    assert spans == (
        HealthSpan("github", "ok", noon + 5 * MINUTE, noon + 5 * MINUTE),
        HealthSpan("github", "bad", noon + 5 * MINUTE, noon + 6 * MINUTE),
    )


async def test_old_spans_and_changes_are_forgotten(cache: Cache, noon: datetime) -> None:
    """What ended more than 35 days ago goes; the last change of each platform stays, since its state began there."""
    await cache.store_health(report(github="ok", gitlab="ok"), at=noon)
    await cache.store_health(report(github="bad", gitlab="ok"), at=noon + MINUTE)
    await cache.store_health(report(github="ok", gitlab="ok"), at=noon + 40 * DAY)

    spans = await cache.health_spans(noon - DAY, longest_gap=GAP)

    assert [(span.platform, span.start) for span in spans] == [("github", noon + 40 * DAY), ("gitlab", noon + 40 * DAY)]
    github, gitlab = await cache.health()
    assert [change.new for change in github.history] == ["ok"]
    assert [change.new for change in gitlab.history] == ["ok"]
