"""The line above the runs: ready-made views, the search, and how much of how much is on show."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from app.text import safe_text
from storage.records import Coverage
from widgets.badges import STYLES
from widgets.times import day

LONGEST = 200
"""Characters of a search."""
WIDE = 110
"""From this width on nothing has to be abbreviated."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of how much is on show."""

    matching: int
    held: int
    """Runs in the cache."""
    coverage: Coverage
    is_filtered: bool


class ViewBar(Widget):
    """The views; the current one is marked."""

    @dataclass
    class Picked(Message):
        """A view was clicked."""

        index: int

    @dataclass
    class StatusClicked(Message):
        """The status filter was clicked."""

    def __init__(self, titles: tuple[str, ...]) -> None:
        super().__init__()
        self._titles = titles
        self._current = 0
        self._statuses: tuple[str, ...] = ()

    def show(self, current: int, statuses: tuple[str, ...]) -> None:
        """Takes the current view and the statuses filtered by."""
        self._current, self._statuses = current, statuses
        self.refresh(layout=True)

    def render(self) -> Content:
        """The line."""
        parts: list[tuple[str, str]] = []
        for index, title in enumerate(self._titles):
            here = index == self._current
            parts.append(("[" if here else " ", "$accent bold" if here else ""))
            parts.append((f"{title}]" if here else f"{title} ", "$accent bold" if here else "$foreground 70%"))
        if self._statuses:
            parts += [(" ", ""), (f"status {self._chip} ", STYLES["warn"])]
        return Content.assemble(*parts)

    @property
    def _chip(self) -> str:
        words = [safe_text(status, limit=14) for status in self._statuses]
        return words[0] if len(words) == 1 else f"{words[0]} +{len(words) - 1}"

    def on_click(self, event: events.Click) -> None:
        """Asks for the view under the pointer."""
        x = 0
        for index, title in enumerate(self._titles):
            if x <= event.x < x + len(title) + 2:
                self.post_message(self.Picked(index))
                return
            x += len(title) + 2
        self.post_message(self.StatusClicked())


class SearchInput(Input):
    """The search; escape clears it, enter and down go to the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down,tab", "leave(False)", "to the runs", key_display="enter", id="search.leave"),
        Binding("escape", "leave(True)", "clear", id="search.clear"),
    ]

    @dataclass
    class Left(Message):
        """The keys go back to the rows."""

    def __init__(self) -> None:
        super().__init__(placeholder="/ search run, repository, branch", compact=True, select_on_focus=False)

    def validate_value(self, value: str) -> str:
        """What was typed or pasted, with nothing in it that a terminal would obey."""
        return safe_text(value, limit=LONGEST)

    def action_leave(self, clear: bool) -> None:  # noqa: FBT001 — an action's argument has no name
        """Gives the keys back."""
        if clear:
            self.value = ""
        self.post_message(self.Left())


class FilterBar(Horizontal):
    """Views, search, extent."""

    def __init__(self, titles: tuple[str, ...]) -> None:
        super().__init__()
        self._titles = titles
        self._extent: tuple[Extent, datetime] | None = None

    def compose(self) -> ComposeResult:
        """From left to right."""
        yield ViewBar(self._titles)
        yield SearchInput()
        yield Static(markup=False, id="extent")

    def show(self, extent: Extent, now: datetime) -> None:
        """Takes how much of how much is on show."""
        self._extent = (extent, now)
        self._update()

    def on_resize(self) -> None:
        """Says it in as many words as fit."""
        self._update()

    def _update(self) -> None:
        if self._extent is not None:
            text = extent_text(*self._extent, wide=self.size.width >= WIDE)
            self.query_one("#extent", Static).update(Content.styled(text, STYLES["quiet"]))


def extent_text(extent: Extent, now: datetime, *, wide: bool) -> str:
    """`1,204 of 48,231 · complete since 1 May`, or less of it; never a part called the whole."""
    of = f"{extent.matching:,} of {extent.held:,}" if extent.is_filtered else f"{extent.held:,}"
    coverage = extent.coverage
    if coverage.whole:
        return f"{of} {'runs · complete' if wide and not extent.is_filtered else '· complete' if wide else '· all'}"
    if coverage.complete_since is None and not extent.held:
        return ""
    if coverage.complete_since is None:
        return f"{of} · {'history not complete yet' if wide else 'partial'}"
    since = day(coverage.complete_since, now)
    return f"{of} · {'complete since' if wide else 'since'} {since}"
