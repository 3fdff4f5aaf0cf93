"""The Insights tab: outcomes, durations and concurrency of runs, as charts and as numbers."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from app.console.base.screen import BaseScreen
from app.console.insights.span import ASKING, SPANS, busiest, legend, nothing, read_insights
from app.console.leads import runs_lead
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import UNREADABLE, link_notice
from app.events import CacheChangedElsewhere, Event, LinkChanged, RunsChanged
from app.text import safe_text
from storage.records import RunFilter
from storage.records.insights import Outcomes
from widgets.badges import STYLES
from widgets.clickable import Chip, ChipBar
from widgets.frame.notice import Notice, NoticePage
from widgets.insights.charts import Chart, OutcomesChart, draw_concurrency
from widgets.insights.figures import (
    InsightsView,
    counted,
    extent,
)
from widgets.insights.tables import repository_blocks, table_blocks
from widgets.lead_list import LeadList

if TYPE_CHECKING:
    from app.engine import Engine

AT_MOST_EVERY: Final = timedelta(seconds=5)
"""Figures of many runs are not computed more often, however often runs change."""
FIRST: Final = SPANS[1]


class InsightsScreen(BaseScreen):
    """Charts of a stretch of time, or the same numbers as tables."""

    TAB = "insights"
    CSS = """
    #insight-bar { height: 1; padding: 0 1; }
    #insight-extent { width: 1fr; height: 1; text-align: right; text-wrap: nowrap; text-overflow: ellipsis; }
    InsightsScreen.-tall #insight-bar { margin-bottom: 1; }
    #insights, #insight-charts, #insight-tables { height: 1fr; }
    #insight-charts { padding: 0 1; }
    #insight-tables { display: none; padding: 0 2; }
    #insights.-tables #insight-charts, #insights.-nothing #insight-charts { display: none; }
    #insights.-tables #insight-tables { display: block; }
    #insights.-nothing #insight-tables, #insight-nothing { display: none; }
    #insights.-nothing #insight-nothing { display: block; }
    #insight-over-time { height: 1fr; min-height: 8; }
    .insight-panel {
        width: 1fr; height: 1fr; border: round $panel; padding: 0 1; background: $surface;
        border-title-color: $foreground; border-title-style: bold; border-subtitle-color: $foreground 70%;
    }
    .insight-panel:focus-within { border: round $primary 60%; }
    .insight-panel > Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    .insight-panel.-all { height: auto; max-height: 50%; }
    #insight-repositories-list { padding: 0; height: auto; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "bar(-1)", "a day", key_display="← →", tooltip="Choose an hour or a day", id="insights.bar"),
        Binding("right", "bar(1)", "later", show=False, id="insights.bar_later"),
        Binding("j,down,k,up", "rows", "to the repositories", show=False, id="insights.rows"),
        Binding("t", "when", "when", tooltip="The last 24 hours, 7 days or 30 days", id="insights.when"),
        Binding("equals_sign", "tables", "tables", key_display="=", tooltip="Or charts", id="insights.tables"),
        Binding("x", "export", "export", tooltip="Write these numbers to a CSV or JSON file", id="insights.export"),
        Binding("r", "refresh", "refresh", tooltip="Ask the service now", id="app.refresh"),
    ]

    def __init__(self, session: Session, engine: "Engine") -> None:
        super().__init__(session)
        self._engine = engine
        self._span = FIRST
        self._view: InsightsView | None = None
        self._said: Notice | None = None
        """The notice in place of figures, or None."""
        self._is_stale = False
        """Whether runs changed since the figures were read."""
        self._chart = OutcomesChart(id="insight-outcomes-chart")
        self._rows = LeadList(id="insight-repositories-list")
        self._tables = LeadList(id="insight-tables")
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """Compose the stretch of time and three charts, three tables or a notice."""
        with Horizontal(id="insight-bar"):
            yield ChipBar(id="insight-spans")
            yield Static(id="insight-extent", markup=False)
        with Container(id="insights", classes="-nothing"):
            yield NoticePage(id="insight-nothing")
            with Vertical(id="insight-charts"):
                with Horizontal(id="insight-over-time"):
                    with Vertical(classes="insight-panel", id="insight-outcomes"):
                        yield Static(id="insight-legend", markup=False)
                        yield self._chart
                    with Vertical(classes="insight-panel", id="insight-concurrency"):
                        yield Static(id="insight-busiest", markup=False)
                        yield Chart(draw_concurrency, id="insight-concurrency-chart")
                with Vertical(classes="insight-panel -all", id="insight-repositories"):
                    yield self._rows
            yield self._tables

    def on_mount(self) -> None:
        """Read the figures."""
        self._say(Notice("◌", f"Counting the runs of {self._span.title}…", tone="busy"))
        self._name_spans()
        self._reader.ask()

    def show_trouble(self) -> None:
        """Update the banner and the notice in place of figures, which may be the same trouble."""
        super().show_trouble()
        if self._view is not None and not self._view.runs:
            self._say(self._nothing(self._view))
            self._say_extent(self._view)

    def trouble(self) -> Notice | None:
        """The banner's notice, unless the figures' place already shows it."""
        is_said = self._view is not None and not self._view.runs and not self._was_answered
        return None if is_said else super().trouble()

    def on_screen_resume(self) -> None:
        """Read what changed while another screen was shown."""
        if self._view is not None:
            self._is_stale = True
            self.tick(self._engine.clock())

    def engine_changed(self, event: Event) -> None:
        """Note that figures may have changed; they are read by the tick, not for every run."""
        if isinstance(event, RunsChanged | CacheChangedElsewhere):
            self._is_stale = True
        if isinstance(event, RunsChanged | CacheChangedElsewhere | LinkChanged) and not (
            self._view and self._view.runs
        ):
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Read the figures if they may have changed and are old enough; time alone changes them too."""
        view = self._view
        if view is None:
            return
        age = now - view.at
        if (self._is_stale and age >= AT_MOST_EVERY) or age >= self._span.fine:
            self._reader.ask()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide or dim the keys that have no effect now."""
        if action in {"export", "tables"}:
            return self._view is not None and bool(self._view.runs)
        if action in {"bar", "rows"}:
            return self._view is not None and bool(self._view.runs) and not self._shows_tables
        return super().check_action(action, parameters)

    # Its keys

    def action_when(self) -> None:
        """Show the next stretch of time."""
        self.action_span(SPANS[(SPANS.index(self._span) + 1) % len(SPANS)].name)

    def action_span(self, name: str) -> None:
        """Show another stretch of time."""
        span = next(span for span in SPANS if span.name == name)
        if span != self._span:
            self._span = span
            self._name_spans()
            self._reader.ask()

    def action_tables(self) -> None:
        """Switch between charts and tables."""
        self.query_one("#insights").toggle_class("-tables")
        self._list.focus()
        self.refresh_bindings()

    def action_bar(self, step: int) -> None:
        """Move the cursor in the outcomes, or move it there from the repositories."""
        if self._chart.has_focus:
            self._chart.move(step)
        self._chart.focus()

    def action_rows(self) -> None:
        """Move the cursor to the repositories."""
        self._rows.focus()

    def action_export(self) -> None:
        """Ask for a file and write the figures."""
        from app.console.insights.export import FORMATS, write
        from app.console.sheets.export import ExportScreen

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
        """Poll the service now."""
        self._engine.polling.poll_soon("runs")
        self._reader.ask()

    @on(LeadList.Chosen)
    def _row_chosen(self, message: LeadList.Chosen) -> None:
        view, (kind, _, key) = self._view, message.key.partition(":")
        if view is None:
            return
        if kind == "repo":
            self.post_message(runs_lead(RunFilter(repositories=(key,)), view.since))
        else:
            self._open_outcome(next(each for each in view.outcomes if each.start.isoformat() == key))

    @on(OutcomesChart.Chosen)
    def _bar_chosen(self, message: OutcomesChart.Chosen) -> None:
        if self._view is not None:
            self._open_outcome(self._view.outcomes[message.index])

    @on(OutcomesChart.Highlighted)
    def _bar_highlighted(self, message: OutcomesChart.Highlighted) -> None:
        view, index = self._view, message.index
        said = "" if view is None or index is None else counted(view.outcomes[index], view)
        self.query_one("#insight-outcomes").border_subtitle = said
        self.refresh_bindings()

    @on(LeadList.Highlighted)
    def _row_highlighted(self) -> None:
        self.refresh_bindings()

    def _open_outcome(self, each: Outcomes) -> None:
        self.post_message(runs_lead(RunFilter(), each.start, None if each.end > self.session.run_now() else each.end))

    # Internals

    @on(ChipBar.Clicked)
    def _span_clicked(self, message: ChipBar.Clicked) -> None:
        self.action_span(message.name)

    @property
    def _shows_tables(self) -> bool:
        return self.is_mounted and self.query_one("#insights").has_class("-tables")

    @property
    def _list(self) -> LeadList:
        return self._tables if self._shows_tables else self._rows

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
        self.query_one("#insight-concurrency").border_title = "Runs at once, on average"
        self.query_one("#insight-repositories").border_title = "Success and duration by repository"
        self.query_one("#insight-legend", Static).update(legend(view))
        self.query_one("#insight-busiest", Static).update(busiest(view))
        for chart in self.query(Chart):
            chart.show(view)
        self._rows.show(partial(repository_blocks, view))
        self._tables.show(partial(table_blocks, view))
        if is_first:
            self._list.focus()

    def _nothing(self, view: InsightsView) -> Notice:
        if self.session.vitals.storage_trouble:
            return UNREADABLE
        if self._was_answered:
            return nothing(self._span, view)
        return link_notice(self.session.vitals.now.runs_link, self._engine.clock()) or ASKING

    def _say_extent(self, view: InsightsView) -> None:
        said = extent(view) if view.runs or self._was_answered else ""
        self.query_one("#insight-extent", Static).update(Content.styled(said, STYLES["quiet"]))

    @property
    def _was_answered(self) -> bool:
        link = self.session.vitals.now.runs_link
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
