"""The line above the activity: views, search, filters, and how many entries are shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.text import SafeText
from widgets.badges import STYLES
from widgets.clickable import ClickableLine, ClickablePart
from widgets.list_search import ListSearch

GAP = 2
PLACEHOLDERS: Final = ("/ search what was asked, sent or said", "/ search")


@dataclass(frozen=True, slots=True)
class Chip:
    """One filter."""

    name: str
    """The name that the program uses for it."""
    text: SafeText
    """The filter and its value as shown: `what any`."""
    is_set: bool = False


class ChipBar(ClickableLine):
    """A line of clickable chips."""

    DEFAULT_CSS = "ChipBar { width: auto; height: 1; }"

    @dataclass
    class Clicked(Message):
        """A chip was clicked."""

        name: str

    def __init__(self, *, id: str) -> None:
        super().__init__(self.parts, id=id)
        self._chips: tuple[Chip, ...] = ()

    def show(self, chips: tuple[Chip, ...]) -> None:
        """Show the chips."""
        if chips != self._chips:
            self._chips = chips
            self.refresh(layout=True)

    def parts(self) -> Iterator[ClickablePart]:
        """A part for each chip, with a gap behind it."""
        for chip in self._chips:
            yield Content.styled(chip.text, "$accent bold" if chip.is_set else STYLES["quiet"]), self.Clicked(chip.name)
            yield Content(" " * GAP), None


class ActivityBar(Horizontal):
    """Views, search, filters and extent."""

    DEFAULT_CSS = """
    ActivityBar {
        height: 1;
        padding: 0 1;
        ListSearch {
            width: 1fr; min-width: 8; max-width: 44; height: 1; margin: 0 2 0 0; padding: 0 1;
            border: none; background: $surface;
        }
        ListSearch:focus { border: none; background: $panel; }
        #activity-extent { width: auto; dock: right; }
    }
    """

    def compose(self) -> ComposeResult:
        """The parts, from left to right."""
        yield ChipBar(id="activity-views")
        yield ListSearch(PLACEHOLDERS)
        yield ChipBar(id="activity-filters")
        yield Static(id="activity-extent", markup=False)

    def show(self, views: tuple[Chip, ...], filters: tuple[Chip, ...], extent: str) -> None:
        """Show the views, the filters, and how many entries are shown."""
        self.query_one("#activity-views", ChipBar).show(views)
        self.query_one("#activity-filters", ChipBar).show(filters)
        self.query_one("#activity-extent", Static).update(Content.styled(extent, STYLES["quiet"]))
