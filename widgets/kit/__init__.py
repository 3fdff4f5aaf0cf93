"""The building blocks of every screen; here, unbound keys, callbacks after a paint, and the send key's guard."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, ClassVar, Final

from textual.binding import Binding
from textual.widget import Widget

hidden: Final = partial(Binding, show=False)
"""Bind a key that the footer does not show."""
SCROLL_KEYS: Final = (hidden("j", "scroll_down", "down", id="pane.down"), hidden("k", "scroll_up", "up", id="pane.up"))
"""The keys of everything that scrolls without a cursor."""
NO_KEY: Final = "no_key_"
"""The prefix of names of keys that no terminal sends."""


def keyless(action: str, description: str, *, id: str, tooltip: str = "") -> Binding:
    """Bind an action to no key until the user gives it one: the palette has it."""
    return Binding(f"{NO_KEY}{id}", action, description, show=False, tooltip=tooltip, id=id)


def after_refresh(widget: Widget, callback: Callable[..., Any], *arguments: Any) -> None:
    """Call back once the screen was painted, unless the widget was closed in between.

    Textual passes such calls to the top screen, which makes them even after the widget lost its children.
    """
    widget.call_after_refresh(lambda: callback(*arguments) if widget.is_running else None)


@dataclass(eq=False)
class SecondPress:
    """Decides whether a press of the send key counts: not while the key is held or before the preview was seen."""

    PAUSE_S: ClassVar[float] = 0.8
    """A pause longer than a terminal takes to begin repeating a held key."""

    _clock: Callable[[], float] = monotonic
    _since_s: float | None = None
    """When the preview was painted or the key was pressed last; None: it is not painted yet."""

    def forget(self) -> None:
        """Reset, because other content is about to be shown."""
        self._since_s = None

    def start_pause(self) -> None:
        """Start the pause: the preview is on the screen."""
        self._since_s = self._clock()

    def press(self) -> bool:
        """Take a press and return whether it counts; each press restarts the pause, so that a held key never sends."""
        if self._since_s is None:
            return False
        before_s = self._since_s
        self._since_s = self._clock()
        return self._since_s - before_s >= self.PAUSE_S
