"""Style a new screen once, when it is mounted: Textual does so again at its first resize and its first resume."""

from typing import Any

from textual.events import ScreenResume
from textual.screen import Screen


def add_size_classes(screen: Screen[Any]) -> None:
    """Add the classes of a screen's breakpoints, while it has no children; the first resize then finds no change."""
    size = screen.app.size
    for length, steps in ((size.width, screen.HORIZONTAL_BREAKPOINTS), (size.height, screen.VERTICAL_BREAKPOINTS)):
        if steps:
            screen.add_class(max(step for step in steps if step[0] <= length)[1])


def keep_first_styles(screen: Screen[Any], event: ScreenResume) -> None:
    """Do not style the screen again when it comes up for the first time."""
    event.refresh_styles = event.refresh_styles and bool(screen.stack_updates)
