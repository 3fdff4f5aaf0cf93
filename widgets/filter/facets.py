"""What the filter says of each thing it can filter by; a click lets one choose."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import SafeText
from widgets.badges import STYLES
from widgets.cells import shorten

WIDEST = 16
"""Cells of a value."""
GAP = 3


@dataclass(frozen=True, slots=True)
class Facet:
    """One thing to filter by."""

    name: str
    value: SafeText
    """`any` where nothing is asked for."""
    is_set: bool


class FacetBar(Widget):
    """`status failed ▾   repository any ▾`."""

    @dataclass
    class Clicked(Message):
        """One of them was clicked."""

        name: str

    def __init__(self) -> None:
        super().__init__()
        self._facets: tuple[Facet, ...] = ()

    def show(self, facets: tuple[Facet, ...]) -> None:
        """Takes what the filter says."""
        if facets != self._facets:
            self._facets = facets
            self.refresh(layout=True)

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*((text, style) for part in self._parts() for text, style in part[1]))

    def on_click(self, event: events.Click) -> None:
        """Names the one under the pointer."""
        x = 0
        for name, part in self._parts():
            x += sum(cell_len(text) for text, _ in part)
            if event.x < x:
                self.post_message(self.Clicked(name))
                return

    def _parts(self) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
        for index, facet in enumerate(self._facets):
            style = STYLES["warn"] if facet.is_set else STYLES["quiet"]
            name = " " * GAP * bool(index) + facet.name
            value = shorten(facet.value, WIDEST)
            yield facet.name, ((f"{name} ", STYLES["quiet"]), (value, style), (" ▾", STYLES["quiet"]))
