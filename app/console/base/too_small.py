"""A notice for terminals that are too small: one line, and no key acts on what is out of sight."""

from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Static

LEAST: Final = Size(50, 12)
"""The smallest terminal in which each screen shows a row, and each form a field with its buttons."""


def is_too_small(size: Size) -> bool:
    """Whether a terminal of this size is too small for a screen."""
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmall(ModalScreen[None]):
    """Covers everything until the terminal grows."""

    DEFAULT_CSS = """
    TooSmall { align: center middle; background: $background; }
    TooSmall Static { width: auto; max-width: 100%; text-align: center; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "app.quit", "quit", id="small.quit")]

    def compose(self) -> ComposeResult:
        """Compose the line."""
        yield Static(self._words(self.app.size), markup=False)

    def on_resize(self, event: events.Resize) -> None:
        """Show the current size, or close once the terminal is large enough."""
        if is_too_small(event.size):
            self.query_one(Static).update(self._words(event.size))
        else:
            self._end()

    def on_screen_resume(self) -> None:
        """Close late, if a sheet was open when the terminal grew."""
        if not is_too_small(self.app.size):
            self._end()

    def _end(self) -> None:
        if self.is_current:
            self.dismiss()

    def _words(self, size: Size) -> str:
        return f"{size.width}x{size.height} is too small: {LEAST.width}x{LEAST.height} at least."
