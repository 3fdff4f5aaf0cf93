"""A table, and the facts of the item under its cursor next to it or below it."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar, Generic, Protocol, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content

from widgets.forms.facts import FactList
from widgets.kit import SCROLL_KEYS, unkeyed
from widgets.kit.badges import STYLES
from widgets.kit.line_table import LineItem, LineTable, TonedText
from widgets.kit.line_text import SteadyText


class FactItem(LineItem, Protocol):
    """An item with a line and facts."""

    def facts(self, now: datetime) -> Iterable[tuple[str, TonedText]]:
        """Everything known about it; our names, possibly foreign values."""

    def below_facts(self, now: datetime) -> Content:
        """What follows the facts."""


T = TypeVar("T", bound=FactItem)


class FactPane(VerticalScroll, Generic[T]):
    """The facts of one item."""

    DEFAULT_CSS = """
    FactPane {
        height: 10;
        padding: 0 2;
        border-top: solid $panel;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $panel;
    }
    FactPane:focus { border-top: solid $accent; }
    FactPane > Static { height: auto; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*SCROLL_KEYS]

    def __init__(self) -> None:
        super().__init__()
        self._item: T | None = None

    def compose(self) -> ComposeResult:
        """The facts, then what follows them."""
        yield FactList()
        yield SteadyText()

    def below_facts(self, item: T, now: datetime) -> Content:
        """Hook: what follows the facts."""
        return item.below_facts(now)

    def show(self, item: T | None, now: datetime) -> None:
        """Show an item's facts; None: there is none."""
        if item is None or self._item is None or item.key != self._item.key:
            self.scroll_home(animate=False)
        self._item = item
        self.tick(now)

    def tick(self, now: datetime) -> None:
        """Repaint what changed."""
        facts = self._item.facts(now) if self._item is not None else ()
        self.query_one(FactList).show(tuple((name, Content.styled(text, STYLES[tone])) for name, (text, tone) in facts))
        below = self.below_facts(self._item, now) if self._item is not None else Content()
        text = self.query_children(SteadyText).first()
        text.update(below)
        text.display = bool(below.plain)


class TableAndFacts(Container, Generic[T]):
    """Shows items; the facts are hidden without items, and by a key."""

    BINDINGS: ClassVar[list[BindingType]] = [unkeyed("facts", "detail on/off", id="facts.toggle")]

    def __init__(self, table: LineTable[T], pane: FactPane[T], *, id: str) -> None:
        super().__init__(table, pane, id=id, classes="-empty")
        self._table = table
        self._pane = pane

    def show(self, items: Sequence[T]) -> None:
        """Show the items in this order; the cursor stays on its own."""
        self.set_class(not items, "-empty")
        self._table.show(items)

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        self._table.tick(now)
        self._pane.tick(now)

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        self._pane.show(self._table.item, self._table.now)
        self.refresh_bindings()

    def action_facts(self) -> None:
        """Show or hide the facts."""
        self.toggle_class("-no-facts")
