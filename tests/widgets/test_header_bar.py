from datetime import UTC, datetime, timedelta

from textual.app import App, ComposeResult

from storage.records import PlatformHealth
from tests.console.quiet import lines
from tests.widgets.stage import Stage
from widgets.frame.header_bar import HeaderBar, PollTiming, Vitals

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Console(App[None]):
    """Notes the targets of clicks."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        yield HeaderBar(Vitals("acme", known=True), PollTiming(NOW, 10.0), frozenset(), lambda: NOW)

    def action_tab(self, name: str, target: str) -> None:
        self.targets.append((name, target))


async def test_a_click_on_a_count_asks_for_its_runs() -> None:
    """Also after a tick, and again."""
    app = Console()
    async with app.run_test(size=(80, 5)) as pilot:
        for clicks in (1, 2):
            app.screen.call_later(app.query_one(HeaderBar).tick)
            await pilot.pause()
            await pilot.click(offset=(lines(app)[0].index("○"), 0))

            assert app.targets == [("runs", "status:queued")] * clicks


async def painted(width: int, status: str, **facts: object) -> str:
    """The line of a profile with two hosts, one of them in that state for twelve minutes."""
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


async def test_a_bad_host_is_in_the_line_at_every_width() -> None:
    """Whatever else has to go; a host whose state is old is doubtful, not by its colour alone."""
    for width in (50, 63, 80, 120):
        assert "gitlab ✗" in await painted(width, "down", read_only=True, can_switch=True)
    assert "gitlab ✓?" in await painted(120, "ok", health_is_stale=True)


async def test_120_columns_have_room_for_all_words_and_none_moves_when_a_host_goes_bad() -> None:
    """Its own place was kept free for its state and since when. The tabs below count what waits."""
    well, bad = await painted(120, "ok"), await painted(120, "down")

    assert bad.replace("✗ 12m", "✓    ") == well
    line = await painted(120, "down", unknown=12, inbox=34)
    assert [word for word in ("● 3 working", "○ 2 queued", "✗ 4 failed", "gitlab ✗ 12m") if word not in line] == []
