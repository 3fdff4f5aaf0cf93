"""The screen between two profiles, while one is closed and the other opened."""

from typing import Final

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static

from app.text import safe_text

BETWEEN: Final = "between"
"""The mode while there are no tabs."""


class BetweenScreen(Screen[None]):
    """Names the profile that is being opened."""

    CSS = "BetweenScreen { align: center middle; } BetweenScreen Static { width: auto; color: $foreground 70%; }"

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name_of_profile = safe_text(name, limit=60)

    def compose(self) -> ComposeResult:
        """Compose the line."""
        yield Static(f"◌ Opening {self._name_of_profile} …", markup=False)
