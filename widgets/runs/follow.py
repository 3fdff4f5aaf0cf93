"""Lines for followed runs, with their time and the usual time, and for batches, with their progress and runs."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content

from app.engine.text import SafeText, safe_text
from app.engine.times import ago, span
from widgets.kit.badges import STYLES, Badge, StyledText, Tone, run_badge
from widgets.kit.cells import fit, shorten
from widgets.kit.line_text import SteadyText, clickable

if TYPE_CHECKING:
    from storage.records.following import PinnedRun, RunDurations

STATUS: Final = 13
WORDS_FROM: Final = 110
"""The width from which on words follow the glyphs."""
FIGURES: Final = 64
"""The width from which on the repository's usual durations are shown."""
_DURATION_CELLS: Final = 8
MIN_NAME: Final = 8
"""The fewest cells in which a name is readable."""
_QUIET: Final = STYLES["quiet"]
MARGIN: Final = 1
GAP: Final = 2
"""Cells behind a name."""


class BatchLine(Struct, frozen=True):
    """One run of a batch."""

    badge: Badge
    run_id: SafeText
    about: SafeText
    """The run's repository and branch, or why nothing was done for it."""
    opens: str | None = None
    """The run that was started or continued, or None."""


class BatchView(Struct, frozen=True):
    """A batch as shown in the strip and in its list."""

    key: str
    title: SafeText
    lines: tuple[BatchLine, ...]
    confirmed: int
    unknown: int
    made: int
    """Runs that were started or continued."""
    ended: int
    failed: int
    is_sending: bool

    @property
    def outcome(self) -> Badge:
        """The number of runs whose write took effect."""
        text = f"{self.confirmed:,} of {len(self.lines):,}"
        if self.is_sending:
            return Badge("●", text, "busy")
        if self.unknown:
            return Badge("?", text, "warn")
        if self.confirmed == len(self.lines):
            return Badge("✓", text, "good")
        if self.confirmed:
            return Badge("⊘", text, "warn")
        return Badge("✗", text, "bad")

    @property
    def is_over(self) -> bool:
        return not self.is_sending and not self.unknown and self.ended == self.made

    @property
    def progress(self) -> SafeText:
        failed = f", {self.failed:,} failed" if self.failed else ""
        return safe_text(f"{self.ended:,} of {self.made:,} done{failed}")

    def line(self, width: int) -> Content:
        badge = self.outcome
        if self.confirmed == len(self.lines) and not self.is_sending:
            badge = Badge("✗", "", "bad") if self.failed else Badge("✓", "", "good")
            badge = Badge("●", "", "busy") if self.ended < self.made else badge
        unknown = f", {self.unknown:,} unknown" if self.unknown else ""
        sent = f" {badge.word} sent{unknown}" if badge.word else ""
        progress = f" {self.progress}" if self.made else "", STYLES["bad"] if self.failed else ""
        text = Content.assemble((f"{badge.glyph}{sent}", f"{badge.style} bold"), progress)
        title = shorten(self.title, max(0, width - text.cell_length - 2))
        return Content.assemble(text, (f"  {title}", _QUIET))

    def run_list(self, width: int) -> list[Content]:
        """The batch's runs, each on a line of at most `width` cells."""
        id_width = min(max((cell_len(line.run_id) for line in self.lines), default=0), (width - STATUS) // 2)
        lines = []
        for line in self.lines:
            status = fit(line.badge.text, STATUS)
            run_id = fit(line.run_id, id_width, "middle")
            about = shorten(line.about, max(0, width - STATUS - id_width - 3), "middle" if line.opens else "end")
            parts = (f"{status} ", line.badge.style), (run_id, "bold"), (f"  {about}", _QUIET)
            lines.append(Content.assemble(*parts))
        return lines


def follow_line(pinned: "PinnedRun", now: datetime, as_of: datetime, width: int) -> Content:
    """The line in at most `width` cells; active runs are timed up to when the service last answered."""
    row = pinned.row
    durations = pinned.durations
    if row is None:
        name = shorten(safe_text(pinned.run_id, limit=60), max(MIN_NAME, width - 28), "middle")
        return Content.assemble(("? ", STYLES["warn"]), name, ("  no longer in the cache", _QUIET))
    # Cells of the status in words, of the bar, and of the usual durations; 0: not shown.
    for_word, for_bar, for_figures = (0, 12, 18) if width >= FIGURES else (0, MIN_NAME, 0)
    if width >= WORDS_FROM:
        for_word, for_bar, for_figures = 12, 28, 36
    badge = run_badge(row.status, is_final=row.is_final)
    tone: Tone = "warn" if pinned.is_stuck else badge.tone
    word = f"{badge.word} !" if pinned.is_stuck else badge.word
    head = f"{badge.glyph} {fit(word, for_word)} " if for_word else f"{badge.glyph} "
    # The branch is dropped if both names do not fit.
    room = width - cell_len(head) - _DURATION_CELLS - for_bar - for_figures
    for_branch = (room - 2 * GAP) * 3 // 5
    for_repository = room - GAP if for_branch < MIN_NAME else room - 2 * GAP - for_branch
    parts: list[StyledText] = [(head, f"{STYLES[tone]} bold")]
    parts += [(fit(safe_text(row.repository, limit=120), max(0, for_repository), "middle"), ""), (" " * GAP, "")]
    if for_branch >= MIN_NAME:
        parts += [(fit(safe_text(row.branch_name, limit=200), for_branch), _QUIET), (" " * GAP, "")]
    if row.presence == "lost":
        remark = fit("no longer shown by the service", _DURATION_CELLS + for_bar + for_figures)
        return Content.assemble(*parts, (remark, STYLES["warn"]))
    seconds = row.took.until(as_of) or 0.0
    is_late = not row.is_final and durations is not None and seconds > durations.p95_s
    if row.is_final:
        text = "ended" if row.updated_at is None else ago(row.updated_at, now)
        text = f"ended {text}" if for_bar > MIN_NAME and row.updated_at is not None else text
        took = span(seconds)
        shown = (fit(text, for_bar), _QUIET)
    else:
        took = span(seconds) if as_of == now else f"≥{span(seconds)}"
        drawn = bar(seconds, durations, for_bar) if durations is not None else " " * for_bar
        shown = drawn, STYLES["warn" if is_late else "busy"]
    figures = "  none ended yet"
    if durations is not None:
        median = span(durations.median_s)
        p95 = span(durations.p95_s)
        figures = f"  usually {median}, 95% within {p95}" if for_word else f"  ~{median} ≤{p95}"
    parts += [(f"{took:>{_DURATION_CELLS - 1}} ", f"{STYLES['warn']} bold" if is_late else "bold"), shown]
    return Content.assemble(*parts, (fit(figures, for_figures) if for_figures else "", _QUIET))


def bar(seconds: float, durations: "RunDurations", cells: int) -> str:
    """The time so far on a scale of the repository's durations: `┊` the median, `│` the 95th percentile."""
    scale_s = max(durations.p95_s * 1.25, 1.0)

    def at(value_s: float) -> int:
        return min(cells - 1, int(value_s / scale_s * cells))

    filled = at(seconds)
    line = ["━" if index < filled else "·" for index in range(cells)]
    line[at(durations.median_s)] = "┊"
    line[at(durations.p95_s)] = "│"
    line[filled] = "▸" if seconds >= scale_s else "╸"
    return "".join(line)


class FollowStrip(SteadyText):
    """The first followed runs and batches, and the number of further ones; hidden when there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._items: tuple[PinnedRun | BatchView, ...] = ()
        self._times: tuple[datetime, datetime] | None = None
        self.display = self.auto_links = False

    def show(
        self, pins: "tuple[PinnedRun, ...]", batches: tuple[BatchView, ...], now: datetime, as_of: datetime
    ) -> None:
        """Show the followed runs, the active ones first; batches under way are before them, and ended ones after."""
        self._items = (
            *(batch for batch in batches if not batch.is_over),
            *pins,
            *(batch for batch in batches if batch.is_over),
        )
        self.display = bool(self._items)
        self._times = (now, as_of)
        self.on_resize()

    def on_resize(self) -> None:
        """Draw again; a click opens the run or the batch, or the list of all."""
        if self._times is None or not self._items:
            return
        more = f" +{len(self._items) - 1} F" if len(self._items) > 1 else ""
        item = self._items[0]
        width = self.size.width - 2 * MARGIN - len(more)
        if isinstance(item, BatchView):
            line = item.line(width)
            opens = ("screen.batch", item.key)
        else:
            line = follow_line(item, *self._times, width)
            opens = ("app.open_run", item.run_id)
        line = clickable(Content.assemble(" " * MARGIN, line, " " * (width - line.cell_length)), *opens)
        line += clickable(Content.styled(more, _QUIET), "app.followed")
        self.update(line, layout=False)
