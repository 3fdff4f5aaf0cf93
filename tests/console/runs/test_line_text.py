"""Lines that read as before are not painted again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static

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
        plain = Static.refresh

        def watched(self: Static, *regions: Region, **how: Any) -> Static:
            painted.extend(regions or [self.size.region])
            return plain(self, *regions, **how)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Static, "refresh", watched)
            yield app, painted


LONG = "x" * (WIDTH + 1)
AFTER = {
    "an age that ticks": (["title", "8s ago", "end"], [Content("title"), Content("9s ago"), Content("end")], 1),
    "the same again": (["title", "end"], [Content("title"), Content("end")], None),
    "another colour": (["title", "end"], [Content("title"), Content.styled("end", "bold")], 1),
    "the same lines that wrap": ([LONG, "8s"], [Content(LONG), Content("8s")], None),
    "lines that wrap": ([LONG, "8s"], [Content(LONG), Content("9s")], ...),
}
"""What stood there, what comes, and the one line that is painted again: none of them, or all (`...`)."""


@pytest.mark.parametrize(("before", "after", "line"), AFTER.values(), ids=AFTER)
async def test_only_a_line_that_changes_is_painted(before: list[str], after: list[Content], line: object) -> None:
    """Where one line takes two of the screen's, the others are not where they are in the text: all are painted."""
    async with shown(*before) as (app, painted):
        app.shown.take(after)
        only = list(painted)

        whole = [app.shown.size.region] if line is ... else []
        assert only == (whole if line in {None, ...} else [Region(0, line, WIDTH, 1)])
        if line is not ... and LONG not in before:
            assert app.lines[: len(after)] == [content.plain for content in after]


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
