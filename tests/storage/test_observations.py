"""Health and link: what was observed, since when, and what is unknown."""

from datetime import timedelta

import pytest

from storage.cache.cache import Cache
from storage.records import HealthChange, HealthSample, HealthSpan, LinkState, PollOutcome
from tests.storage.conftest import NOON

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
GAP = 10 * MINUTE


def report(**statuses: str) -> tuple[HealthSample, ...]:
    samples = (HealthSample(name, status, "git.acme.test", "acme", "{}") for name, status in statuses.items())
    return tuple(samples)


async def test_a_missing_platform_is_disconnected(cache: Cache) -> None:
    """The platform is shown once as not connected; when it returns, its status begins anew."""
    await cache.store_health(report(github="ok", gitlab="ok"), at=NOON)

    gone = await cache.store_health(report(gitlab="ok"), at=NOON + MINUTE)
    assert gone == (HealthChange("github", "ok", None, NOON + MINUTE),)
    assert await cache.store_health(report(gitlab="ok"), at=NOON + 2 * MINUTE) == ()
    assert [(p.platform, p.connected) for p in await cache.health()] == [("github", False), ("gitlab", True)]

    back = await cache.store_health(report(github="ok", gitlab="ok"), at=NOON + 3 * MINUTE)
    assert back == (HealthChange("github", None, "ok", NOON + 3 * MINUTE),)
    github = (await cache.health())[0]
    assert (github.connected, github.since, github.before) == (True, NOON + 3 * MINUTE, None)
    await cache.store_health(report(github="bad"), at=NOON + 4 * MINUTE)
    await cache.store_health(report(github="bad"), at=NOON + 5 * MINUTE)
    assert (await cache.health())[0].before == "ok"

    # Observations that ended more than 35 days ago are dropped.
    await cache.store_health(report(github="bad", gitlab="ok"), at=NOON + 40 * DAY)
    spans = await cache.health_spans(NOON - DAY, longest_gap=GAP)
    assert [(span.platform, span.start) for span in spans] == [("github", NOON + 40 * DAY), ("gitlab", NOON + 40 * DAY)]


async def test_a_link_counts_from_its_first_failure(cache: Cache) -> None:
    """Failures count from the first one; the last success stays, and the next one clears them."""
    await cache.record_poll(PollOutcome("runs", NOON))
    await cache.record_poll(PollOutcome("runs", NOON + MINUTE, "timed_out", "slow"))

    failing = await cache.record_poll(PollOutcome("runs", NOON + 2 * MINUTE, "unreachable", "gone\udc80"))

    assert failing == LinkState("runs", NOON, NOON + MINUTE, 2, "unreachable", "gone?")
    assert failing.is_failing
    assert await cache.links() == (failing, LinkState("health"))
    assert await cache.record_poll(PollOutcome("runs", NOON + HOUR)) == LinkState("runs", NOON + HOUR)


@pytest.mark.parametrize(
    ("samples", "longest_gap", "spans"),
    [
        # A status holds until the next sample.
        ({0: "ok", 1: "ok", 2: "bad", 3: "ok"}, GAP, [("ok", 0, 2), ("bad", 2, 3), ("ok", 3, 3)]),
        # A long gap is unknown, even between two samples of the same status.
        ({0: "ok", 30: "ok"}, GAP, [("ok", 0, 0), ("ok", 30, 30)]),
        # Samples may be configured to be that far apart.
        ({0: "ok", 30: "ok"}, 45 * MINUTE, [("ok", 0, 30)]),
        # After a clock was set back, time still never runs backwards.
        ({5: "ok", 3: "bad", 6: "bad"}, GAP, [("ok", 5, 5), ("bad", 5, 6)]),
    ],
)
async def test_spans_are_ordered_and_exclude_unobserved_time(
    cache: Cache, samples: dict[int, str], longest_gap: timedelta, spans: list[tuple[str, int, int]]
) -> None:
    """Spans are precise to the minute, and other hosts' samples do not affect them."""
    for minute, status in samples.items():
        await cache.store_health(report(github=status, gitlab="ok"), at=NOON + minute * MINUTE)
    found = await cache.health_spans(NOON - DAY, longest_gap=longest_gap)

    assert [span for span in found if span.platform == "github"] == [
        HealthSpan("github", status, NOON + start * MINUTE, NOON + end * MINUTE) for status, start, end in spans
    ]
    assert {(span.platform, span.status) for span in found if span.platform != "github"} == {("gitlab", "ok")}
