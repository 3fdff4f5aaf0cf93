"""A search in a view of lines, from the cursor and around the ends, off the event loop."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from re import Pattern

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from widgets.forms.inputs import ListSearch
from widgets.text_view import TextView

More = Callable[[int], Awaitable[int | None]]
"""Loads lines after (1) or before (-1) the held ones and returns their number; None: there are none."""


class TextSearch(Vertical):
    """A view of lines below a search line, which is shown during a search."""

    DEFAULT_CSS = """
    TextSearch { height: 1fr; width: 1fr; }
    TextSearch > ListSearch { display: none; }
    TextSearch > ListSearch.-open { display: block; }
    TextSearch > ListSearch.-missed { color: $error; }
    """

    @dataclass
    class Missed(Message):
        """No match, or no further match."""

        text: str

    def __init__(self, view: TextView, start: Callable[..., object], more: More | None = None) -> None:
        """Prepare; `start` runs a coroutine function in the background, like `run_worker`."""
        super().__init__()
        self.view = view
        self._line = ListSearch(("Search; enter goes to it, esc clears",))
        self._start = start
        self._more = more

    def compose(self) -> ComposeResult:
        """The search line, above the view."""
        yield self._line
        yield self.view

    def open(self) -> None:
        """Show the search line and focus it."""
        self._line.add_class("-open")
        self._line.focus()

    def step(self, step: int) -> None:
        """Go to the next or previous match."""
        if not self._line.value:
            self.open()
            return
        self.seek(_pattern(self._line.value), step)

    def seek(self, pattern: Pattern[bytes], step: int, *, here: bool = False) -> None:
        """Go to the next matching line; with `here`, the one under the cursor counts."""
        begin = self.view.cursor + (1 if step > 0 and not here else 0)
        self._start(partial(self._seek, pattern, begin, step, is_typed=here), exclusive=True, group="find")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        text = event.value
        flags = re.IGNORECASE if text.islower() else re.NOFLAG
        self.view.light(re.compile(re.escape(text), flags) if text else None)
        if text:
            self.seek(_pattern(text), 1, here=True)

    @on(ListSearch.Left)
    def _left(self, event: ListSearch.Left) -> None:
        event.stop()
        self._line.set_class(bool(self._line.value), "-open")
        self.view.focus()

    async def _seek(self, pattern: Pattern[bytes], begin: int, step: int, *, is_typed: bool) -> None:
        view = self.view
        found = await asyncio.to_thread(view.find, pattern, begin, step)
        while found is None and self._more is not None:
            held = view.total
            added = await self._more(step)
            if added is None:
                break
            found = await asyncio.to_thread(view.find, pattern, held if step > 0 else added + 1, step)
        if found is None:
            edge = 0 if step > 0 else view.total
            found = await asyncio.to_thread(view.find, pattern, edge, step)
            if not is_typed:
                self.post_message(self.Missed("Not found." if found is None else "From the other end on."))
        self._line.set_class(found is None, "-missed")
        if found is not None:
            view.show_match(found, pattern, step)


def _pattern(text: str) -> Pattern[bytes]:
    return re.compile(re.escape(text.encode("utf-8", "replace")), re.IGNORECASE if text.islower() else re.NOFLAG)
