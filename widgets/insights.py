"""Insights: charts of days, the figures above them, and both as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any, ClassVar, Final, Literal, cast

from msgspec import Struct
from textual import events
from textual.app import RenderResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual_plotext import PlotextPlot

from app.engine.text import safe_text
from app.engine.times import span
from storage.records import Coverage
from storage.records.insights import Outcomes, RepositoryFigures
from widgets.kit.badges import STYLES, Badge, Tone, tone_css
from widgets.kit.cells import fit
from widgets.kit.choice_lists import LeadRow

ChartStep = Literal["hour", "day"]
COMPLETED: Final = Badge("█", "completed", "good")
FAILED: Final = Badge("x", "failed", "bad")
UNFINISHED: Final = Badge("░", "not finished", "busy")
OTHER_OUTCOMES: Final = Badge("▒", "cancelled or other", "plain")
UNKNOWN: Final = Badge("·", "not known", "quiet")
"""Each has a different glyph, so that nothing depends on colour alone."""
NOTHING: Final = "-"


class InsightsView(Struct, frozen=True):
    """The figures of a period up to now."""

    title: str
    """The period in words: `the last 7 days`."""
    step: ChartStep
    at: datetime
    outcomes: tuple[Outcomes, ...]
    """Oldest first."""
    repositories: tuple[RepositoryFigures, ...]
    """The busiest first."""
    coverage: Coverage

    @property
    def since(self) -> datetime:
        return self.outcomes[0].start

    def total(self, outcome: str) -> int:
        """The runs of the whole period with this outcome, a field of `Outcomes`."""
        return sum(getattr(period, outcome) for period in self.outcomes)

    @property
    def runs(self) -> int:
        return self.total("total")

    @property
    def is_complete(self) -> bool:
        return not self.is_partial(self.outcomes[0])

    def is_partial(self, period: Outcomes) -> bool:
        """Whether some runs of this outcome may be missing."""
        complete_since = self.coverage.complete_since
        return not self.coverage.whole and (complete_since is None or complete_since > period.start)


def share(part: float | None) -> str:
    """A share as a whole percentage; 0% and 100% only if exact."""
    if part is None:
        return NOTHING
    if 0 < part < 1:
        return f"{min(99, max(1, round(part * 100)))}%"
    return f"{part:.0%}"


def seconds(value_s: float | None) -> str:
    """A duration in its two largest units, or `-` for None."""
    return NOTHING if value_s is None else span(value_s)


def period_text(at: datetime, step: ChartStep) -> str:
    """The start of an outcome's hour or day: `14:00`, or `Mon 4 May`."""
    local = at.astimezone()
    if step == "hour":
        return f"{local:%H:%M}"
    return f"{local:%a} {local.day} {local:%b}"


def tick(at: datetime, step: ChartStep, *, is_short: bool) -> str:
    """The label below an outcome's bar: `14h`, `4` or `4 May`."""
    local = at.astimezone()
    if step == "hour":
        return f"{local:%H}h" if is_short else f"{local:%H:%M}"
    return str(local.day) if is_short else f"{local.day} {local:%b}"


STACK: Final = (
    (FAILED, "failed"),
    (COMPLETED, "completed"),
    (OTHER_OUTCOMES, "ended_otherwise"),
    (UNFINISHED, "unfinished"),
)
"""The outcomes from the bottom up: failures share a baseline, so that they can be compared."""
CURSOR: Final = Badge("┊", "cursor", "wait")
Colour = tuple[int, int, int]


