"""Facts: in a form with notices and choices, or about the item under a table's cursor, next to it or below."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from app.engine.text import safe_text
from widgets.kit import SCROLL_KEYS, hidden, keyless
from widgets.kit.badges import STYLES, Badge
from widgets.kit.line_table import LineItem, LineTable, TonedText
from widgets.kit.line_text import SteadyText


class FormFact(Widget):
    """A fact in place of a field, or the widget that shows it."""

    DEFAULT_CSS = Path(__file__).with_name("fact.tcss").read_text("utf-8")

    badge: reactive[Badge | None] = reactive(None, recompose=True)

    def __init__(self, label: str, value: str | Widget, badge: Badge | None = None) -> None:
        super().__init__()
        self._label = label
        self._value = value
        self.set_reactive(FormFact.badge, badge)

    def compose(self) -> ComposeResult:
        """The label, then the badge, which a long value must not push away, then the value."""
        yield Static(self._label, classes="form-fact--label", markup=False)
        if isinstance(self._value, Widget):
            yield self._value
            return
        badge = ((self.badge.text, self.badge.style), "  ") if self.badge else ()
        yield Static(Content.assemble(*badge, safe_text(self._value)), classes="form-fact--value")


class FactList(Vertical):
    """Named facts, one below the other; long values wrap below themselves, not below their names."""

    DEFAULT_CSS = Path(__file__).with_name("fact_list.tcss").read_text("utf-8")

    def __init__(self) -> None:
        super().__init__()
        self._facts: tuple[tuple[str, Content], ...] = ()
        self._rows: list[tuple[Horizontal, Static, Static]] = []

    def show(self, facts: tuple[tuple[str, Content], ...]) -> None:
        """Show the facts: our names, possibly foreign values. Only what changed is repainted; no row is made twice."""
        before = self._facts
        self._facts = facts
        self.display = bool(facts)
        for number, (row, label, value) in enumerate(self._rows):
            row.display = number < len(facts)
            if row.display and facts[number : number + 1] != before[number : number + 1]:
                name, fact = facts[number]
                label.update(Content(name))
                value.update(fact)
        for name, fact in facts[len(self._rows) :]:
            label = Static(Content(name), classes="fact-list--name")
            value = Static(fact, classes="fact-list--value")
            self._rows.append((Horizontal(label, value), label, value))
            self.mount(self._rows[-1][0])


class FormChoice(Widget, can_focus=True):
    """A choice between a few options, with none chosen at first."""

    DEFAULT_CSS = """
    FormChoice { height: auto; margin: 1 0; padding: 0 1; border-left: outer $surface; }
    FormChoice:focus { border-left: outer $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("down,j", "step(1)", "Next"),
        hidden("up,k", "step(-1)", "Previous"),
    ]
    chosen: reactive[int | None] = reactive(None)
    """Index of the chosen option; None: none yet."""

    class Changed(Message):
        """An option was chosen."""

    def __init__(self, labels: Sequence[str], keys: str = "") -> None:
        """Show the labels; `keys` chooses among them, a letter each, instead of digits, and is shown."""
        super().__init__()
        self._labels = labels
        self._keys = keys

    def render(self) -> Content:
        return Content("\n").join(
            Content.assemble(
                ("◉ " if at == self.chosen else "○ ", "$primary"),
                (f"{self._keys[at : at + 1]}  " if self._keys else "", "bold $primary"),
                (label, "bold" if at == self.chosen else ""),
            )
            for at, label in enumerate(self._labels)
        )

    def watch_chosen(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Changed())

    def action_step(self, step: int) -> None:
        """Choose the next or the previous option; if none is chosen yet, the first or the last."""
        first = 0 if step > 0 else -1
        self.chosen = first % len(self._labels) if self.chosen is None else (self.chosen + step) % len(self._labels)

    def on_key(self, event: events.Key) -> None:
        keys = self._keys or "123456789"[: len(self._labels)]
        if event.character is not None and event.character in keys:
            event.stop()
            self.chosen = keys.index(event.character)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is not None and offset.y < len(self._labels):
            self.chosen = offset.y


class FactItem(LineItem, Protocol):
    """An item with a line and facts."""

    def facts(self, now: datetime) -> Iterable[tuple[str, TonedText]]:
        """Everything known about the item; our names, possibly foreign values."""

    def below_facts(self, now: datetime) -> Content:
        """What follows the facts."""


FactT = TypeVar("FactT", bound=FactItem)


class FactPane(VerticalScroll, Generic[FactT]):
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
        self._facts, self._below = FactList(), SteadyText()
        self._item: FactT | None = None
        super().__init__(self._facts, self._below)

    def below_facts(self, item: FactT, now: datetime) -> Content:
        return item.below_facts(now)

    def show(self, item: FactT | None, now: datetime) -> None:
        if item is None or self._item is None or item.key != self._item.key:
            self.scroll_home(animate=False)
        self._item = item
        self.tick(now)

    def tick(self, now: datetime) -> None:
        facts = self._item.facts(now) if self._item is not None else ()
        self._facts.show(tuple((name, Content.styled(text, STYLES[tone])) for name, (text, tone) in facts))
        below = self.below_facts(self._item, now) if self._item is not None else Content()
        self._below.update(below)
        self._below.display = bool(below.plain)


class TableAndFacts(Container, Generic[FactT]):
    """Shows items; the facts are hidden without items, and by a key."""

    BINDINGS: ClassVar[list[BindingType]] = [keyless("facts", "detail on/off", id="facts.toggle")]

    def __init__(self, table: LineTable[FactT], pane: FactPane[FactT], *, id: str) -> None:
        super().__init__(table, pane, id=id, classes="-empty")
        self._table = table
        self._pane = pane

    def show(self, items: Sequence[FactT]) -> None:
        """Show the items in this order; the cursor stays on its item."""
        self.set_class(not items, "-empty")
        self._table.show(items)

    def tick(self, now: datetime) -> None:
        self._table.tick(now)
        self._pane.tick(now)

    @on(LineTable.Highlighted)
    def show_facts(self) -> None:
        self._pane.show(self._table.item, self._table.now)
        self.refresh_bindings()

    def action_facts(self) -> None:
        self.toggle_class("-no-facts")
