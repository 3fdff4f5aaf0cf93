"""Calls after the next paint that are dropped if their widget was closed by then."""

from collections.abc import Callable
from typing import Any

from textual.widget import Widget


def after_refresh(widget: Widget, callback: Callable[..., Any], *arguments: Any) -> None:
    """Call back once the screen was painted, unless the widget was closed in between.

    Textual passes such calls to the top screen, which makes them even after the widget lost its children.
    """
    widget.call_after_refresh(lambda: callback(*arguments) if widget.is_running else None)
