"""The Insights tab: outcomes and durations of runs, as charts and as numbers."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct
from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList

from app.console.base import TABS_CSS, BaseScreen
from app.console.feeds import CoalescedTask
from app.console.session import Session
from app.console.troubles import UNREADABLE
from app.engine.events import Event, FilesChangedElsewhere, LinkChanged, RunsChanged
from app.engine.text import plural, safe_text
from app.engine.times import day, local_moment, rfc3339
from app.runs.screen_export import ExportScreen, exporting
from app.runs.screen_views import runs_lead
from storage.records import RunFilter
from storage.records.insights import Outcomes, RunCounts
from widgets.frame import Notice, NoticePage
from widgets.insights import (
    OTHER_OUTCOMES,
    STACK,
    ChartStep,
    InsightsView,
    OutcomesChart,
    period_text,
    repository_rows,
    table_rows,
)
from widgets.kit import hidden
from widgets.kit.badges import STYLES
from widgets.kit.choice_lists import LeadList
from widgets.kit.line_text import Chip, ChipBar, SteadyText


class InsightSpan(Struct, frozen=True):
    """A period up to now."""

    name: str
    title: str
    step: ChartStep
    count: int
    """Hours or days, the current one included."""

    def edges(self, now: datetime) -> tuple[datetime, ...]:
        """The start of each hour or day and the end of the last one, by the local clock with its changes."""
        if self.step == "hour":
            last = now.astimezone().replace(minute=0, second=0, microsecond=0).astimezone(UTC)
            return tuple(last + timedelta(hours=index) for index in range(1 - self.count, 2))
        today = now.astimezone().date()
        days = (today + timedelta(days=index) for index in range(1 - self.count, 2))
        return tuple(local_moment(date) for date in days)


SPANS: Final = (
    InsightSpan("24h", "the last 24 hours", "hour", 24),
    InsightSpan("7d", "the last 7 days", "day", 7),
    InsightSpan("30d", "the last 30 days", "day", 30),
)
WHAT_COMES: Final = (
    "The outcomes of each hour or day, and each repository's success rate and durations, will appear here."
)
ASKING: Final = Notice(
    "◌",
    "Asking the service for its runs…",
    (WHAT_COMES, "", "The newest appear first, older days as they are fetched."),
    "busy",
)
COLUMNS: Final = ("figure", "from", "to", "repository", "measure", "value")
OUTCOMES: Final = ("completed", "failed", "unfinished", "ended_otherwise")
DURATIONS: Final = ("success", "p50_s", "p95_s", "timed")


def write(view: InsightsView, path: Path) -> None:
    """Write the figures, each with its period, in the format given by the file's name; may raise `OSError`."""
    figures: list[tuple[str, datetime, datetime, str, RunCounts, tuple[str, ...]]] = [
        (f"outcomes by {view.step}", period.start, period.end, "", period, OUTCOMES) for period in view.outcomes
    ]
    every = (*OUTCOMES, *DURATIONS)
    figures += [("repositories", view.since, view.at, row.repository, row, every) for row in view.repositories]
    more = {"complete": view.is_complete, "complete_since": rfc3339(view.coverage.complete_since)}
    with exporting(path, "figures", COLUMNS, more) as file:
        for figure, since, until, repository, counts, measures in figures:
            for measure in measures:
                line = figure, rfc3339(since), rfc3339(until), repository, measure, getattr(counts, measure)
                file.add(line, dict(zip(COLUMNS, line, strict=True)))


MIN_INTERVAL: Final = timedelta(seconds=5)
"""The shortest interval between updates, since figures of many runs are expensive."""
MAX_INTERVAL: Final = timedelta(minutes=15)
"""The longest one: the last hour or day of the chart changes with time alone."""


