"""The bar of tabs at the top, and the bar of keys at the bottom."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.message import Message

from widgets.kit.badges import STYLES
from widgets.kit.clickable import ClickableLine, ClickablePart

MARGIN: Final = 1
GAP: Final = 2
DISABLED: Final = "$foreground 30%"
_TITLES: Final = (("title", 3), ("brief", 3), ("brief", 2), ("tiny", 2), ("tiny", 1))
"""The tabs' titles, and the cells between them: the first that fits."""


class Tab(Struct, frozen=True):
    """One tab of the console."""

    name: str
    """The name that the program uses for it."""
    key: str
    title: str
    brief: str
    """Its title where there is little room."""
    tiny: str
    """Its title on the smallest terminal."""
    is_optional: bool = False
    """Whether it is hidden until its feature is set up; its key and the palette still lead there."""


class TabBar(ClickableLine):
    """The tabs; the current one stands out by more than its colour."""

    @dataclass
    class Picked(Message):
        """A tab was clicked."""

        name: str

    def __init__(self, tabs: tuple[Tab, ...], current: str) -> None:
        super().__init__(self.parts)
        self._all, self._current = tabs, current
        self._set_up: frozenset[str] = frozenset()
        self._counts: dict[str, str] = {}
        """The numbers of pending items, by tab."""

    def show_count(self, tab: str, count: str) -> None:
        """Show the number of pending items in a tab; empty: none."""
        if count != self._counts.get(tab, ""):
            self._counts[tab] = count
            self.refresh()

    def show_set_up(self, tabs: frozenset[str]) -> None:
        """Show these optional tabs, by name; the others are hidden, except the current one."""
        if tabs != self._set_up:
            self._set_up = tabs
            self.refresh()

    @property
    def _tabs(self) -> tuple[Tab, ...]:
        shown = {*self._set_up, self._current}
        return tuple(tab for tab in self._all if not tab.is_optional or tab.name in shown)

    def parts(self) -> Iterator[ClickablePart]:
        """The tabs with their titles: all in full, or all as brief as they have to be."""
        titles, gap = self._fitting()
        yield Content(" "), None
        for tab, title in zip(self._tabs, titles, strict=True):
            here = tab.name == self._current
            key_style, style = ("$accent bold", "bold underline") if here else (STYLES["quiet"], STYLES["quiet"])
            count = (self._count(tab), f"{STYLES['warn']} bold")
            yield Content.assemble((f" {tab.key} ", key_style), (title, style), count), self.Picked(tab.name)
            yield Content(" " * (gap - 1)), None

    def _fitting(self) -> tuple[list[str], int]:
        titles, gap = list[str](), 1
        for name, gap in _TITLES:
            titles = [getattr(tab, name) for tab in self._tabs]
            named = zip(self._tabs, titles, strict=True)
            taken = sum(len(f"{tab.key} {tab_title}{self._count(tab)}") + gap for tab, tab_title in named)
            if taken < self.size.width + gap - 2:
                break
        return titles, gap

    def _count(self, tab: Tab) -> str:
        count = self._counts.get(tab.name, "")
        return f" {count}" if count else ""


class KeyHint(Struct, frozen=True):
    """One key and its effect."""

    key: str
    """The key as shown."""
    does: str
    action: str
    enabled: bool = True
    at_end: bool = False
    """Whether it stays at the right edge, even if other hints do not fit."""

    @property
    def width(self) -> int:
        """Its width in cells."""
        return cell_len(self.key) + 1 + cell_len(self.does)


class KeyBar(ClickableLine):
    """The keys with an effect now: as many as fit, the first ones first."""

    @dataclass
    class Pressed(Message):
        """A key's hint was clicked."""

        action: str

    def __init__(self) -> None:
        super().__init__(self.parts)
        self._hints: tuple[KeyHint, ...] = ()

    def show(self, hints: tuple[KeyHint, ...]) -> None:
        """Show the current keys."""
        if hints != self._hints:
            self._hints = hints
            self.refresh()

    def parts(self) -> Iterator[ClickablePart]:
        """The hints and the gaps between them."""
        x = 0
        for start, hint in self._placed():
            key_style, style = ("$accent bold", STYLES["quiet"]) if hint.enabled else (DISABLED, DISABLED)
            yield Content(" " * (start - x)), None
            content = Content.assemble((f"{hint.key} ", key_style), (hint.does, style))
            yield content, self.Pressed(hint.action) if hint.enabled else None
            x = start + hint.width

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
