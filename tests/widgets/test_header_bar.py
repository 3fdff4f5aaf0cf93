from datetime import UTC, datetime

from textual.app import App, ComposeResult

from storage.records import PlatformHealth
from tests.console.quiet import lines
from tests.widgets.stage import Stage
from widgets.frame.freshness import PollTiming
from widgets.frame.header_bar import HeaderBar, Vitals

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Console(App[None]):
    """Hears of the unknown outcomes."""

    clicks = 0

    def compose(self) -> ComposeResult:
        yield HeaderBar(Vitals("acme", unknown=1), PollTiming(NOW, 10.0), frozenset(), lambda: NOW)

    def on_header_bar_unknown_clicked(self) -> None:
        self.clicks += 1


async def test_each_click_reaches_the_app_also_after_the_screen_let_the_line_tick() -> None:
    """A message that was made while the screen ticked would count as the screen's own and end there."""
    app = Console()
    async with app.run_test(size=(80, 5)) as pilot:
        for clicks in (1, 2):
            app.screen.call_later(app.query_one(HeaderBar).tick)
            await pilot.pause()
            await pilot.click(offset=(lines(app)[0].index("? 1 unknown"), 0))

            assert app.clicks == clicks


async def test_a_host_whose_state_is_old_is_doubtful() -> None:
    """Not by its colour alone."""
    host = PlatformHealth("github", "ok", None, None, NOW, NOW, connected=True)
    for is_stale, shown in ((False, "github ✓"), (True, "github ✓?")):
        vitals = Vitals("acme", health=(host,), health_is_stale=is_stale)
        async with Stage(HeaderBar(vitals, PollTiming(NOW, 10.0), frozenset({"ok"}), lambda: NOW)).run_test() as pilot:
            await pilot.pause()
            assert lines(pilot.app)[0].split("  ")[-1].strip() == shown
