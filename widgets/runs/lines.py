"""The lines of the run table: titles, runs, missing runs, heads of groups, and the notice that replaces them."""

from collections.abc import Iterator
from typing import Final, Self

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from app.engine.text import SafeText, safe_text
from storage.records import RunSort
from storage.records.query import RunGroup
from widgets.frame import Notice, notice_line
from widgets.kit.badges import STYLES, Tone
from widgets.kit.cells import CELL_PADDING, fit, shorten
from widgets.runs.columns import PlacedRunColumn, RowFacts, RunLayout

PARTS: Final = (*STYLES, "header", "sorted", "cursor", "cursor-resting", "mark", "found", "unseen")

SEARCHED: Final = frozenset({"repository", "branch", "run", "asked", "result", "agent"})
MIN_CUT_CELLS: Final = 4
"""The fewest cells shown of a column that the right edge cuts."""
TAIL_MARGIN: Final = 6
"""Cells that are neither rule nor text: the cursor's mark, a gap on both sides of the text, and the right margin."""


def found_in(shown: str, words: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The ranges of these case-folded words in a cell's text."""
    folded = shown.casefold()
    if len(folded) != len(shown):
        return  # The columns would not fit.
    for word in words:
        start = folded.find(word)
        while start >= 0:
            yield start, start + len(word)
            start = folded.find(word, start + len(word))


class TableRenderer(Struct, frozen=True):
    """Draws the table's lines; its styles are looked up once per theme."""

    base: Style
    styles: dict[str, Style]

    @classmethod
    def of(cls, widget: Widget) -> Self:
        styles = {part: widget.get_component_rich_style(f"run-table--{part}") for part in PARTS}
        # Without their backgrounds: the cursor line's must show.
        for part in (*STYLES, "mark", "found"):
            style = styles[part]
            styles[part] = Style(color=style.color, bold=style.bold, underline=style.underline)
        return cls(widget.rich_style, styles)

    def header(self, layout: RunLayout, sort: RunSort, unseen: int, width: int, scroll_x: int) -> Strip:
        segments = list[Segment]()
        x = 0
        plain = self.styles["header"]
        for placed in layout.placed:
            title = placed.column.title
            style = plain
            cells = _visible(placed, width, scroll_x)
            if title == sort.column:
                title = f"{title} {'↓' if sort.descending else '↑'}"
                style = self.styles["sorted"]
            segments += [Segment(" " * (placed.x - x), plain), Segment(fit(title, cells), style)]
            x = placed.x + cells
        strip = _scroll(segments, layout, width, scroll_x, plain)
        more = ""
        if layout.width > width:
            more = "▸" if scroll_x < layout.width - width else "◂"
        if not (note := unseen_note(unseen) + more):
            return strip
        tail = Segment(note, self.styles["unseen"] if unseen else plain)
        return Strip.join([strip.crop(0, width - len(note)), Strip([tail], len(note))])

    def row(
        self,
        facts: RowFacts,
        words: tuple[str, ...],
        layout: RunLayout,
        width: int,
        scroll_x: int,
        background: Style,
        *,
        at_cursor: bool,
        is_marked: bool,
    ) -> Strip:
        """A run's line of `width` cells, from the cell `scroll_x`."""
        signs = "▌" if at_cursor else " ", "■" if is_marked else " "
        segments = [Segment(sign, background + self.styles["mark"]) for sign in signs]
        x = 2
        for placed in layout.placed:
            segments.append(Segment(" " * (placed.x - x), background))
            column = placed.column
            cells = _visible(placed, width, scroll_x)
            text, tone = column.cell(facts)
            shown = fit(text, cells, column.cut)
            done = 0
            style = background + self.styles[tone]
            if at_cursor and column.title == "repository":
                style += Style(bold=True)
            positions = sorted(found_in(shown, words)) if column.title in SEARCHED else ()
            for start, end in positions:
                if start >= done:
                    lit = style + self.styles["found"]
                    segments += [Segment(shown[done:start], style), Segment(shown[start:end], lit)]
                    done = end
            segments.append(Segment(shown[done:], style))
            x = placed.x + cells
        return _scroll(segments, layout, width, scroll_x, background)

    def missing(self, texts: tuple[SafeText, ...], width: int, background: Style, *, at_cursor: bool) -> Strip:
        """A line for missing runs: the first of the texts that fits, between two rules."""
        text = shorten(next((text for text in texts if cell_len(text) + TAIL_MARGIN <= width), texts[-1]), width)
        rules = max(0, width - cell_len(text) - TAIL_MARGIN)
        segments = [
            Segment("▌ " if at_cursor else "  ", background + self.styles["mark"]),
            Segment("─" * (rules // 2) + " ", background + self.styles["quiet"]),
            Segment(text, background + self.styles["plain" if at_cursor else "quiet"]),
            Segment(" " + "─" * (rules - rules // 2), background + self.styles["quiet"]),
        ]
        return Strip(segments).crop_extend(0, width, background)

    def head(self, group: RunGroup, width: int, background: Style, *, at_cursor: bool) -> Strip:
        """The line that heads a group: whether it is folded, its name, and how many of its runs need a look."""
        segments = [Segment("▌ " if at_cursor else "  ", background + self.styles["mark"])]
        for text, tone in head_parts(group, width - 2):
            style = background + self.styles[tone]
            segments.append(Segment(text, style + Style(bold=True) if tone == "plain" else style))
        return Strip(segments).extend_cell_length(width, background).crop(0, width)

    def placeholder(self, layout: RunLayout, width: int, *, at_cursor: bool) -> Strip:
        background = self.styles["cursor"] if at_cursor else self.base
        text = "".join(" " * (p.x if i == 0 else 2) + fit("·", p.width) for i, p in enumerate(layout.placed))
        return Strip([Segment(fit(text, width), background + self.styles["quiet"])], width)

    def notice(self, notice: Notice | None, y: int, width: int, height: int) -> Strip:
        text, tone, is_title = notice_line(notice, y, width, height)
        return Strip([Segment(text, self.base + self.styles[tone] + Style(bold=is_title or None))], width)


def head_parts(group: RunGroup, width: int) -> Iterator[tuple[str, Tone]]:
    """The parts of a group's line; each number has a column, the worst first."""
    name = f"{group.others:,} more groups" if group.others else safe_text(group.name, limit=200) or "(no branch)"
    fold = "▸" if group.is_folded else "▾"
    glyph = " " if group.others else fold
    room = max(12, min(44, width - 57))  # The room left by the numbers.
    yield f"{glyph} {fit(name, room, 'middle')}", "plain"
    if group.others:
        yield f"  {group.runs:>7,} runs  narrow the query to see them", "quiet"
        return
    yield f"  {group.runs:>7,} {'run ' if group.runs == 1 else 'runs'}", "quiet"
    numbers: tuple[tuple[int, str, int, Tone], ...] = (
        (group.failed, f"✗ {group.failed:,} failed", 15, "bad"),
        (group.stuck, f"! {group.stuck:,} stuck", 12, "warn"),
        (group.active, f"● {group.active:,} active", 14, "busy"),
    )
    for number, text, cells, tone in numbers:
        yield f"{text if number else '':>{cells}}", tone


def unseen_note(unseen: int) -> str:
    """The number of new runs above the view, as text; empty if there are none."""
    return f" {unseen:,} new ↑ " if unseen else ""


def _visible(placed: PlacedRunColumn, width: int, scroll_x: int) -> int:
    """The width of a column up to the right edge of the view; an unreadably short rest is dropped."""
    cells = min(placed.width, scroll_x + width - CELL_PADDING - placed.x)
    return cells if cells == placed.width or cells >= MIN_CUT_CELLS else 0


def _scroll(segments: list[Segment], layout: RunLayout, width: int, scroll_x: int, background: Style) -> Strip:
    strip = Strip(segments).extend_cell_length(max(width, layout.width), background)
    if not scroll_x:
        return strip.crop(0, width)
    frozen = layout.frozen_width
    parts = strip.crop(0, frozen), strip.crop(frozen + scroll_x, scroll_x + width)
    return Strip.join(parts).crop_extend(0, width, background)
