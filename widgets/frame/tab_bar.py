"""The rooms of the console on one line, each under its key."""

from collections.abc import Iterator
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from widgets.badges import STYLES


@dataclass(frozen=True, slots=True)
class Tab:
    """One room."""

    name: str
    """What the program calls it."""
    key: str
    title: str
    brief: str
    """Its title where there is little room."""


class TabBar(Widget):
    """The tabs; the current one stands out by more than its colour."""

    @dataclass
    class Picked(Message):
        """A tab was clicked."""

        name: str

    def __init__(self, tabs: tuple[Tab, ...], current: str) -> None:
        super().__init__()
        self._tabs = tabs
        self._current = current

    def render(self) -> Content:
        """The line."""
        parts: list[tuple[str, str]] = [(" ", "")]
        for tab, title in self._titled():
            here = tab.name == self._current
            parts.append((f" {tab.key} ", "$accent bold" if here else STYLES["quiet"]))
            parts.append((f"{title} ", "bold underline" if here else STYLES["quiet"]))
            parts.append(("  ", ""))
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        """Asks for the tab under the pointer."""
        x = 1
        for tab, title in self._titled():
            end = x + len(tab.key) + len(title) + 3
            if x <= event.x < end:
                self.post_message(self.Picked(tab.name))
            x = end + 2

    def _titled(self) -> Iterator[tuple[Tab, str]]:
        """The tabs with their titles, all of them whole or all in brief."""
        whole = 1 + sum(len(tab.key) + len(tab.title) + 5 for tab in self._tabs)
        return ((tab, tab.title if whole <= self.size.width else tab.brief) for tab in self._tabs)
