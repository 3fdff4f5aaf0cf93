"""Health, link and stuck runs: what was observed, since when."""

from datetime import datetime, timedelta

from storage.cache import Cache
from storage.records import HealthChange, HealthReport, HealthSample, LinkState, PlatformHealth, PollOutcome

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def report(**statuses: str) -> HealthReport:
    samples = (HealthSample(name, status, "git.acme.test", "acme", "{}") for name, status in statuses.items())
    return HealthReport(tuple(samples))


async def test_the_first_report_connects(cache: Cache, noon: datetime) -> None:
    """Every platform of the very first report is a change from nothing."""
    changes = await cache.store_health(report(gitlab="ok", github="degraded"), at=noon)

    github = HealthChange("github", None, "degraded", noon)
    assert changes == (github, HealthChange("gitlab", None, "ok", noon))
    assert (await cache.health())[0] == PlatformHealth(
        "github", "degraded", "git.acme.test", "acme", since=noon, checked_at=noon, connected=True, history=(github,)
    )


async def test_the_same_status_confirms(cache: Cache, noon: datetime) -> None:
    """A status that stays keeps its beginning; only the check is newer."""
    await cache.store_health(report(github="ok"), at=noon)

    assert await cache.store_health(report(github="ok"), at=noon + MINUTE) == ()

    (github,) = await cache.health()
    assert (github.since, github.checked_at) == (noon, noon + MINUTE)


async def test_a_platform_left_out_is_no_longer_connected(cache: Cache, noon: datetime) -> None:
    """It stays on show as not connected, once; its return is a change from nothing, with a new beginning."""
    await cache.store_health(report(github="ok", gitlab="ok"), at=noon)

    gone = await cache.store_health(report(gitlab="ok"), at=noon + MINUTE)
    assert gone == (HealthChange("github", "ok", None, noon + MINUTE),)
    assert await cache.store_health(report(gitlab="ok"), at=noon + 2 * MINUTE) == ()
    assert [(p.platform, p.connected) for p in await cache.health()] == [("github", False), ("gitlab", True)]

    back = await cache.store_health(report(github="ok", gitlab="ok"), at=noon + 3 * MINUTE)
    assert back == (HealthChange("github", None, "ok", noon + 3 * MINUTE),)
    github = (await cache.health())[0]
    assert (github.connected, github.since) == (True, noon + 3 * MINUTE)


async def test_history_is_newest_first_and_bounded(cache: Cache, noon: datetime) -> None:
    """Fifty changes are given, the newest ones, each platform its own."""
    for number in range(60):
        await cache.store_health(report(github=f"s{number}", gitlab="ok"), at=noon + number * MINUTE)

    github, gitlab = await cache.health()
    assert [change.new for change in github.history] == [f"s{number}" for number in range(59, 9, -1)]
    assert len(gitlab.history) == 1


async def test_a_link_never_polled_is_neither_good_nor_bad(cache: Cache) -> None:
    """Both subjects are always told."""
    assert await cache.links() == (LinkState("runs"), LinkState("health"))


async def test_a_link_fails_since_its_first_failure(cache: Cache, noon: datetime) -> None:
    """Failures add up from the first one on; the last success stays; the next success clears them."""
    await cache.record_poll(PollOutcome("runs", noon))
    await cache.record_poll(PollOutcome("runs", noon + MINUTE, "timed_out", "slow"))

    failing = await cache.record_poll(PollOutcome("runs", noon + 2 * MINUTE, "unreachable", "gone\udc80"))

    assert failing == LinkState("runs", noon, noon + MINUTE, 2, "unreachable", "gone?")
    assert failing.is_failing
    assert await cache.links() == (failing, LinkState("health"))
    assert await cache.record_poll(PollOutcome("runs", noon + HOUR)) == LinkState("runs", noon + HOUR)
