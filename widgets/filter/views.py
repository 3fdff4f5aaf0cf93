"""The views as tabs: a line of the query language each, under a name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import SafeText

NEW: Final = " [+]"
QUIET: Final = "$foreground 70%"
HERE: Final = "$accent bold"
CHANGED: Final = "•"
"""Behind the name of the current view, once what is shown is no longer what it asks for."""


@dataclass(frozen=True, slots=True)
class _Tab:
    text: str
    style: str
    index: int | None
    """None: all views, or a new one."""


class ViewBar(Widget):
    """The views; the current one is marked, and all that do not fit are behind the `…`."""

    @dataclass
    class Picked(Message):
        """A view was clicked."""

        index: int

    @dataclass
    class ListWanted(Message):
        """All views are asked for."""

    @dataclass
    class NewWanted(Message):
        """What is shown shall become a view."""

    def __init__(self) -> None:
        super().__init__()
        self._titles: tuple[SafeText, ...] = ()
        self._current = 0
        self._is_changed = False

    def show(self, titles: tuple[SafeText, ...], current: int, *, is_changed: bool) -> None:
        """Takes the views.

        Args:
            titles: Their names.
            current: The one that was picked last.
            is_changed: What is shown is no longer what that one asks for.
        """
        if (titles, current, is_changed) != (self._titles, self._current, self._is_changed):
            self._titles, self._current, self._is_changed = titles, current, is_changed
            self.refresh()

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*((tab.text, tab.style) for tab in self._tabs()))

    def on_click(self, event: events.Click) -> None:
        """Asks for what is under the pointer."""
        x = 0
        for tab in self._tabs():
            x += cell_len(tab.text)
            if event.x < x:
                if tab.index is not None:
                    self.post_message(self.Picked(tab.index))
                else:
                    self.post_message(self.NewWanted() if tab.text == NEW else self.ListWanted())
                return

    def _tabs(self) -> Iterator[_Tab]:
        tabs = [self._tab(index) for index in range(len(self._titles))]
        room = self.size.width - len(NEW) - 1
        hidden = 0
        while len(tabs) > 1 and sum(cell_len(tab.text) for tab in tabs) + (4 if hidden else 0) > room:
            # The current one is never among those that make room.
            tabs.pop(-2 if tabs[-1].index == self._current else -1)
            hidden += 1
        yield from tabs
        if hidden:
            yield _Tab(f" …+{hidden}", QUIET, None)
        yield _Tab(NEW, QUIET, None)

    def _tab(self, index: int) -> _Tab:
        title = self._titles[index]
        if index != self._current:
            return _Tab(f" {title} ", QUIET, index)
        return _Tab(f"[{title}{CHANGED if self._is_changed else ''}]", HERE, index)