class InsightsScreen(BaseScreen):
    """Charts of a period, or the same numbers as tables."""

    TAB = "insights"
    CSS_PATH = TABS_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "bar(-1)", "a day", key_display="← →", tooltip="Choose an hour or a day", id="insights.bar"),
        hidden("right", "bar(1)", "later", id="insights.bar_later"),
        hidden("j,down,k,up", "rows", "to the repositories", id="insights.rows"),
        Binding("t", "when", "when", tooltip="Show the last 24 hours, 7 days or 30 days", id="insights.when"),
        Binding("equals_sign", "tables", "tables", tooltip="Switch between tables and charts", id="insights.tables"),
        Binding("x", "export", "export", tooltip="Write these numbers to a CSV or JSON file", id="insights.export"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._engine = session.open_engine
        self._span = SPANS[1]
        self._view: InsightsView | None = None
        self._is_stale = False
        self._chart = OutcomesChart(id="insight-outcomes-chart")
        self._rows = LeadList(id="insight-repositories-list")
        self._tables = LeadList(id="insight-tables")
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        with Horizontal(id="insight-bar"):
            yield ChipBar(id="insight-spans")
            yield SteadyText(id="insight-extent")
        with Container(id="insights", classes="-nothing"):
            yield NoticePage(id="insight-nothing")
            with Vertical(id="insight-charts"):
                with Vertical(classes="insight-panel", id="insight-outcomes"):
                    yield SteadyText(id="insight-legend")
                    yield self._chart
                with Vertical(classes="insight-panel -all", id="insight-repositories"):
                    yield self._rows
            yield self._tables

    def on_mount(self) -> None:
        self._show_notice(Notice("◌", f"Counting the runs of {self._span.title}…", tone="busy"))
        self._name_spans()
        self._reader.ask()

    def show_trouble(self) -> None:
        """Update the banner and the notice instead of figures, which may report the same problem."""
        super().show_trouble()
        if self._view is not None and not self._view.runs:
            self._show_notice(self._nothing(self._view))
            self._show_extent(self._view)

    def trouble(self) -> Notice | None:
        """The banner's notice, unless it is already shown instead of figures."""
        is_shown = self._view is not None and not self._view.runs and not self._was_answered
        return None if is_shown else super().trouble()

    def on_screen_resume(self) -> None:
        """Load the changes made while another screen was shown."""
        if self._view is not None:
            self._is_stale = True
            self.tick(self._engine.clock())

    def engine_changed(self, event: Event) -> None:
        """Note that figures may have changed; `tick` reads them, instead of once per run."""
        if isinstance(event, RunsChanged | FilesChangedElsewhere):
            self._is_stale = True
        if isinstance(event, RunsChanged | FilesChangedElsewhere | LinkChanged) and not (
            self._view and self._view.runs
        ):
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Read the figures again if they may have changed, but not too often; they also change with time."""
        view = self._view
        if view is None:
            return
        age = now - view.at
        if (self._is_stale and age >= MIN_INTERVAL) or age >= MAX_INTERVAL:
            self._reader.ask()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in {"export", "tables"}:
            return self._view is not None and bool(self._view.runs)
        if action in {"bar", "rows"}:
            return self._view is not None and bool(self._view.runs) and not self._shows_tables
        return super().check_action(action, parameters)

    def action_when(self) -> None:
        self.action_span(SPANS[(SPANS.index(self._span) + 1) % len(SPANS)].name)

    def action_span(self, name: str) -> None:
        span = next(span for span in SPANS if span.name == name)
        if span != self._span:
            self._span = span
            self._name_spans()
            self._reader.ask()

    def action_tables(self) -> None:
        self.query_one("#insights").toggle_class("-tables")
        self._list.focus()
        self.refresh_bindings()

    def action_bar(self, step: int) -> None:
        """Move the cursor among the outcomes, or to them from the repositories."""
        if self._chart.has_focus:
            self._chart.move(step)
        self._chart.focus()

    def action_rows(self) -> None:
        self._rows.focus()

    @work
    async def action_export(self) -> None:
        view = self._view
        today = self._engine.clock().astimezone()
        if view is None:
            return

        async def write_export(path: Path) -> str:
            await asyncio.to_thread(write, view, path)
            return f"Written: {path}"

        name = f"runwarden-{self._engine.profile.name}-{self._span.name}-{today:%Y-%m-%d}.csv"
        suggested = Path.cwd() / "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
        sheet = ExportScreen("Export these figures", suggested, write_export)
        if result := await self.app.push_screen_wait(sheet):
            self.session.notify(result)

    def action_refresh(self) -> None:
        super().action_refresh()
        self._reader.ask()

    @on(OptionList.OptionSelected)
    def open_row(self, message: OptionList.OptionSelected) -> None:
        view = self._view
        (kind, _, key) = (message.option_id or "").partition(":")
        if view is None:
            return
        if kind == "repo":
            self.post_message(runs_lead(RunFilter(repositories=(key,)), view.since))
        elif kind == "at":
            self._open_outcome(next(period for period in view.outcomes if period.start.isoformat() == key))

    @on(OutcomesChart.Chosen)
    def open_bar(self, message: OutcomesChart.Chosen) -> None:
        if self._view is not None:
            self._open_outcome(self._view.outcomes[message.index])

    @on(OutcomesChart.Highlighted)
    @on(OptionList.OptionHighlighted)
    def explain_bar(self) -> None:
        view, index = self._chart.view, self._chart.cursor
        title = ""
        if view is not None and index is not None:
            period = view.outcomes[index]
            remark = ", partial" if view.is_partial(period) else ""
            runs = f"{plural(period.total, 'run')}, {period.failed:,} failed"
            title = f"{period_text(period.start, view.step)}: {runs}{remark}"
        self.query_one("#insight-outcomes").border_subtitle = title
        self.refresh_bindings()

    def _open_outcome(self, period: Outcomes) -> None:
        end = None if period.end > self.session.run_now() else period.end
        self.post_message(runs_lead(RunFilter(), period.start, end))

    @property
    def _shows_tables(self) -> bool:
        return self.is_mounted and self.query_one("#insights").has_class("-tables")

    @property
    def _list(self) -> LeadList:
        return self._tables if self._shows_tables else self._rows

    async def _read(self) -> None:
        span = self._span
        now = self.session.run_now()
        self._is_stale = False
        cache = self._engine.cache
        edges = span.edges(now)
        outcomes = await cache.outcomes(edges)
        repositories = await cache.repository_figures(edges[0])
        view = InsightsView(span.title, span.step, now, outcomes, repositories, await cache.coverage())
        if span != self._span:
            return
        is_first = self._view is None
        self._view = view
        self._show_extent(view)
        self.refresh_bindings()
        if not view.runs:
            self._show_notice(self._nothing(view))
            return
        self.query_one("#insights").remove_class("-nothing")
        self.query_one("#insight-outcomes").border_title = f"Outcomes by {view.step}"
        self.query_one("#insight-repositories").border_title = "Success and duration by repository"
        counts = [(badge, view.total(outcome)) for badge, outcome in STACK]
        legend = Content("   ").join(
            Content.assemble((badge.glyph * 2, badge.style), f" {count:,} {badge.word}")
            for badge, count in counts
            if count or badge is not OTHER_OUTCOMES
        )
        self.query_one("#insight-legend", SteadyText).update(legend)
        self._chart.show(view)
        self._rows.show(partial(repository_rows, view))
        self._tables.show(lambda _: [*table_rows(view)])
        if is_first:
            self._list.focus()

    def _nothing(self, view: InsightsView) -> Notice:
        if self.session.vitals.storage_trouble:
            return UNREADABLE
        if not self._was_answered:
            return self.session.vitals.trouble or ASKING
        if view.coverage.whole and view.coverage.first_run_at is None:
            return Notice("○", "The service has no run yet", (WHAT_COMES, "", "Press n in Runs to start one."), "plain")
        wider = next(iter(SPANS[SPANS.index(self._span) + 1 :]), None)
        what_now = "Older runs are in Runs."
        if wider is not None:
            what_now = f"Press t for {wider.title}."
        if view.is_complete:
            return Notice("○", f"No run was created in {self._span.title}", (what_now,), "plain")
        lines = ("The history of that time is not complete yet,", "so there may have been some. " + what_now)
        return Notice("◌", f"No run of {self._span.title} is known", lines, "warn")

    def _show_extent(self, view: InsightsView) -> None:
        words = ""
        if view.runs or self._was_answered:
            since = day(view.since, view.at)
            complete_since = view.coverage.complete_since
            if view.step == "hour":
                first = view.since.astimezone()
                since = f"{first:%H:%M} {'today' if first.date() == view.at.astimezone().date() else 'yesterday'}"
            extent = "complete" if view.is_complete else "partial: not fetched yet"
            if not view.is_complete and complete_since is not None:
                at = f"{day(complete_since, view.at)} {complete_since.astimezone():%H:%M}"
                extent = f"complete since {at}, older is partial"
            words = f"{plural(view.runs, 'run')} since {since} · {extent}"
        self.query_one("#insight-extent", SteadyText).update(Content.styled(words, STYLES["quiet"]))

    @property
    def _was_answered(self) -> bool:
        link = self.session.vitals.now.runs_link
        return link is not None and link.last_ok_at is not None

    def _show_notice(self, notice: Notice) -> None:
        self.query_one(NoticePage).notice = notice
        self.query_one("#insights").add_class("-nothing")

    def _name_spans(self) -> None:
        texts = ((span, f"[{span.name}]" if span == self._span else f" {span.name} ") for span in SPANS)
        chips = (Chip(f"span('{span.name}')", safe_text(text), span == self._span) for span, text in texts)
        self.query_one("#insight-spans", ChipBar).chips = tuple(chips)
