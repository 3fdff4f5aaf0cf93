"""What waits for the next paint is not done for a widget that was closed by then."""

from collections.abc import Callable
from typing import Any

from textual.widget import Widget


def after_refresh(widget: Widget, callback: Callable[..., Any], *arguments: Any) -> None:
    """Call it once the screen was painted, unless the widget was closed in between.

    Textual hands such calls to the screen on top, which makes them even after the widget lost its children.
    """
    widget.call_after_refresh(lambda: callback(*arguments) if widget.is_running else None)
