"""The charts' numbers as tables, for users who prefer numbers or cannot see charts."""

from collections.abc import Iterator, Sequence

from app.text import safe_text
from widgets.cells import fit
from widgets.insights.figures import NOT_FETCHED, InsightsView, seconds, share, started
from widgets.lead_list import Block, Pieces

NAME_CELLS = 24
CELLS = 10
NARROW_CELLS = 8
Row = tuple[str, Sequence[str]]
"""A row's key, and its cells."""


def table_blocks(view: InsightsView, width: int) -> list[Block]:
    """The tables of outcomes, repositories and concurrency, one below the other."""
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


def _outcomes(view: InsightsView) -> Iterator[Row]:
    for each in reversed(view.outcomes):
        others = (each.ended_otherwise,) if view.ended_otherwise else ()
        numbers = (each.total, each.completed, each.failed, *others, each.unfinished)
        name = started(each.start, view.step) + (" (partial)" if view.is_partial(each) else "")
        yield f"at:{each.start.isoformat()}", (name, *(f"{number:,}" for number in numbers))


def _repositories(view: InsightsView) -> Iterator[Row]:
    for each in view.repositories:
        name, times = safe_text(each.repository, limit=200), (seconds(each.p50_s), seconds(each.p95_s))
        counts = f"{each.total:,}", share(each.success), f"{each.failed:,}"
        yield f"repo:{each.repository}", (name, *counts, *times, f"{each.timed:,}")


def _concurrency(view: InsightsView) -> Iterator[Row]:
    for each in reversed(view.concurrency):
        average = f"{each.average:,.2f}" if view.is_fetched(each) else NOT_FETCHED
        yield f"busy:{each.start.isoformat()}", (f"{each.start.astimezone():%a %d %b %H:%M}", average)


def _table(title: str, head: Sequence[str], rows: Sequence[Row], cells: int = CELLS) -> Iterator[Block]:
    yield Block((((title, "strong"),), ((_line(head, cells), "quiet"),)))
    for key, row in rows:
        line: Pieces = ((_line(row, cells), "plain"),)
        yield Block((line,), key, leads=not key.startswith("busy:"))
    yield Block(((),))


def _line(row: Sequence[str], cells: int) -> str:
    return fit(row[0], NAME_CELLS, "middle") + "".join(f"{cell:>{cells}}" for cell in row[1:])
