"""A field of keys and values: an empty line is always there, and each value shows how it will be read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from app.text import SafeText
from widgets.after_refresh import after_refresh
from widgets.forms.field import FormField
from widgets.forms.inputs import LineInput

Pairs = tuple[tuple[str, str], ...]
"""Keys and values as typed, without empty lines."""
Reading = Callable[[str], SafeText]
"""How a value as typed will be read, in a word or two."""


def packed(pairs: Pairs) -> str:
    """The pairs as one text, which `unpacked` reads."""
    return json.dumps(pairs, ensure_ascii=False) if pairs else ""


def unpacked(text: str) -> Pairs:
    """The pairs of a text from `packed`; none if it is not such a text."""
    try:
        loaded = json.loads(text or "[]")
        return tuple((str(key), str(value)) for key, value in loaded)
    except (ValueError, TypeError):
        return ()


class PairLine(Widget):
    """One key with its value."""

    DEFAULT_CSS = """
    PairLine {
        layout: horizontal;
        height: 1;
        .pair-line--key { width: 2fr; max-width: 24; }
        .pair-line--equals { width: 3; text-align: center; color: $foreground 70%; }
        .pair-line--value { width: 3fr; }
        .pair-line--reading { width: 10; padding-left: 1; color: $foreground 70%; text-wrap: nowrap; }
    }
    """

    @dataclass
    class Edited(Message):
        """The key or the value changed."""

    def __init__(self, key: str, value: str, reading: Reading) -> None:
        super().__init__()
        self._key = LineInput(key, "key", classes="pair-line--key")
        self._value = LineInput(value, "value", classes="pair-line--value")
        self._reading = reading

    def compose(self) -> ComposeResult:
        """Key = value, and how the value will be read."""
        yield self._key
        yield Static("=", classes="pair-line--equals")
        yield self._value
        yield Static(self._read(), classes="pair-line--reading")

    @property
    def pair(self) -> tuple[str, str]:
        """As typed."""
        return self._key.value.strip(), self._value.value

    @property
    def is_free(self) -> bool:
        """Whether it is empty."""
        return self.pair == ("", "")

    def _read(self) -> Content:
        return Content("" if self.is_free else self._reading(self._value.value))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(".pair-line--reading", Static).update(self._read(), layout=False)
        self.post_message(self.Edited())


class PairsField(FormField):
    """A field of keys and values."""

    DEFAULT_CSS = """
    PairsField .pairs-field--lines { height: auto; }
    """

    def __init__(self, key: str, label: str, hint: str, *, reading: Reading, value: str = "") -> None:
        super().__init__(key, label, hint)
        self._reading = reading
        self._initial = unpacked(value)
        self._known = packed(self._initial)

    def compose_control(self) -> ComposeResult:
        """A line for each pair, and an empty one."""
        with Vertical(classes="pairs-field--lines"):
            yield from self._lines_for(self._initial)

    @property
    def pairs(self) -> Pairs:
        """As typed."""
        if not self.is_mounted:
            return self._initial
        return tuple(line.pair for line in self.query(PairLine) if not line.is_free)

    @property
    def value(self) -> str:
        """The pairs as one text."""
        return packed(self.pairs)

    def fill(self, value: str) -> None:
        """Replace all pairs."""
        lines = self.query_one(".pairs-field--lines", Vertical)
        lines.remove_children()
        lines.mount(*self._lines_for(unpacked(value)))
        after_refresh(self, self._edited)

    def _lines_for(self, pairs: Pairs) -> Iterator[PairLine]:
        for key, value in (*pairs, ("", "")):
            yield PairLine(key, value, self._reading)

    @on(PairLine.Edited)
    def _changed(self, event: PairLine.Edited) -> None:
        event.stop()
        if not list(self.query(PairLine))[-1].is_free:
            self.query_one(".pairs-field--lines", Vertical).mount(PairLine("", "", self._reading))
        self._edited()
