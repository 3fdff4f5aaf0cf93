"""The parts that every screen is made of; here, keys that many have or none, and calls after the next paint."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from textual.binding import Binding
from textual.widget import Widget

hidden: Final = partial(Binding, show=False)
"""Bind a key that the footer does not show."""
SCROLL_KEYS: Final = (hidden("j", "scroll_down", "down", id="pane.down"), hidden("k", "scroll_up", "up", id="pane.up"))
"""The keys of everything that scrolls without a cursor."""
NO_KEY: Final = "no_key_"
"""The prefix of names of keys that no terminal sends."""


def unkeyed(action: str, description: str, *, id: str, tooltip: str = "") -> Binding:
    """Bind an action to no key until the user gives it one: the palette has it."""
    return Binding(f"{NO_KEY}{id}", action, description, show=False, tooltip=tooltip, id=id)


def after_refresh(widget: Widget, callback: Callable[..., Any], *arguments: Any) -> None:
    """Call back once the screen was painted, unless the widget was closed in between.

    Textual passes such calls to the top screen, which makes them even after the widget lost its children.
    """
    widget.call_after_refresh(lambda: callback(*arguments) if widget.is_running else None)
