"""A field of keys and values: an empty line is always there, and each value shows how it will be read."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from widgets.after_refresh import after_refresh
from widgets.forms.field import FormField
from widgets.forms.inputs import LineInput

Pairs = tuple[tuple[str, str], ...]
"""Keys and values as typed, without empty lines."""
_TYPES: Final[dict[type, str]] = {
    bool: "yes/no",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
    type(None): "null",
}


def read_value(text: str) -> Any:
    """Read a value: JSON if it is valid JSON, else the plain text."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text.strip()
    # 1e999 is a valid JSON number that no float can hold.
    return text.strip() if isinstance(value, float) and not math.isfinite(value) else value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


def reading(text: str) -> str:
    """Name the type that `read_value` reads."""
    return _TYPES[type(read_value(text))]


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

    def __init__(self, key: str, value: str) -> None:
        super().__init__()
        self._key = LineInput(key, "key", classes="pair-line--key")
        self._value = LineInput(value, "value", classes="pair-line--value")

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
        return Content("" if self.is_free else reading(self._value.value))

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

    def __init__(self, key: str, label: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__(key, label, hint)
        del placeholder  # a pair's two parts have their own
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
            yield PairLine(key, value)

    @on(PairLine.Edited)
    def _changed(self, event: PairLine.Edited) -> None:
        event.stop()
        if not list(self.query(PairLine))[-1].is_free:
            self.query_one(".pairs-field--lines", Vertical).mount(PairLine("", ""))
        self._edited()
