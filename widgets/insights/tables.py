"""The charts' numbers as tables, for users who prefer numbers or cannot see charts."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from app.text import safe_text
from widgets.badges import STYLES
from widgets.cells import fit
from widgets.insights.figures import InsightsView, seconds, share, started

NAME_CELLS = 24
CELLS = 10
NARROW_CELLS = 8


class InsightTables(Static):
    """The tables, one below the other."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, view: InsightsView) -> None:
        """Show the figures."""
        self.update(tables(view))


def tables(view: InsightsView) -> Content:
    """The tables of outcomes, repositories and concurrency."""
    return Content("\n\n").join((_outcomes(view), _repositories(view), _concurrency(view)))


def _outcomes(view: InsightsView) -> Content:
    others = ("otherwise",) if view.ended_otherwise else ()
    rows = [
        (
            started(each.start, view.step) + (" (partial)" if view.is_partial(each) else ""),
            f"{each.total:,}",
            f"{each.completed:,}",
            f"{each.failed:,}",
            *(f"{each.ended_otherwise:,}" for _ in others),
            f"{each.unfinished:,}",
        )
        for each in reversed(view.outcomes)
    ]
    title = f"Outcomes of {view.title}, by the {view.step} of creation"
    return _table(title, (view.step, "runs", "completed", "failed", *others, "open"), rows)


def _repositories(view: InsightsView) -> Content:
    rows = [
        (
            safe_text(each.repository, limit=200),
            f"{each.total:,}",
            share(each.success),
            f"{each.failed:,}",
            seconds(each.p50_s),
            seconds(each.p95_s),
            f"{each.timed:,}",
        )
        for each in view.repositories
    ]
    return _table(
        "Repositories", ("repository", "runs", "success", "failed", "p50", "p95", "of runs"), rows, NARROW_CELLS
    )


def _concurrency(view: InsightsView) -> Content:
    rows = [
        (f"{each.start.astimezone():%a %d %b %H:%M}", f"{each.average:,.2f}") for each in reversed(view.concurrency)
    ]
    return _table("Runs under way at once, on average", ("from", "runs"), rows)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], cells: int = CELLS) -> Content:
    lines = [
        Content.styled(title, "$accent bold"),
        Content.styled(_line(head, cells), STYLES["quiet"]),
        *(Content(_line(row, cells)) for row in rows),
    ]
    return Content("\n").join(lines)


def _line(row: Sequence[str], cells: int) -> str:
    return fit(row[0], NAME_CELLS, "middle") + "".join(f"{cell:>{cells}}" for cell in row[1:])
