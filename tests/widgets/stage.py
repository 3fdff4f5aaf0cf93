"""One widget on its own screen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from tests.console.quiet import lines

if TYPE_CHECKING:
    from textual.message import Message


class Stage(App[None]):
    """Shows a widget, and records its messages."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.heard: list[Message] = []

    def compose(self) -> ComposeResult:
        yield self.widget

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in lines(self)]


@asynccontextmanager
async def staged(widget: Widget, size: tuple[int, int] = (80, 20)) -> AsyncIterator[tuple[Stage, Pilot[None]]]:
    """Shows the widget with the focus."""
    app = Stage(widget)
    async with app.run_test(size=size, message_hook=app.heard.append) as pilot:
        widget.focus()
        await pilot.pause()
        yield app, pilot
