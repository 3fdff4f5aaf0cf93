"""Parse and style once: Textual parses all styles again for each new sheet, and styles a screen up to five times."""

from typing import TYPE_CHECKING, Any, Final

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.events import ScreenResume
from textual.screen import Screen

if TYPE_CHECKING:
    from textual.app import App

MOST_SOURCES: Final = 500
"""Files and widget classes with styles of their own."""


class CachedStylesheet(Stylesheet):
    """Parses each source once for a theme."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(MOST_SOURCES)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set the theme's variables, if they are others."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse the sources that are new."""
        self.parse()


def add_own_styles(screen: Screen[Any], app: "App[Any]") -> None:
    """Read a new screen's own style sheet, which concerns no other screen, and style its one node."""
    sheet = app.stylesheet
    for path in screen.css_path:
        if not sheet.has_source(str(path), ""):
            sheet.read(path)
    if screen.CSS:
        scope = screen._css_type_name if screen.SCOPED_CSS else ""  # noqa: SLF001 — as Textual does it
        sheet.add_source(screen.CSS, ("", f"{type(screen).__name__}.CSS"), scope=scope)
    sheet.reparse()
    sheet.update(screen)
    screen._css_update_count = app._css_update_count  # noqa: SLF001 — its other nodes come with the current styles


def add_size_classes(screen: Screen[Any]) -> None:
    """Add the classes of a screen's breakpoints, while it has no children; the first resize then finds no change."""
    size = screen.app.size
    for length, steps in ((size.width, screen.HORIZONTAL_BREAKPOINTS), (size.height, screen.VERTICAL_BREAKPOINTS)):
        if steps:
            screen.add_class(max(step for step in steps if step[0] <= length)[1])


def keep_first_styles(screen: Screen[Any], event: ScreenResume) -> None:
    """Do not style the screen again when it comes up for the first time."""
    event.refresh_styles = event.refresh_styles and bool(screen.stack_updates)
