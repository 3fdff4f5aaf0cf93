from datetime import UTC, datetime

from textual.app import App, ComposeResult

from tests.console.quiet import lines
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
