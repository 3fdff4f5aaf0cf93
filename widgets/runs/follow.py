"""The followed runs: a line each, with how long it takes and how long its repository's runs usually take."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from app.engine.text import safe_text
from app.engine.times import ago, span
from storage.records import RunRow
from widgets.actions.batch import BatchView
from widgets.kit.badges import STYLES, StyledText, Tone, run_badge
from widgets.kit.cells import fit, shorten
from widgets.kit.clickable import clickable

if TYPE_CHECKING:
    from storage.records.following import PinnedRun, RunDurations


WORDY: Final = 110
"""From this width on, words follow the glyphs."""
FIGURES: Final = 64
"""From this width on, the repository's usual durations are shown."""
_TOOK: Final = 8
LEAST: Final = 8
"""The fewest cells in which a name is readable."""
SCALE: Final = 1.25
"""The end of the bar, as a multiple of the 95th percentile."""
_QUIET: Final = STYLES["quiet"]
MARGIN: Final = 1


class LineLayout(Struct, frozen=True):
    """The widths of a line's columns."""

    word: int
    """Cells of the status in words; 0: glyph only."""
    bar: int
    figures: int
    """Cells of the repository's usual durations; 0: not shown."""


def follow_line(pinned: "PinnedRun", now: datetime, as_of: datetime, width: int) -> Content:
    """The line in at most `width` cells; active runs are timed up to when the service last answered."""
    row = pinned.row
    if row is None:
        name = shorten(safe_text(pinned.run_id, limit=60), max(LEAST, width - 28), "middle")
        return Content.assemble(("? ", STYLES["warn"]), name, ("  no longer in the cache", _QUIET))
    badge = run_badge(row.status, is_final=row.is_final)
    tone: Tone = "warn" if pinned.is_stuck else badge.tone
    word = f"{badge.word} !" if pinned.is_stuck else badge.word
    layout = LineLayout(word=0, bar=12, figures=18) if width >= FIGURES else LineLayout(word=0, bar=LEAST, figures=0)
    if width >= WORDY:
        layout = LineLayout(word=12, bar=28, figures=36)
    head = f"{badge.glyph} {fit(word, layout.word)} " if layout.word else f"{badge.glyph} "
    names = _names(row, width - cell_len(head) - _TOOK - layout.bar - layout.figures)
    return Content.assemble((head, f"{STYLES[tone]} bold"), *names, *_times(pinned, now, as_of, layout))


def took_s(pinned: "PinnedRun", as_of: datetime) -> float:
    """Seconds that the run worked, as observed."""
    return (pinned.row.took.until(as_of) if pinned.row is not None else None) or 0.0


def bar(seconds: float, durations: "RunDurations", cells: int) -> str:
    """The time so far on a scale of the repository's durations: `┊` the median, `│` the 95th percentile."""
    scale_s = max(durations.p95_s * SCALE, 1.0)

    def at(value_s: float) -> int:
        return min(cells - 1, int(value_s / scale_s * cells))

    filled = at(seconds) if seconds < scale_s else cells - 1
    line = ["━" if index < filled else "·" for index in range(cells)]
    line[at(durations.median_s)] = "┊"
    line[at(durations.p95_s)] = "│"
    line[filled] = "▸" if seconds >= scale_s else "╸"
    return "".join(line)


def _names(row: RunRow, room: int) -> list[StyledText]:
    """Repository and branch in exactly this many cells; the branch is dropped if they do not both fit."""
    repository = safe_text(row.repository, limit=120)
    branch = safe_text(row.branch_name, limit=200)
    gap = 2
    for_branch = (room - 2 * gap) * 3 // 5
    if for_branch < LEAST:
        return [(fit(repository, max(0, room - gap), "middle"), ""), (" " * gap, "")]
    for_repository = room - 2 * gap - for_branch
    return [(fit(repository, for_repository, "middle"), ""), ("  ", ""), (fit(branch, for_branch), _QUIET), ("  ", "")]


def _times(pinned: "PinnedRun", now: datetime, as_of: datetime, layout: LineLayout) -> list[StyledText]:
    row, durations = pinned.row, pinned.durations
    if row is None:
        return []
    if row.presence == "lost":
        return [(fit("no longer shown by the service", _TOOK + layout.bar + layout.figures), STYLES["warn"])]
    seconds = took_s(pinned, as_of)
    figures = "  none ended yet"
    if durations is not None:
        median, p95 = span(durations.median_s), span(durations.p95_s)
        figures = f"  usually {median}, 95% within {p95}" if layout.word else f"  ~{median} ≤{p95}"
    usual = (fit(figures, layout.figures) if layout.figures else "", _QUIET)
    if row.is_final:
        ended = ago(row.updated_at, now) if row.updated_at is not None else "ended"
        ended = f"ended {ended}" if layout.bar > LEAST and row.updated_at is not None else ended
        return [(f"{span(seconds):>{_TOOK - 1}} ", "bold"), (fit(ended, layout.bar), _QUIET), usual]
    late = durations is not None and seconds > durations.p95_s
    so_far = span(seconds) if as_of == now else f"≥{span(seconds)}"
    drawn = bar(seconds, durations, layout.bar) if durations is not None else " " * layout.bar
    tone: Tone = "warn" if late else "busy"
    return [(f"{so_far:>{_TOOK - 1}} ", f"{STYLES['warn']} bold" if late else "bold"), (drawn, STYLES[tone]), usual]


class FollowStrip(Widget):
    """The first of the followed runs and batches, and the number of the others; hidden while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._items: tuple[PinnedRun | BatchView, ...] = ()
        self._line = Content()
        self._times: tuple[datetime, datetime] | None = None
        self.display = self.auto_links = False

    def show(
        self, pins: "tuple[PinnedRun, ...]", batches: tuple[BatchView, ...], now: datetime, as_of: datetime
    ) -> None:
        """Show the followed runs, the active ones first; batches under way are before them, and ended ones after."""
        ended = tuple(batch for batch in batches if batch.is_over)
        self._items = (*(batch for batch in batches if not batch.is_over), *pins, *ended)
        self.display = bool(self._items)
        self._times = (now, as_of)
        self.on_resize()

    def render(self) -> Content:
        """The line."""
        return self._line

    def on_resize(self) -> None:
        """Draw again; a click opens the run or the batch, or the list of all."""
        if self._times is None or not self._items:
            return
        more = f" +{len(self._items) - 1} F" if len(self._items) > 1 else ""
        item, width = self._items[0], self.size.width - 2 * MARGIN - len(more)
        if isinstance(item, BatchView):
            line, opens = item.line(width), ("screen.batch", item.key)
        else:
            line, opens = follow_line(item, *self._times, width), ("app.open_run", item.run_id)
        line = clickable(Content.assemble(" " * MARGIN, line, " " * (width - line.cell_length)), *opens)
        line += clickable(Content.styled(more, STYLES["quiet"]), "app.followed")
        if not line.is_same(self._line):
            self._line = line
            self.refresh()
