"""The Insights tab: what became of runs, how long they took and how many ran at once, as charts and as numbers."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from app.console.base_screen import BaseScreen
from app.console.coalesced_task import CoalescedTask
from app.console.insights.span import SPANS, InsightSpan, read_insights
from app.console.session import Session
from app.console.troubles import UNREADABLE, link_notice
from app.events import CacheChangedElsewhere, Event, LinkChanged, RunsChanged
from app.text import safe_text
from widgets.activity.bar import Chip, ChipBar
from widgets.badges import STYLES
from widgets.frame.notice import Notice, NoticePage
from widgets.insights.charts import Chart, draw_concurrency, draw_outcomes
from widgets.insights.figures import COMPLETED, FAILED, OTHERWISE, UNFINISHED, InsightsView, extent
from widgets.insights.repositories import RepositoryChart
from widgets.insights.tables import InsightTables

if TYPE_CHECKING:
    from app.engine import Engine

AT_MOST_EVERY: Final = timedelta(seconds=5)
"""However often runs change, figures of many runs are not made more often."""
FIRST: Final = SPANS[1]
ASKING: Final = Notice("◌", "Asking the service for its runs…", ("The figures come with its first answer.",), "busy")


class InsightsScreen(BaseScreen):
    """Charts of a stretch of time, or the same numbers as tables."""

    TAB = "insights"
    CSS = """
    #insight-bar { height: 1; padding: 0 1; }
    #insight-extent { width: 1fr; height: 1; text-align: right; text-wrap: nowrap; text-overflow: ellipsis; }
    InsightsScreen.-tall #insight-bar { margin-bottom: 1; }
    #insights { height: 1fr; }
    #insight-charts, #insight-tables {
        padding: 0 1; scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $panel;
    }
    #insight-charts:focus, #insight-tables:focus { scrollbar-color: $primary 60%; }
    #insight-tables { display: none; padding: 0 2; }
    #insights.-tables #insight-charts { display: none; }
    #insights.-tables #insight-tables { display: block; }
    #insights.-nothing #insight-charts, #insights.-nothing #insight-tables { display: none; }
    #insight-nothing { display: none; }
    #insights.-nothing #insight-nothing { display: block; }
    #insight-over-time { height: auto; layout: vertical; }
    InsightsScreen.-wide #insight-over-time { layout: horizontal; height: 17; }
    .insight-panel {
        height: 14; border: round $panel; padding: 0 1; border-title-color: $foreground; border-title-style: bold;
        background: $surface;
    }
    InsightsScreen.-wide .insight-panel { width: 1fr; height: 17; }
    InsightsScreen .insight-panel.-all { height: auto; width: 100%; }
    .insight-panel > Static { height: 1; }
    InsightTables { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(
                span.key, f"span('{span.name}')", span.name, tooltip=f"Show {span.title}", id=f"insights.{span.name}"
            )
            for span in SPANS
        ),
        Binding("t", "tables", "tables", tooltip="The same numbers as tables, or the charts", id="insights.tables"),
        Binding("e", "export", "export", tooltip="Write these numbers to a CSV or JSON file", id="insights.export"),
        Binding("r", "refresh", "refresh", tooltip="Ask the service now", id="app.refresh"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._span = FIRST
        self._view: InsightsView | None = None
        self._said: Notice | None = None
        """What stands in place of figures; None: figures do."""
        self._is_stale = False
        """Runs changed since the figures were made."""
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """The stretch of time; three charts, or three tables, or why there are none."""
        with Horizontal(id="insight-bar"):
            yield ChipBar(id="insight-spans")
            yield Static(id="insight-extent", markup=False)
        with Container(id="insights", classes="-nothing"):
            yield NoticePage(id="insight-nothing")
            with VerticalScroll(id="insight-charts"):
                with Container(id="insight-over-time"):
                    with Vertical(classes="insight-panel", id="insight-outcomes"):
                        yield Static(id="insight-legend", markup=False)
                        yield Chart(draw_outcomes, id="insight-outcomes-chart")
                    with Vertical(classes="insight-panel", id="insight-concurrency"):
                        yield Static(id="insight-busiest", markup=False)
                        yield Chart(draw_concurrency, id="insight-concurrency-chart")
                with Vertical(classes="insight-panel -all", id="insight-repositories"):
                    yield RepositoryChart()
            with VerticalScroll(id="insight-tables"):
                yield InsightTables()

    def on_mount(self) -> None:
        """Read the figures."""
        self._say(Notice("◌", f"Counting the runs of {self._span.title}…", tone="busy"))
        self._name_spans()
        self._reader.ask()

    def show_trouble(self) -> None:
        """The banner, and why there are no figures, which may be the same trouble."""
        super().show_trouble()
        if self._view is not None and not self._view.runs:
            self._say(self._nothing(self._view))
            self._say_extent(self._view)

    def trouble(self) -> Notice | None:
        """What the banner says, unless it stands in place of figures already."""
        is_said = self._view is not None and not self._view.runs and not self._was_answered
        return None if is_said else super().trouble()

    def on_screen_resume(self) -> None:
        """Bring up to date what changed while another screen was on show."""
        if self._view is not None:
            self._is_stale = True
            self.tick(self._engine.clock())

    def engine_changed(self, event: Event) -> None:
        """Note that figures may differ; they are made again while they are on show, not for every run."""
        if isinstance(event, RunsChanged | CacheChangedElsewhere):
            self._is_stale = True
        if isinstance(event, RunsChanged | CacheChangedElsewhere | LinkChanged) and not (
            self._view and self._view.runs
        ):
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Make the figures again, if they may differ and are old enough; time alone moves them too."""
        view = self._view
        if view is None:
            return
        age = now - view.at
        if (self._is_stale and age >= AT_MOST_EVERY) or age >= self._span.fine:
            self._reader.ask()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that have nothing to act on are shown as such."""
        if action in {"export", "tables"}:
            return True if self._view is not None and self._view.runs else None
        return super().check_action(action, parameters)

    # What its keys do

    def action_span(self, name: str) -> None:
        """Show another stretch of time."""
        span = next(span for span in SPANS if span.name == name)
        if span != self._span:
            self._span = span
            self._name_spans()
            self._reader.ask()

    def action_tables(self) -> None:
        """Show tables in place of the charts, or the charts again."""
        self.query_one("#insights").toggle_class("-tables")
        self._scroller.focus()

    def action_export(self) -> None:
        """Ask where to, then write what is on show."""
        from app.console.export_sheet import ExportScreen
        from app.console.insights.export import FORMATS, write

        view, day = self._view, self._engine.clock().astimezone()
        if view is None:
            return

        async def written(path: Path) -> str:
            await asyncio.to_thread(write, view, path)
            return f"Written: {path}"

        name = f"runwarden-{self._engine.profile.name}-{self._span.name}-{day:%Y-%m-%d}.csv"
        suggested = Path.cwd() / "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
        self.app.push_screen(ExportScreen("Export these figures", suggested, FORMATS, written), self._exported)

    def _exported(self, said: str | None) -> None:
        if said is not None:
            self.session.notify(said)

    def action_refresh(self) -> None:
        """Ask the service now."""
        self._engine.polling.poll_soon("runs")
        self._reader.ask()

    def action_scroll(self, lines: int) -> None:
        """Scroll by a line."""
        self._scroller.scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by a page."""
        self._scroller.scroll_relative(y=pages * max(1, self._scroller.size.height - 1), animate=False)

    # How it does that

    @on(ChipBar.Clicked)
    def _span_clicked(self, message: ChipBar.Clicked) -> None:
        self.action_span(message.name)

    @property
    def _scroller(self) -> VerticalScroll:
        is_tables = self.query_one("#insights").has_class("-tables")
        return self.query_one("#insight-tables" if is_tables else "#insight-charts", VerticalScroll)

    async def _read(self) -> None:
        span, now = self._span, self.session.run_now()
        self._is_stale = False
        view = await read_insights(self._engine.cache, span, now)
        if span == self._span:
            self._show(view)

    def _show(self, view: InsightsView) -> None:
        is_first = self._view is None
        self._view = view
        self._say_extent(view)
        self.refresh_bindings()
        if not view.runs:
            self._say(self._nothing(view))
            return
        self._said = None
        self.query_one("#insights").remove_class("-nothing")
        self.query_one("#insight-outcomes").border_title = f"Outcomes by {view.step}"
        self.query_one("#insight-concurrency").border_title = "Runs at once"
        self.query_one("#insight-repositories").border_title = "Success and duration by repository"
        self.query_one("#insight-legend", Static).update(_legend(view))
        self.query_one("#insight-busiest", Static).update(_busiest(view))
        for chart in self.query(Chart):
            chart.show(view)
        self.query_one(RepositoryChart).show(view)
        self.query_one(InsightTables).show(view)
        if is_first:
            self._scroller.focus()

    def _nothing(self, view: InsightsView) -> Notice:
        if self.session.storage_trouble:
            return UNREADABLE
        if self._was_answered:
            return _nothing(self._span, view)
        return link_notice(self.session.vitals.runs_link, self._engine.clock()) or ASKING

    def _say_extent(self, view: InsightsView) -> None:
        said = extent(view) if view.runs or self._was_answered else ""
        self.query_one("#insight-extent", Static).update(Content.styled(said, STYLES["quiet"]))

    @property
    def _was_answered(self) -> bool:
        link = self.session.vitals.runs_link
        return link is not None and link.last_ok_at is not None

    def _say(self, notice: Notice) -> None:
        if notice == self._said:
            return
        self._said = notice
        self.query_one(NoticePage).show(notice)
        self.query_one("#insights").add_class("-nothing")

    def _name_spans(self) -> None:
        chips = tuple(
            Chip(
                span.name,
                safe_text(f"[{span.name}]" if span == self._span else f" {span.name} "),
                span == self._span,
            )
            for span in SPANS
        )
        self.query_one("#insight-spans", ChipBar).show(chips)


def _legend(view: InsightsView) -> Content:
    counts = [(FAILED, view.failed), (COMPLETED, view.completed), (UNFINISHED, view.unfinished)]
    if view.ended_otherwise:
        counts.insert(2, (OTHERWISE, view.ended_otherwise))
    return Content("   ").join(
        Content.assemble((badge.glyph * 2, badge.style), f" {count:,} {badge.word}") for badge, count in counts
    )


def _busiest(view: InsightsView) -> Content:
    busiest = max(view.concurrency, key=lambda each: each.average)
    when = busiest.start.astimezone()
    return Content.styled(
        f"on average; most {busiest.average:,.1f} from {when:%a %H:%M}, now {view.concurrency[-1].average:,.1f}",
        STYLES["quiet"],
    )


def _nothing(span: InsightSpan, view: InsightsView) -> Notice:
    wider = next((each for each in SPANS if _hours(each) > _hours(span)), None)
    what_now = f"{wider.key} looks at {wider.title}." if wider is not None else "What is older stands in Runs."
    if view.is_complete:
        return Notice("○", f"No run was created in {span.title}", (what_now,), "plain")
    lines = ("The history of that time is not fetched completely yet,", "so there may have been some. " + what_now)
    return Notice("◌", f"No run of {span.title} is known", lines, "warn")


def _hours(span: InsightSpan) -> int:
    return span.count * (24 if span.step == "day" else 1)
