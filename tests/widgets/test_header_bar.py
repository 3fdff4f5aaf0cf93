from datetime import UTC, datetime, timedelta

from storage.records import PlatformHealth
from tests.console.quiet import lines
from tests.widgets.stage import Stage
from widgets.frame import HeaderBar, PollTiming, Vitals

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def painted(width: int, status: str, **facts: object) -> str:
    """The header of a profile with two hosts, one of them in this state for twelve minutes."""
    since = NOW - timedelta(minutes=12)
    hosts = tuple(
        PlatformHealth(name, how, None, None, since, NOW, connected=True)
        for name, how in (("github", "ok"), ("gitlab", status))
    )
    vitals = Vitals("acme-production", known=True, working=3, queued=2, failed_today=4, health=hosts, **facts)  # type: ignore[arg-type]
    bar = HeaderBar(vitals, PollTiming(NOW, 10.0), frozenset({"ok"}), lambda: NOW)
    async with Stage(bar).run_test(size=(width, 5)) as pilot:
        await pilot.pause()
        return lines(pilot.app)[0]


async def test_a_bad_host_is_shown_at_every_width() -> None:
    """Other parts are dropped first; an old state is marked as doubtful, not only by colour."""
    for width in (50, 63, 80, 120):
        assert "gitlab ✗" in await painted(width, "down", read_only=True, can_switch=True)
    assert "gitlab ✓?" in await painted(120, "ok", health_is_stale=True)
