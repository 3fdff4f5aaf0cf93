"""The bar of tabs at the top, and the bar of keys at the bottom."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive

from widgets.kit.badges import STYLES
from widgets.kit.clickable import ClickableLine, clickable

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

    set_up: reactive[frozenset[str]] = reactive(frozenset())
    """The optional tabs that are shown, by name; the current one always is."""
    counts: reactive[dict[str, str]] = reactive(dict)
    """The numbers of pending items, by tab; empty: none."""

    def __init__(self, tabs: tuple[Tab, ...], current: str) -> None:
        super().__init__()
        self._all, self._current = tabs, current

    def parts(self) -> Iterator[Content]:
        """The tabs with their titles: all in full, or all as brief as they have to be."""
        shown = {*self.set_up, self._current}
        tabs = [tab for tab in self._all if not tab.is_optional or tab.name in shown]
        counts = [f" {count}" if (count := self.counts.get(tab.name)) else "" for tab in tabs]
        titles, gap = list[str](), 1
        for name, gap in _TITLES:
            titles = [getattr(tab, name) for tab in tabs]
            named = zip(tabs, titles, counts, strict=True)
            if sum(len(f"{tab.key} {title}{count}") + gap for tab, title, count in named) < self.size.width + gap - 2:
                break
        yield Content(" ")
        for tab, title, count in zip(tabs, titles, counts, strict=True):
            here = tab.name == self._current
            key_style, style = ("$accent bold", "bold underline") if here else (STYLES["quiet"], STYLES["quiet"])
            words = Content.assemble((f" {tab.key} ", key_style), (title, style), (count, f"{STYLES['warn']} bold"))
            yield clickable(words, "app.tab", tab.name)
            yield Content(" " * (gap - 1))


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

    hints: reactive[tuple[KeyHint, ...]] = reactive(())

    def parts(self) -> Iterator[Content]:
        """The hints and the gaps between them."""
        edge = self.size.width - MARGIN
        at_end: list[tuple[int, KeyHint]] = []
        for hint in reversed([hint for hint in self.hints if hint.at_end]):
            at_end.insert(0, (edge - hint.width, hint))
            edge -= hint.width + GAP
        placed: list[tuple[int, KeyHint]] = []
        x = MARGIN
        for hint in self.hints:
            if not hint.at_end and x + hint.width <= edge:
                placed.append((x, hint))
                x += hint.width + GAP
        x = 0
        for start, hint in (*placed, *at_end):
            key_style, style = ("$accent bold", STYLES["quiet"]) if hint.enabled else (DISABLED, DISABLED)
            yield Content(" " * (start - x))
            content = Content.assemble((f"{hint.key} ", key_style), (hint.does, style))
            yield clickable(content, "screen.press", hint.action) if hint.enabled else content
            x = start + hint.width
