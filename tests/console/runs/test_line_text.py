"""Lines that read as before are not painted again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Region

from tests.console.quiet import lines, strips
from widgets.line_text import LineText

WIDTH = 30


class Text(App[None]):
    """One text, and what of it was to be painted again."""

    CSS = "LineText { height: auto; }"

    def compose(self) -> ComposeResult:
        yield LineText()

    @property
    def shown(self) -> LineText:
        return self.query_one(LineText)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in lines(self)]


@asynccontextmanager
async def shown(*lines: str) -> AsyncIterator[tuple[Text, list[Region]]]:
    app = Text()
    async with app.run_test(size=(WIDTH, 10)) as pilot:
        app.shown.take([Content(line) for line in lines])
        await pilot.pause()
        painted: list[Region] = []
        plain = app.shown._set_dirty

        def watched(*regions: Region) -> None:
            painted.extend(regions or [app.shown.size.region])
            plain(*regions)

        app.shown._set_dirty = watched  # type: ignore[method-assign]
        yield app, painted


async def test_an_age_that_ticks_costs_its_line() -> None:
    """Of three lines the second one is painted, and reads as it was given."""
    async with shown("title", "seen 8s ago", "end") as (app, painted):
        app.shown.take([Content("title"), Content("seen 9s ago"), Content("end")])
        only = list(painted)

        assert only == [Region(0, 1, WIDTH, 1)]
        assert app.lines[:3] == ["title", "seen 9s ago", "end"]


async def test_the_same_again_costs_nothing() -> None:
    """A tick that changes no text paints nothing."""
    async with shown("title", "end") as (app, painted):
        app.shown.take([Content("title"), Content("end")])

        assert painted == []


async def test_another_colour_is_a_change() -> None:
    """The same words in another style are painted again."""
    async with shown("title", "end") as (app, painted):
        app.shown.take([Content("title"), Content.styled("end", "bold")])

        assert painted == [Region(0, 1, WIDTH, 1)]


async def test_text_whose_lines_wrap_is_painted_whole() -> None:
    """Where one line takes two of the screen's the others are not where they are in the text."""
    async with shown("x" * (WIDTH + 1), "8s") as (app, painted):
        app.shown.take([Content("x" * (WIDTH + 1)), Content("9s")])

        assert painted == [app.shown.size.region]


async def test_what_is_painted_line_by_line_reads_as_what_is_painted_whole() -> None:
    """In its words and in its colours, after one tick and after several between two frames."""
    first = [Content("title"), Content("8s"), Content.styled("one", "red"), Content("end")]
    last = [Content.styled("title", "bold"), Content("9s"), Content.styled("two", "green"), Content("end")]
    async with shown(*(line.plain for line in first)) as (app, _):
        for lines in (first, [*last[:2], *first[2:]], last):
            app.shown.take(lines)
        by_line = strips(app)
        app.shown.refresh()

        assert strips(app) == by_line
        assert app.lines[:4] == ["title", "9s", "two", "end"]
