"""The figures of Insights as rows: repositories with their bars and scales, and every chart as a table of numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from app.text import safe_text
from app.times import span
from storage.records.insights import RepositoryFigures
from widgets.cells import fit
from widgets.insights.figures import COMPLETED, FAILED, NOT_FETCHED, InsightsView, sampled, seconds, share, started
from widgets.lead_list import Block, Piece, Pieces

P50: Final = "●"
P95: Final = "▲"
_WIDE: Final = 100
_WITH_TIMES: Final = 63
"""From this width on there is room for the durations."""
_SHORTEST_S: Final = 1.0
_LONGEST_NAME: Final = 32
NAME_CELLS: Final = 24
CELLS: Final = 10
NARROW_CELLS: Final = 8
TableRow = tuple[str, Sequence[str]]
"""A row's key, and its cells."""


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

    def cell_of(self, value_s: float, cells: int) -> int:
        """The cell at which a duration stands, on a scale of so many cells."""
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
    low, high = scale.cell_of(each.p50_s, cells), scale.cell_of(each.p95_s, cells)
    between = "─" * max(0, high - low - 1)
    head: Pieces = (" " * low, "quiet"), (P50, "busy"), (between, "quiet")
    return (*head, (P95, "warn")) if high > low else head


def table_blocks(view: InsightsView, width: int) -> list[Block]:
    """The charts' numbers as tables, one below the other, for users who prefer numbers or cannot see charts."""
    del width
    return list(_tables(view))


def _tables(view: InsightsView) -> Iterator[Block]:
    others = ("otherwise",) if view.ended_otherwise else ()
    yield Block((((f"{view.title[:1].upper()}{view.title[1:]}", "title"),),))
    head = (view.step, "runs", "completed", "failed", *others, "open")
    yield from _table(f"Outcomes by the {view.step} of creation", head, list(_outcomes(view)))
    head = ("repository", "runs", "success", "failed", "p50", "p95", "of runs")
    yield from _table("Repositories", head, list(_repositories(view)), NARROW_CELLS)
    yield from _table("Runs under way at once, on average", ("from", "runs"), list(_concurrency(view)), CELLS + 4)


def _outcomes(view: InsightsView) -> Iterator[TableRow]:
    for each in reversed(view.outcomes):
        others = (each.ended_otherwise,) if view.ended_otherwise else ()
        numbers = (each.total, each.completed, each.failed, *others, each.unfinished)
        name = started(each.start, view.step) + (" (partial)" if view.is_partial(each) else "")
        yield f"at:{each.start.isoformat()}", (name, *(f"{number:,}" for number in numbers))


def _repositories(view: InsightsView) -> Iterator[TableRow]:
    for each in view.repositories:
        name, times = safe_text(each.repository, limit=200), (seconds(each.p50_s), seconds(each.p95_s))
        counts = f"{each.total:,}", share(each.success), f"{each.failed:,}"
        yield f"repo:{each.repository}", (name, *counts, *times, f"{each.timed:,}")


def _concurrency(view: InsightsView) -> Iterator[TableRow]:
    for each in reversed(view.concurrency):
        average = f"{each.average:,.2f}" if view.is_fetched(each) else NOT_FETCHED
        yield f"busy:{each.start.isoformat()}", (f"{each.start.astimezone():%a %d %b %H:%M}", average)


def _table(title: str, head: Sequence[str], rows: Sequence[TableRow], cells: int = CELLS) -> Iterator[Block]:
    yield Block((((title, "strong"),), ((_table_line(head, cells), "quiet"),)))
    for key, row in rows:
        line: Pieces = ((_table_line(row, cells), "plain"),)
        yield Block((line,), key, leads=not key.startswith("busy:"))
    yield Block(((),))


def _table_line(row: Sequence[str], cells: int) -> str:
    return fit(row[0], NAME_CELLS, "middle") + "".join(f"{cell:>{cells}}" for cell in row[1:])