class OutcomesChart(PlotextPlot, can_focus=True):
    """The chart of outcomes in the theme's colours; while focused, it has a cursor on one hour or day."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "its runs", tooltip="Show the runs of that time", id="leads.open")
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"chart--{tone}" for tone in STYLES}
    DEFAULT_CSS = "OutcomesChart { background: $surface; }" + tone_css("OutcomesChart", "chart")

    _axis_cells = 0

    class Highlighted(Message):
        """The cursor moved, appeared or disappeared."""

    @dataclass
    class Chosen(Message):
        """An hour or a day was opened."""

        index: int

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.view: InsightsView | None = None
        self._back = 0
        """The cursor's distance from the last bar, so that a cursor on the current hour or day stays there."""

    def show(self, view: InsightsView) -> None:
        self.view = view
        self._report_move()

    def render(self) -> RenderResult:
        plot = self.plt
        view = self.view
        plot.clear_figure()
        plot.frame(frame=False)
        width, height = self.size
        if view is None or width < 24 or height < 5:
            return super().render()
        # A stacked bar for each hour or day, with labels on the left and below.
        rows = height - 1
        # The top of the axis is a round number at or above the highest value.
        highest = max(2.0, max(period.total for period in view.outcomes) * (1 if rows < 8 else 1.08))
        power = 10 ** floor(log10(highest))
        top = next(step * power for step in (1, 1.2, 1.5, 1.6, 2, 3, 4, 5, 6, 8, 10) if step * power >= highest)
        values = [top * index / 2 for index in range(3)]
        labels = [f"{value:,.0f}" if value == int(value) else f"{value:,.1f}" for value in values]
        self._axis_cells = max(map(len, labels)) + 1
        at = [value / top * (rows - 1) for value in values]
        plot.yticks(at, [f"{label:>{self._axis_cells - 1}} " for label in labels])
        room = width - self._axis_cells
        step = room / len(view.outcomes)
        positions = [int(index * step) for index in range(len(view.outcomes))]
        gap = (step >= 2) + (step >= 6)
        wide = max(1, int(step) - gap)
        plot.xlim(0, room - 1)
        plot.ylim(0, rows - 1)
        cells: dict[Badge, list[tuple[int, int]]] = {badge: [] for badge in (*(badge for badge, _ in STACK), UNKNOWN)}
        for period, position in zip(view.outcomes, positions, strict=True):
            foot = 0
            parts = [getattr(period, name) for _, name in STACK]
            for (badge, _), tall in zip(STACK, stack_heights(parts, top, rows), strict=True):
                cells[badge] += [(position + x, foot + y) for x in range(wide) for y in range(tall)]
                foot += tall
            if not period.total and view.is_partial(period):
                cells[UNKNOWN] += [(position + x, 0) for x in range(wide)]
            if period.failed and wide >= 5 and foot < rows:
                text = f"{period.failed} {FAILED.glyph}"
                ground = self.background_colors[1].rgb
                middle = position + wide // 2
                colour = self._colour("bad")
                plot.text(text, middle, foot, color=colour, background=ground, alignment="center")
        if (here := self.cursor) is not None:
            taken = {point for points in cells.values() for point in points}
            middle = positions[here] + wide // 2
            cells[CURSOR] = [(middle, y) for y in range(rows) if (middle, y) not in taken]
        for badge, points in cells.items():
            if points:
                xs, ys = zip(*points, strict=True)
                plot.scatter(xs, ys, marker=badge.glyph, color=self._colour(badge.tone))
        is_short = room // len(view.outcomes) < 8
        dates = [tick(period.start, view.step, is_short=is_short) for period in view.outcomes]
        self._label_below([(position + wide // 2, date) for position, date in zip(positions, dates, strict=True)])
        return super().render()

    def _colour(self, tone: Tone) -> Colour:
        colour = self.get_component_styles(f"chart--{tone}").color
        return colour.r, colour.g, colour.b

    def _label_below(self, marks: Sequence[tuple[int, str]]) -> None:
        """Write labels at these places, as many as fit without touching."""
        some = (marks[::step] for step in range(1, len(marks)))
        marks_shown = next((selection for selection in some if _stand_apart(selection)), marks[:1])
        # Plotext moves a label that would cross the left edge to the right, towards its neighbour.
        pushed = len(marks_shown[0][1]) // 2 - marks_shown[0][0] - self._axis_cells
        if pushed > 0 and not _stand_apart(marks_shown, pushed + 1):
            marks_shown = marks_shown[1:]
        self.plt.xticks([position for position, _ in marks_shown], [label for _, label in marks_shown])
        # Plotext would draw them in a set's random order, which moves some labels.
        monitor = cast("Any", self.plt).monitor
        ticks = sorted(zip(monitor.xticks[0], monitor.xlabels[0], strict=True))
        monitor.xticks[0], monitor.xlabels[0] = [position for position, _ in ticks], [text for _, text in ticks]

    @property
    def cursor(self) -> int | None:
        """The index of the outcome under the cursor; None: not focused."""
        if self.view is None or not self.has_focus:
            return None
        return max(0, len(self.view.outcomes) - 1 - self._back)

    def move(self, step: int) -> None:
        if self.view is not None:
            self._back = min(max(0, self._back - step), len(self.view.outcomes) - 1)
            self._report_move()

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self._report_move()

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: events.Click) -> None:
        if self.view is not None and (room := self.size.width - self._axis_cells) > 0:
            count = len(self.view.outcomes)
            index = min(max(0, (event.x - self._axis_cells) * count // room), count - 1)
            self._back = count - 1 - index
            self._report_move()
            if event.chain > 1:
                self.action_choose()

    def _report_move(self) -> None:
        self.refresh()
        self.post_message(self.Highlighted())


def _stand_apart(marks: Sequence[tuple[int, str]], more: int = 0) -> bool:
    reach = max(len(label) for _, label in marks) + 2 + more
    return all(after - before >= reach for (before, _), (after, _) in pairwise(marks))


def stack_heights(values: Sequence[int], top: float, rows: int) -> list[int]:
    """The height of each part of a bar in rows, from the bottom up.

    Each part has at least one row, so that one failure among a thousand is visible.
    """
    taken: list[int] = []
    total = 0
    for value in values:
        total += value
        upto = ceil(total / top * rows - 0.5)
        taken.append(max(upto - sum(taken), 1) if value else 0)
    while sum(taken) > rows:
        taken[taken.index(max(taken))] -= 1
    return taken


_QUIET: Final = STYLES["quiet"]
TableRow = tuple[str, Sequence[str]]


def repository_rows(view: InsightsView, width: int) -> list[LeadRow]:
    """A header, a row for each repository, the busiest first, and a note about the durations."""
    bar = 20 if width >= 100 else 10
    has_durations = width >= 63
    name = min(48, max(12, width - bar - 41))
    titles = f"{fit('repository', name)} {'runs':>7}  {fit('success', bar)} {'':>4} {'failed':>6}"
    titles += f"  {'p50':>8} {'p95':>8}" if has_durations else ""
    rows = [LeadRow(Content.styled(titles, _QUIET))]
    for figures in view.repositories:
        success = figures.success
        full = 0 if success is None else round(success * bar)
        # Only exactly 0% or 100% is drawn as an empty or full bar.
        full = min(bar - 1, max(1, full)) if success is not None and 0 < success < 1 else full
        empty = 0 if success is None else bar - full
        line = Content.assemble(
            f"{fit(safe_text(figures.repository, limit=200), name, 'middle')} ",
            (f"{figures.total:>7,}  ", _QUIET),
            (COMPLETED.glyph * full, COMPLETED.style),
            (FAILED.glyph * empty, FAILED.style),
            " " * (bar - full - empty),
            (f" {share(success):>4}", "bold"),
            (f" {figures.failed:>6,}", FAILED.style if figures.failed else _QUIET),
            f"  {seconds(figures.p50_s):>8} {seconds(figures.p95_s):>8}" if has_durations else "",
        )
        rows.append(LeadRow(line, f"repo:{figures.repository}", leads=True))
    if any(figures.timed < figures.completed + figures.failed for figures in view.repositories):
        note = "Durations are of each repository's newest 2,000 finished runs."
        rows.append(LeadRow(Content.styled(note, _QUIET)))
    return rows


def table_rows(view: InsightsView) -> Iterator[LeadRow]:
    """The charts' numbers as tables, for screen readers and for anyone who prefers numbers."""
    others = ("other",) if view.total("ended_otherwise") else ()
    yield LeadRow(Content.styled(f"{view.title[:1].upper()}{view.title[1:]}", f"{_QUIET} bold"))
    head = (view.step, "runs", "completed", "failed", *others, "open")
    rows: list[TableRow] = []
    for period in reversed(view.outcomes):
        other_ends = (period.ended_otherwise,) if others else ()
        numbers = (period.total, period.completed, period.failed, *other_ends, period.unfinished)
        name = period_text(period.start, view.step) + (" (partial)" if view.is_partial(period) else "")
        rows.append((f"at:{period.start.isoformat()}", (name, *(f"{number:,}" for number in numbers))))
    yield from _table(f"Outcomes by the {view.step} of creation", head, rows)
    head = ("repository", "runs", "success", "failed", "p50", "p95", "of runs")
    rows = []
    for figures in view.repositories:
        name = safe_text(figures.repository, limit=200)
        times = (seconds(figures.p50_s), seconds(figures.p95_s))
        counts = f"{figures.total:,}", share(figures.success), f"{figures.failed:,}"
        rows.append((f"repo:{figures.repository}", (name, *counts, *times, f"{figures.timed:,}")))
    yield from _table("Repositories", head, rows, 8)


def _table(title: str, head: Sequence[str], rows: Sequence[TableRow], cells: int = 10) -> Iterator[LeadRow]:
    def line(row: Sequence[str]) -> str:
        return fit(row[0], 24, "middle") + "".join(f"{cell:>{cells}}" for cell in row[1:])

    yield LeadRow(Content.assemble((title, "bold"), "\n", (line(head), _QUIET)))
    yield from (LeadRow(Content(line(row)), key, leads=True) for key, row in rows)
    yield LeadRow(Content())
