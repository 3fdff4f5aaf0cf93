"""Runs missing from the cache: the reason, and actions to fetch, stop or pause."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from textual.message import Message

from app.api.errors import RateLimitedError
from app.console.troubles import nothing_to_show
from app.engine.text import SafeText, safe_text
from app.engine.times import clock_time
from app.runs.screen_actions import with_engine
from storage.records import CoverageGap
from storage.records.coverage import BackfillProgress
from widgets.frame import Notice
from widgets.runs.extent import IDLE, ExtentLine, missing_text, waits_for

if TYPE_CHECKING:
    from textual.worker import Worker

    from app.console.base import BaseScreen
    from app.engine.engine import Engine
    from app.runs.screen_loader import RunsLoader
    from app.runs.screen_views import TableQuery
    from storage.records.query import RunGroup
    from widgets.runs.table import RunTable

WAIT_S: Final = 5.0
"""The wait after a 429 that states none."""


class OlderRuns:
    """Fetches runs that the query may find beyond the cached ones, while the user waits."""

    class Changed(Message):
        """Runs arrived, or the texts changed."""

    def __init__(self, screen: "BaseScreen", loader: "RunsLoader", table: "RunTable") -> None:
        self._screen = screen
        self._session = screen.session
        self._loader = loader
        self._table = table
        self._worker: Worker[None] | None = None
        self._wanted: CoverageGap | None = None
        """The gap being fetched, as it was at first."""
        self._began = 0
        """The number of fetched runs when the user asked."""
        self._waits_until: datetime | None = None
        self._filtered: tuple[TableQuery, CoverageGap | None, AsyncGenerator[int, None]] | None = None
        """The query of the listing in progress, which the next key press continues."""
        self._came = 0
        """Runs fetched with that query since the user asked."""
        self._exhausted: TableQuery | None = None
        """The query for which the service has no more runs."""

    @property
    def progress(self) -> BackfillProgress:
        """The progress of the backfill, in this process or the polling one."""
        if (engine := self._session.engine) is None:
            return IDLE
        stored = None if (extent := self._loader.extent) is None else extent.history.progress
        is_ours = engine.polling.is_poller or self.is_fetching
        return engine.backfill.progress if is_ours or stored is None else stored

    @property
    def is_fetching(self) -> bool:
        return self._worker is not None

    @property
    def gap(self) -> CoverageGap | None:
        """The newest gap in which the query may find runs, or None."""
        return next(iter(self._gaps), None)

    @property
    def below(self) -> CoverageGap | None:
        """The newest gap without a line between two runs; the line below the last run shows it."""
        between = self._table.window.gaps
        return next((gap for gap in self._gaps if not any(gap.overlaps(drawn) for _, drawn in between)), None)

    @property
    def _gaps(self) -> Sequence[CoverageGap]:
        extent = self._loader.extent
        if extent is None or self._loader.query == self._exhausted:
            return ()
        return extent.gaps(self._loader.condition)

    # Actions

    @property
    def may_fetch(self) -> bool:
        return not self.is_fetching and self.gap is not None

    @property
    def may_pause(self) -> bool:
        return not self.is_paused and self.progress.phase in {"running", "waiting"} and not self.is_fetching

    @property
    def is_paused(self) -> bool:
        return self._loader.extent is not None and self._loader.extent.history.is_paused

    def fetch(self, gap: CoverageGap | None = None) -> None:
        """Fetch runs of this gap (by default the newest one) until the query finds some."""
        if self.may_fetch:
            self._wanted = gap or self.gap
            self._worker = with_engine(self._screen, self._fetch, "older")

    def stop(self) -> bool:
        """Stop fetching; runs fetched so far are kept."""
        if self._worker is None:
            return False
        self._worker.cancel()
        return True

    async def _fetch(self, engine: "Engine") -> None:
        # Imported at first use: the first screen fetches nothing.
        from app.sync.listing import FilterIgnoredError

        self._began = engine.backfill.progress.done_runs
        self._came = 0
        self._screen.post_message(self.Changed())
        try:
            while True:
                try:
                    return await self._ask_with_filter(engine)
                except FilterIgnoredError:
                    return await self._walk_until_found(engine)
                except RateLimitedError as error:
                    await self._wait(error.retry_after_s or WAIT_S)
        finally:
            self._worker = self._waits_until = None
            self._screen.post_message(self.Changed())

    async def _ask_with_filter(self, engine: "Engine") -> None:
        """Fetch runs that match the query until some arrive or the service has no more."""
        query = self._loader.query
        gap = self._wanted
        if self._filtered is None or self._filtered[:2] != (query, gap):
            counts = engine.listing.older(self._loader.condition, gap.before if gap else None)
            self._filtered = query, gap, counts
        *_, counts = self._filtered
        self._filtered = None  # A request that failed or was stopped cannot be continued.
        async for count in counts:
            self._came += count
            self._screen.post_message(self.Changed())
            if count:
                self._filtered = query, gap, counts
                return
        if gap == self.gap:
            self._exhausted = query

    async def _walk_until_found(self, engine: "Engine") -> None:
        condition = self._loader.condition
        count = await engine.cache.count(condition)
        has_more = True
        while has_more and await engine.cache.count(condition) <= count:
            try:
                has_more = await engine.backfill.fetch_older(since=condition.since, gap=self._wanted)
            except RateLimitedError as error:
                await self._wait(error.retry_after_s or WAIT_S)
            self._screen.post_message(self.Changed())

    async def _wait(self, wait_s: float) -> None:
        self._waits_until = self._session.clock() + timedelta(seconds=wait_s)
        self._screen.post_message(self.Changed())
        await asyncio.sleep(wait_s)
        self._waits_until = None

    # Texts

    def lines(self) -> dict[CoverageGap | None, tuple[SafeText, ...]]:
        """The table's lines of missing runs, each in full and then shorter; that of None is below the last run."""
        gaps: dict[CoverageGap | None, CoverageGap] = {gap: gap for _, gap in self._table.window.gaps}
        gaps |= {} if (below := self.below) is None else {None: below}
        return {key: self._texts(gap) for key, gap in gaps.items()}

    def _texts(self, gap: CoverageGap) -> tuple[SafeText, ...]:
        runs = missing_text(gap, self._session.run_now())
        texts = [f"{runs} are not fetched · enter fetch them", f"{runs} are not here · enter fetch"]
        texts.append("enter fetch older runs")
        if self._loader.query == self._exhausted:
            texts = [f"no other {runs} match", "no others match"]
        elif self.is_fetching and (self._wanted is None or gap.overlaps(self._wanted)):
            texts = [f"fetching {runs} · {self._how_far} · esc stop", f"{self._how_far} · esc stop"]
        return tuple(map(safe_text, texts))

    def line(self) -> ExtentLine | None:
        """The missing runs and the progress of fetching; None: not known yet."""
        if (extent := self._loader.extent) is None:
            return None
        query = self._loader.query
        has_counts = not query.is_changed and query.view.query in self._loader.counts
        is_limited = not extent.history.coverage.ranges or self.gap is not None
        session = self._session
        now = self._session.clock()
        # While the link is down, no row counts as fresh.
        fresh_from = now if session.vitals.as_of else now - timedelta(seconds=session.vitals.timing.late_after_s)
        history = timedelta(days=session.settings.history.days)
        return ExtentLine(extent, now, fresh_from, self.progress, history, is_limited, has_counts)

    def nothing_here(self) -> Notice:
        session = self._session
        query = self._loader.query
        extent = self._loader.extent
        empty = None if query.is_changed else query.view.empty
        vitals = session.vitals.now
        lines: tuple[str, ...] = ()
        if (gap := self.gap) is not None and extent is not None:
            runs = missing_text(gap, session.run_now())
            remark = f"Searched only the {extent.held:,} runs that are here; {runs} are not."
            lines = remark, "Press enter to ask the service."
            if self.is_fetching:
                lines = f"Fetching {runs}: {self._how_far}.", "Press esc to stop."
        read_only = session.profile.read_only
        return nothing_to_show(
            empty, extent, vitals.runs_link, session.clock(), vitals.wait, looked=lines, read_only=read_only
        )

    def explanation(self, group: "RunGroup | None") -> str:
        """The text next to the table if the cursor is not on a run: its group, or the missing runs and the reason."""
        if group is not None and group.others:
            return f"{group.others:,} more groups with {group.runs:,} runs: narrow the query to see them."
        if group is not None:
            name = safe_text(group.name, limit=200) or "no branch"
            runs, them = ("1 run", "it") if group.runs == 1 else (f"{group.runs:,} runs", "them")
            return f"{runs} of {name}; press enter to {'unfold' if group.is_folded else 'fold'} {them}."
        gap = self.gap
        extent = self._loader.extent
        if gap is None or self._session.engine is None or extent is None:
            return ""
        now = self._session.clock()
        history = self._session.settings.history
        progress = self.progress
        hint = "Press enter to fetch them."
        if self.is_fetching:
            hint = f"They are being fetched: {self._how_far}; press esc to stop."
        elif self.is_paused:
            hint = "Fetching in the background is paused."
        elif progress.phase == "waiting" and progress.until is not None:
            reason = waits_for(progress.why, limit=160)
            hint = f"Fetching waits until {clock_time(progress.until, now)}: {reason}."
        elif progress.phase == "running":
            hint = "They are being fetched in the background."
        missing = "; ".join(missing_text(each, now) for each in extent.history.coverage.gaps or (gap,))
        return (
            f"Not here: {missing}. {hint}\n\n"
            f"In the background the console fetches {history.days:g} days, and at most {history.runs:,} runs"
            " ([history] in the configuration). Older runs are fetched when you ask for them."
        )

    @property
    def _how_far(self) -> str:
        if self._waits_until is not None:
            return f"waiting until {clock_time(self._waits_until, self._session.clock())}: rate limit"
        return f"{self.progress.done_runs - self._began + self._came:,} so far"
