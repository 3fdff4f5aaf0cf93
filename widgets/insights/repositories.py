"""A row per repository: success as a bar, p50 and p95 on one scale, each with its number."""

from dataclasses import dataclass
from math import log
from typing import Final

from app.text import safe_text
from app.times import span
from storage.records.insights import RepositoryFigures
from widgets.cells import fit
from widgets.insights.figures import COMPLETED, FAILED, InsightsView, sampled, seconds, share
from widgets.lead_list import Block, Piece, Pieces

P50: Final = "●"
P95: Final = "▲"
_WIDE: Final = 100
_WITH_TIMES: Final = 63
"""From this width on there is room for the durations."""
_SHORTEST_S: Final = 1.0
_LONGEST_NAME: Final = 32


def repository_blocks(view: InsightsView, width: int) -> list[Block]:
    """The titles, a row each, the busiest first, and a remark about the durations."""
    scale = _Scale.of(view.repositories)
    rows = [Block((_line(each, scale, width),), f"repo:{each.repository}", leads=True) for each in view.repositories]
    note = "Durations are of each repository's newest 2,000 finished runs."
    notes = [Block((((note, "quiet"),),))] if sampled(view.repositories) else []
    return [Block((_head(scale, width),)), *rows, *notes]


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


def _head(scale: _Scale, width: int) -> Pieces:
    name, bar, line = _widths(width)
    text = f"{fit('repository', name)} {'runs':>7}  {fit('success', bar)} {'':>4} {'failed':>6}  "
    text += f"{P50 + ' p50':>8} {P95 + ' p95':>8}" if width >= _WITH_TIMES else ""
    if line:
        text += "   " + fit(f"{span(scale.shortest_s)} to {span(scale.longest_s)}, log scale", line)
    return ((text, "quiet"),)


def _line(each: RepositoryFigures, scale: _Scale, width: int) -> Pieces:
    name, bar, line = _widths(width)
    success = each.success
    full = 0 if success is None else round(success * bar)
    # Only an exact 0% or 100% may look like it.
    full = min(bar - 1, max(1, full)) if success is not None and 0 < success < 1 else full
    empty = 0 if success is None else bar - full
    parts: list[Piece] = [
        (f"{fit(safe_text(each.repository, limit=200), name, 'middle')} ", "plain"),
        (f"{each.total:>7,}  ", "quiet"),
        (COMPLETED.glyph * full, COMPLETED.tone),
        (FAILED.glyph * empty, FAILED.tone),
        (" " * (bar - full - empty), "quiet"),
        (f" {share(success):>4}", "strong"),
        (f" {each.failed:>6,}", FAILED.tone if each.failed else "quiet"),
    ]
    if width >= _WITH_TIMES:
        parts.append((f"  {seconds(each.p50_s):>8} {seconds(each.p95_s):>8}", "plain"))
    return (*parts, ("   ", "quiet"), *_durations(each, scale, line)) if line else tuple(parts)


def _durations(each: RepositoryFigures, scale: _Scale, cells: int) -> Pieces:
    if each.p50_s is None or each.p95_s is None:
        return ()
    low, high = scale.place(each.p50_s, cells), scale.place(each.p95_s, cells)
    between = "─" * max(0, high - low - 1)
    head: Pieces = (" " * low, "quiet"), (P50, "busy"), (between, "quiet")
    return (*head, (P95, "warn")) if high > low else head
