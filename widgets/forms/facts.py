"""The parts of a form in addition to its fields: facts, notices and choices."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from app.engine.text import SafeText
from widgets.kit import hidden
from widgets.kit.badges import Badge


class FormFact(Widget):
    """A fact in place of a field; or a widget that shows it."""

    DEFAULT_CSS = Path(__file__).with_name("fact.tcss").read_text("utf-8")

    def __init__(self, label: str, value: SafeText | Widget, badge: Badge | None = None) -> None:
        super().__init__()
        self._label = label
        self._value = value
        self._badge = badge

    def mark(self, badge: Badge) -> None:
        """Show another badge."""
        self._badge = badge
        self.refresh(recompose=True)

    def compose(self) -> ComposeResult:
        """The label, then the badge, which a long value must not push away, then the value."""
        yield Static(self._label, classes="form-fact--label", markup=False)
        if isinstance(self._value, Widget):
            yield self._value
            return
        badge = ((self._badge.text, self._badge.style), "  ") if self._badge else ()
        yield Static(Content.assemble(*badge, self._value), classes="form-fact--value")


class FactList(Vertical):
    """Named facts, one below the other; long values wrap below themselves, not below their names."""

    DEFAULT_CSS = Path(__file__).with_name("fact_list.tcss").read_text("utf-8")

    def __init__(self) -> None:
        super().__init__()
        self._facts: tuple[tuple[str, Content], ...] = ()
        self._rows: list[tuple[Horizontal, Static, Static]] = []

    def show(self, facts: tuple[tuple[str, Content], ...]) -> None:
        """Show the facts: our names, possibly foreign values. Only what changed is repainted; no row is made twice."""
        before, self._facts = self._facts, facts
        self.display = bool(facts)
        for number, (row, label, value) in enumerate(self._rows):
            row.display = number < len(facts)
            if row.display and facts[number : number + 1] != before[number : number + 1]:
                name, fact = facts[number]
                label.update(Content(name))
                value.update(fact)
        for name, fact in facts[len(self._rows) :]:
            label, value = Static(Content(name), classes="fact-list--name"), Static(fact, classes="fact-list--value")
            self._rows.append((Horizontal(label, value), label, value))
            self.mount(self._rows[-1][0])


class FormNotice(Static):
    """A note to read before typing."""

    DEFAULT_CSS = """
    FormNotice { margin: 0 1 1 1; padding: 0 1; border-left: outer $warning; color: $foreground; }
    """

    def __init__(self, text: SafeText) -> None:
        super().__init__(Content(text))


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
        """One line per option."""
        return Content("\n").join(
            Content.assemble(
                ("◉ " if at == self.chosen else "○ ", "$primary"),
                (f"{self._keys[at : at + 1]}  " if self._keys else "", "bold $primary"),
                (label, "bold" if at == self.chosen else ""),
            )
            for at, label in enumerate(self._labels)
        )

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line per option."""
        del container, viewport, width
        return len(self._labels)

    def watch_chosen(self) -> None:
        """Announce the choice."""
        if self.chosen is not None:
            self.post_message(self.Changed())

    def action_step(self, step: int) -> None:
        """Choose the next or the previous option; if none is chosen yet, the first or the last."""
        here = self.chosen if self.chosen is not None else (-1 if step > 0 else 0)
        self.chosen = (here + step) % len(self._labels)

    def on_key(self, event: events.Key) -> None:
        """Choose by digit, or by letter."""
        keys = self._keys or "123456789"[: len(self._labels)]
        if event.character is not None and event.character in keys:
            event.stop()
            self.chosen = keys.index(event.character)

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked option."""
        offset = event.get_content_offset(self)
        if offset is not None and offset.y < len(self._labels):
            self.chosen = offset.y
