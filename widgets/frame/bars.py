"""The bar of tabs at the top, and the bar of keys at the bottom."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
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


MARGIN = 1
GAP = 2


@dataclass(frozen=True, slots=True)
class KeyHint:
    """One key and what it does."""

    key: str
    """As it is shown."""
    does: str
    action: str
    enabled: bool = True
    at_end: bool = False
    """It stays at the right edge, whatever else has to go."""

    @property
    def width(self) -> int:
        """Cells it takes."""
        return cell_len(self.key) + 1 + cell_len(self.does)


class KeyBar(Widget):
    """As many keys as fit, the first ones first."""

    @dataclass
    class Pressed(Message):
        """A key's hint was clicked."""

        action: str

    def __init__(self) -> None:
        super().__init__()
        self._hints: tuple[KeyHint, ...] = ()

    def show(self, hints: tuple[KeyHint, ...]) -> None:
        """Takes the keys of the moment."""
        if hints != self._hints:
            self._hints = hints
            self.refresh()

    def render(self) -> Content:
        """The line."""
        parts: list[tuple[str, str]] = []
        x = 0
        for start, hint in self._placed():
            parts.append((" " * (start - x), ""))
            parts.append((f"{hint.key} ", "$accent bold" if hint.enabled else "$foreground 30%"))
            parts.append((hint.does, "$foreground 70%" if hint.enabled else "$foreground 30%"))
            x = start + hint.width
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        """Does what the key under the pointer would do."""
        for start, hint in self._placed():
            if start <= event.x < start + hint.width and hint.enabled:
                self.post_message(self.Pressed(hint.action))

    def _placed(self) -> list[tuple[int, KeyHint]]:
        edge = self.size.width - MARGIN
        at_end: list[tuple[int, KeyHint]] = []
        for hint in reversed([hint for hint in self._hints if hint.at_end]):
            at_end.insert(0, (edge - hint.width, hint))
            edge -= hint.width + GAP
        placed: list[tuple[int, KeyHint]] = []
        x = MARGIN
        for hint in self._hints:
            if not hint.at_end and x + hint.width <= edge:
                placed.append((x, hint))
                x += hint.width + GAP
        return [*placed, *at_end]
