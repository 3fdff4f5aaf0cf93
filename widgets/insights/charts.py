"""The charts of the Insights room."""

from typing import TYPE_CHECKING, Final

from widgets.insights.chart import Chart, Tick, ceiling, columns, stacked
from widgets.insights.formatting import COMPLETED, FAILED, UNFINISHED, UNKNOWN, tick
from widgets.insights.view import InsightsView

if TYPE_CHECKING:
    from widgets.badges import Badge

_STACK: Final = (FAILED, COMPLETED, UNFINISHED)
"""From the foot of a bar up: failures share a base line, so that they can be compared."""
_FOOT: Final = 1
"""Rows that the names below a chart take."""
_LABELLED_FROM: Final = 5
"""Bars this wide have room for the number of failures above them."""


class _InsightsChart(Chart):
    """A chart of the figures on show."""

    view: InsightsView | None = None

    def show(self, view: InsightsView) -> None:
        """Takes the figures."""
        self.view = view
        self.refresh()


class OutcomesChart(_InsightsChart):
    """A stacked bar for each hour or day."""

    def draw(self, width: int, height: int) -> None:
        """The bars."""
        view = self.view
        if view is None:
            return
        rows = height - _FOOT
        top = ceiling(max(each.total for each in view.outcomes) * (1 if rows < 8 else 1.08))  # noqa: PLR2004 — room for a label
        room = width - self.axis(top, rows)
        places, wide = columns(len(view.outcomes), room)
        self.plt.xlim(0, room - 1)
        self.plt.ylim(0, rows - 1)
        self._bars(view, top, rows, places, wide)
        is_short = room // len(view.outcomes) < 8  # noqa: PLR2004 — cells of `23 Sep` and a gap
        ticks = [
            Tick(index, tick(each.start, view.step, is_short=is_short)) for index, each in enumerate(view.outcomes)
        ]
        self.below(ticks, [place + wide // 2 for place in places])

    def _bars(self, view: InsightsView, top: float, rows: int, places: list[int], wide: int) -> None:
        cells: dict[Badge, list[tuple[int, int]]] = {badge: [] for badge in (*_STACK, UNKNOWN)}
        for each, place in zip(view.outcomes, places, strict=True):
            foot = 0
            for badge, tall in zip(
                _STACK, stacked((each.failed, each.completed, each.unfinished), top, rows), strict=True
            ):
                cells[badge] += [(place + x, foot + y) for x in range(wide) for y in range(tall)]
                foot += tall
            if not each.total and view.is_partial(each):
                cells[UNKNOWN] += [(place + x, 0) for x in range(wide)]
            if each.failed and wide >= _LABELLED_FROM and foot < rows:
                self.label(f"{each.failed} {FAILED.glyph}", place + wide // 2, foot, "bad")
        for badge, points in cells.items():
            if points:
                xs, ys = zip(*points, strict=True)
                self.plt.scatter(xs, ys, marker=badge.glyph, color=self.colour(badge.tone))


class ConcurrencyChart(_InsightsChart):
    """How many runs at once, over time."""

    def draw(self, width: int, height: int) -> None:
        """The line, and what is below it filled."""
        view = self.view
        if view is None:
            return
        rows = height - _FOOT
        points = view.concurrency
        top = ceiling(max(each.average for each in points))
        room = width - self.axis(top, rows)
        scale = (room - 1) / max(1, len(points) - 1)
        xs = [index * scale for index in range(len(points))]
        self.plt.xlim(0, room - 1)
        self.plt.ylim(0, rows - 1)
        self.plt.plot(
            xs,
            [each.average / top * (rows - 1) for each in points],
            marker="hd",
            color=self.colour("busy"),
            fillx=True,
        )
        self.below(_ticks(view), [round(x) for x in xs])


def _ticks(view: InsightsView) -> list[Tick]:
    """At the beginnings of the outcomes' stretches, so that the two charts can be read side by side."""
    starts = [each.start for each in view.concurrency]
    edges = {each.start for each in view.outcomes}
    return [Tick(index, tick(start, view.step, is_short=False)) for index, start in enumerate(starts) if start in edges]
