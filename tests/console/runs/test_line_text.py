"""Text that is repainted line by line."""

from textual.app import App, ComposeResult
from textual.content import Content

from tests.console.quiet import lines, strips
from widgets.kit.line_text import LinePane, LineText

LONG = "x" * 40


class Pane(App[None]):
    """One pane."""

    shown: tuple[Content, ...] = ()

    def compose(self) -> ComposeResult:
        yield LinePane(lambda _: self.shown)

    def show(self, *shown: Content) -> None:
        self.shown = shown
        self.query_one(LinePane).paint()


async def test_incremental_painting_equals_full_painting() -> None:
    """Words and colours match after several changes between two frames; a long line is wrapped."""
    first = [Content("title"), Content("8s"), Content.styled("one", "red"), Content(LONG)]
    last = [Content.styled("title", "bold"), Content("9s"), Content.styled("two", "green"), Content(LONG)]
    app = Pane()
    async with app.run_test(size=(30, 10)) as pilot:
        app.show(*first)
        await pilot.pause()
        for shown in (first, [*last[:2], *first[2:]], last):
            app.show(*shown)
        by_line = strips(app)
        app.query_one(LineText).refresh()

        assert strips(app) == by_line
        words = [line.strip() for line in lines(app)[:5]]
        assert (words[:3], "".join(words[3:])) == (["title", "9s", "two"], LONG)
