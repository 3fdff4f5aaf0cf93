"""The table of organizations: every attempt a line, the cursor on an attempt and not on a row."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from widgets.badges import STYLES, Tone
from widgets.cells import fit
from widgets.notice import Notice
from widgets.organization_columns import Column, columns_for, part_of
from widgets.organization_words import Attempt, OrganizationLine, line_of

HEADER: Final = 1
"""Lines above the first row."""


class OrganizationTable(ScrollView, can_focus=True):
    """Attempts, newest first; only lines that read differently are painted again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "organization-table--header",
        "organization-table--cursor",
        "organization-table--resting",
        "organization-table--mark",
        *(f"organization-table--{tone}" for tone in STYLES),
    }
    DEFAULT_CSS = """
    OrganizationTable {
        height: 1fr;
        scrollbar-size-horizontal: 0;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $panel;
        & > .organization-table--header { color: $foreground 55%; }
        & > .organization-table--cursor { background: $primary 18%; }
        & > .organization-table--resting { background: $panel; }
        & > .organization-table--mark { color: $accent; }
        & > .organization-table--good { color: $success; }
        & > .organization-table--bad { color: $error; }
        & > .organization-table--busy { color: $primary; }
        & > .organization-table--wait { color: $secondary; }
        & > .organization-table--warn { color: $warning; }
        & > .organization-table--plain { color: $foreground; }
        & > .organization-table--quiet { color: $foreground 65%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", show=False),
        Binding("home,g", "to(0)", "Newest", show=False),
        Binding("end,G", "to(-1)", "Oldest", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    @dataclass
    class Highlighted(Message):
        """The cursor is on another attempt, or that attempt changed."""

        attempt: Attempt | None
        """None: there are none."""

    @dataclass
    class Chosen(Message):
        """An attempt was opened."""

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._now = now
        self._attempts: tuple[Attempt, ...] = ()
        self._cursor = 0
        self._painted: dict[int, OrganizationLine] = {}
        self._notice: Notice | None = None

    @property
    def attempt(self) -> Attempt | None:
        """The one under the cursor."""
        return self._attempts[self._cursor] if self._attempts else None

    def show(self, attempts: tuple[Attempt, ...]) -> None:
        """Takes the attempts, newest first; the cursor stays on its own, and so does what is on show."""
        before, held = self._attempts, self.attempt
        if attempts == before:
            return
        self._attempts = attempts
        ids = [attempt.action.action_id for attempt in attempts]
        here = ids.index(held.action.action_id) if held and held.action.action_id in ids else 0
        moved = here - self._cursor if before else 0
        self._cursor = here
        self.virtual_size = Size(0, len(attempts) + HEADER)
        if moved and self.scroll_offset.y:
            self.scroll_to(y=self.scroll_offset.y + moved, animate=False)
        if len(before) != len(attempts) or moved:
            self.refresh()
        else:
            self.tick(self._now)
        self.post_message(self.Highlighted(self.attempt))

    def say(self, notice: Notice | None) -> None:
        """What to say where rows would be, while there are none."""
        if notice != self._notice:
            self._notice = notice
            self.refresh()

    def tick(self, now: datetime) -> None:
        """Moves the clock."""
        self._now = now
        for index in self._visible():
            if self._painted.get(index) != line_of(self._attempts[index], now):
                self._repaint(index)

    def action_move(self, step: int) -> None:
        """The next line, or the one before."""
        self._go(self._cursor + step)

    def action_page(self, pages: int) -> None:
        """A page on, or back."""
        self._go(self._cursor + pages * max(1, self.size.height - HEADER - 1))

    def action_to(self, index: int) -> None:
        """The first line, or the last."""
        self._go(index if index >= 0 else len(self._attempts) + index)

    def action_choose(self) -> None:
        """Opens the attempt."""
        if self._attempts:
            self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        """Goes to the line under the pointer; a second click opens it."""
        index = event.y - HEADER + self.scroll_offset.y
        if event.y >= HEADER and index < len(self._attempts):
            self._go(index)
            if event.chain > 1:
                self.action_choose()

    def render_line(self, y: int) -> Strip:
        """One line of what is on show."""
        width = self.scrollable_content_region.width
        if not self._attempts:
            return self._notice_line(y, width)
        if y < HEADER:
            return self._header(width)
        index = y - HEADER + self.scroll_offset.y
        if index >= len(self._attempts):
            return Strip.blank(width, self.rich_style)
        line = self._painted[index] = line_of(self._attempts[index], self._now)
        return self._row(line, width, is_cursor=index == self._cursor)

    def watch_has_focus(self, value: bool) -> None:  # noqa: FBT001 — Textual's signature
        """The cursor's line says whether the keys come here."""
        super().watch_has_focus(value)
        self._repaint(self._cursor)

    def _go(self, index: int) -> None:
        index = max(0, min(index, len(self._attempts) - 1))
        if not self._attempts or index == self._cursor:
            return
        before, self._cursor = self._cursor, index
        top, room = self.scroll_offset.y, max(1, self.size.height - HEADER)
        if not top <= index < top + room:
            self.scroll_to(y=index if index < top else index - room + 1, animate=False)
        self._repaint(before)
        self._repaint(index)
        self.post_message(self.Highlighted(self.attempt))

    def _visible(self) -> range:
        top = self.scroll_offset.y
        return range(top, min(len(self._attempts), top + max(0, self.size.height - HEADER)))

    def _repaint(self, index: int) -> None:
        self.refresh(Region(0, index - self.scroll_offset.y + HEADER, self.size.width, 1))

    def _style(self, part: str) -> Style:
        return self.get_component_rich_style(f"organization-table--{part}")

    def _colour(self, part: str) -> Style:
        """The part's colour alone, for whatever ground it stands on."""
        return Style(color=self._style(part).color)

    def _header(self, width: int) -> Strip:
        titles = " " + " ".join(fit(column.title, column.width) for column in columns_for(width))
        return Strip([Segment(fit(titles, width), self._style("header"))], width)

    def _row(self, line: OrganizationLine, width: int, *, is_cursor: bool) -> Strip:
        ground = self._style("cursor" if self.has_focus else "resting") if is_cursor else self.rich_style
        segments = [Segment("▌" if is_cursor else " ", ground + self._colour("mark"))]
        for column in columns_for(width):
            text, tone = self._cell(line, column)
            segments.append(Segment(f"{fit(text, column.width)} ", ground + self._colour(tone)))
        return Strip(segments).extend_cell_length(width, ground).crop(0, width)

    def _cell(self, line: OrganizationLine, column: Column) -> tuple[str, Tone]:
        return (line.badge.text, line.badge.tone) if column.title == "state" else part_of(line, column)

    def _notice_line(self, y: int, width: int) -> Strip:
        notice, ground = self._notice, self.rich_style
        if notice is None:
            return Strip.blank(width, ground)
        lines = (f"{notice.glyph}  {notice.title}", "", *notice.lines)
        at = y - max(0, (self.size.height - len(lines)) // 3)
        if not 0 <= at < len(lines):
            return Strip.blank(width, ground)
        style = self._colour(notice.tone) + Style(bold=True) if at == 0 else self._colour("quiet")
        return Strip([Segment(fit(lines[at].center(width), width), ground + style)], width)
