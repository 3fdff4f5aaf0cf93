"""A chart with a line per repository: success as a bar, p50 and p95 on one scale, each with its number."""

from dataclasses import dataclass
from math import log
from typing import Final

from textual.app import RenderResult
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from app.text import safe_text
from app.times import span
from storage.records.insights import RepositoryFigures
from widgets.badges import STYLES
from widgets.cells import fit
from widgets.insights.figures import COMPLETED, FAILED, InsightsView, sampled, seconds, share

MOST: Final = 12
"""The most repositories on the chart; the table has all of them."""
P50: Final = "●"
P95: Final = "▲"
_WIDE: Final = 100
_QUIET: Final = STYLES["quiet"]
_SHORTEST_S: Final = 1.0
_LONGEST_NAME: Final = 32

Segments = list[tuple[str, str]]


class RepositoryChart(Widget):
    """One line a repository, the busiest first."""

    DEFAULT_CSS = "RepositoryChart { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self._view: InsightsView | None = None

    def show(self, view: InsightsView) -> None:
        """Show the figures."""
        self._view = view
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A header, a line each, and a line of notes."""
        del container, viewport, width
        return len(self._lines(80)) if self._view is not None else 1

    def render(self) -> RenderResult:
        """The lines."""
        if self._view is None:
            return Content()
        return Content("\n").join(Content.assemble(*line) for line in self._lines(self.size.width))

    def _lines(self, width: int) -> list[Segments]:
        if self._view is None:
            return []
        figures = self._view.repositories
        shown = figures[:MOST]
        scale = _Scale.of(shown)
        lines = [_head(scale, width), *(_line(each, scale, width) for each in shown)]
        notes = []
        if len(figures) > len(shown):
            notes.append(f"{len(shown)} of {len(figures):,} repositories, the busiest; t shows all.")
        if sampled(figures):
            notes.append("Durations are of each repository's newest 2,000 finished runs.")
        return [*lines, *([[(" ".join(notes), _QUIET)]] if notes else [])]


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic scale of durations, on which seconds and hours both fit."""

    shortest_s: float
    longest_s: float

    @classmethod
    def of(cls, figures: tuple[RepositoryFigures, ...]) -> "_Scale":
        """A scale for all of these figures."""
        shortest = min((each.p50_s for each in figures if each.p50_s is not None), default=_SHORTEST_S)
        longest = max((each.p95_s for each in figures if each.p95_s is not None), default=_SHORTEST_S)
        shortest = max(shortest, _SHORTEST_S)
        return cls(shortest, max(longest, 2 * shortest))

    def place(self, value_s: float, cells: int) -> int:
        """The cell of a duration."""
        part = log(max(value_s, self.shortest_s) / self.shortest_s) / log(self.longest_s / self.shortest_s)
        return round(part * (cells - 1))


def _widths(width: int) -> tuple[int, int, int]:
    """Cells of the name, the bar and the scale of durations; 0: a narrow chart has no scale."""
    if width < _WIDE:
        bar = 10
        return max(12, width - bar - 41), bar, 0
    bar = 20
    rest = width - bar - 44
    name = min(_LONGEST_NAME, rest // 2)
    return name, bar, rest - name


def _head(scale: _Scale, width: int) -> Segments:
    name, bar, line = _widths(width)
    text = f"{fit('repository', name)} {'runs':>7}  {fit('success', bar)} {'':>4} {'failed':>6}  "
    text += f"{P50 + ' p50':>8} {P95 + ' p95':>8}"
    return [
        (
            text
            + ("   " + fit(f"{span(scale.shortest_s)} to {span(scale.longest_s)}, logarithmic", line) if line else ""),
            _QUIET,
        )
    ]


def _line(each: RepositoryFigures, scale: _Scale, width: int) -> Segments:
    name, bar, line = _widths(width)
    success = each.success
    full = 0 if success is None else round(success * bar)
    # Only an exact 0% or 100% may look like it.
    full = min(bar - 1, max(1, full)) if success is not None and 0 < success < 1 else full
    empty = 0 if success is None else bar - full
    parts: Segments = [
        (f"{fit(safe_text(each.repository, limit=200), name, 'middle')} ", ""),
        (f"{each.total:>7,}  ", _QUIET),
        (COMPLETED.glyph * full, COMPLETED.style),
        (FAILED.glyph * empty, FAILED.style),
        (" " * (bar - full - empty), ""),
        (f" {share(success):>4}", "bold"),
        (f" {each.failed:>6,}", FAILED.style if each.failed else _QUIET),
        (f"  {seconds(each.p50_s):>8} {seconds(each.p95_s):>8}", ""),
    ]
    return [*parts, ("   ", ""), *_durations(each, scale, line)] if line else parts


def _durations(each: RepositoryFigures, scale: _Scale, cells: int) -> Segments:
    if each.p50_s is None or each.p95_s is None:
        return []
    low, high = scale.place(each.p50_s, cells), scale.place(each.p95_s, cells)
    between = "─" * max(0, high - low - 1)
    head = [(" " * low, ""), (P50, STYLES["busy"]), (between, _QUIET)]
    return [*head, (P95, STYLES["warn"])] if high > low else head
