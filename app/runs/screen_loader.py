"""The data of the Runs screen, from cache and service: rows, counts, the selected run and the end of its log."""

import asyncio
import json
import math
import re
import time
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from msgspec.structs import replace
from textual.message import Message

from app.api.errors import ApiError
from app.console.feeds import CoalescedTask
from app.engine.events import ActionChanged, BackfillMoved, Event, FilesChangedElsewhere, LinkChanged, RunsChanged
from app.engine.text import SafeText, safe_block, safe_log_line, safe_text
from app.results.steps import StepLines
from app.runs.document import as_received
from app.runs.query import Vocabulary, parse
from app.runs.screen_views import ALL, TableQuery, View
from storage.records import KNOWN_STATUSES, Action, RunDetail, RunFilter, RunRow, RunWindow, WindowRequest
from storage.records.coverage import History
from storage.records.results import LogTail, Unavailable
from widgets.runs.extent import Extent
from widgets.runs.facts import Branch, RunView, SentMessage

if TYPE_CHECKING:
    from app.console.base import BaseScreen
    from app.engine.engine import Engine
    from app.results.service import ServiceExtension
    from storage.cache.cache import Cache
    from storage.cache.first_paint import FirstPaint
    from storage.records.coverage import BackfillPhase
    from widgets.runs.pane import SplitView


def turn_of(action: "Action") -> SentMessage:
    """An action of the ledger as a turn of a conversation; only the first lines of long instructions."""
    trouble = safe_text(action.error.message) if action.error is not None else None
    body = as_received(action.body_json)
    if isinstance(text := body.get("instructions"), str):
        lines = safe_block(text, lines=60)
    else:
        lines = safe_block(json.dumps(body.get("inputs", {}), indent=2, ensure_ascii=False))
    return SentMessage(action.created_at, safe_text(action.actor, limit=60), action.state, lines, trouble)


TAIL: Final = 32 * 1024
"""Bytes requested of a log's end."""
MAX_HELD: Final = 64
"""Runs whose tail is kept; the one read the longest ago is dropped first."""
_TIME: Final = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:[\d.,]+(Z|[+-]\d\d:?\d\d)?\]?\s*")
"""The time before a line, for which the pane has no room."""
RETRY_AFTER: Final = timedelta(seconds=15)
"""How long a failed request is shown before the service is asked again."""
TAIL_GROUP: Final = "log tail"


class FailureLogs:
    """The ends of failed runs' logs; one is requested at a time, for the run under the cursor."""

    def __init__(self, screen: "BaseScreen", read_again: Callable[[], None]) -> None:
        """`read_again` is called when a requested log end arrives."""
        self._screen = screen
        self._read_again = read_again
        self._tails: dict[object, tuple[datetime | None, LogTail]] = {}
        """By run and its own time; with the time of a request that failed, which is repeated."""
        self._requested: object = None
        """The run and its own time whose tail is being requested."""

    def tail(self, engine: "Engine", detail: RunDetail | None) -> LogTail | None:
        """The end of this run's log, if it failed; an unknown end replaces any pending request."""
        tail, log_key = None, None
        if detail is not None and detail.run.status == "failed":
            key = detail.run.run_id, detail.run.updated_at
            failed_at, tail = self._tails.get(key, (None, None))
            if tail is None or (failed_at is not None and self._screen.session.run_now() - failed_at > RETRY_AFTER):
                tail = None
                log_key = key
        if log_key != self._requested:
            self._requested = log_key
            self._screen.workers.cancel_group(self._screen, TAIL_GROUP)
            if detail is not None and log_key is not None:
                self._screen.run_worker(partial(self._request, engine, detail, log_key), group=TAIL_GROUP)
        return tail

    async def _request(self, engine: "Engine", detail: RunDetail, key: object) -> None:
        # Request nothing for runs that the cursor only passes.
        await asyncio.sleep(0.1)
        now = self._screen.session.run_now()
        try:
            self._tails[key] = None, await self._read(engine.extension, detail)
        except ApiError as error:
            reason = f"The log cannot be read now. {error.message}"
            self._tails[key] = now, LogTail(missing=safe_text(reason, limit=400))
        while len(self._tails) > MAX_HELD:
            del self._tails[next(iter(self._tails))]
        self._read_again()

    async def _read(self, extension: "ServiceExtension", detail: RunDetail) -> LogTail:
        run = detail.run
        summary = detail.summary
        turn = None
        if (summary.status, summary.updated_at) == (run.status, run.updated_at):
            turn = summary.turns
        if turn is None:
            turns = await extension.turns(run.run_id)
            if isinstance(turns, Unavailable):
                return LogTail(missing=safe_text(turns.reason, limit=400))
            turn = turns.turns[-1].number if turns.turns else 1
        chunk = await extension.log(run.run_id, turn, offset=-TAIL, before=0)
        if isinstance(chunk, Unavailable):
            return LogTail(missing=safe_text(chunk.reason, limit=400))
        text = chunk.data.decode("utf-8", "replace")
        # A piece from the middle of a log starts inside a line.
        text = (text.partition("\n")[2] or text) if chunk.offset else text
        # Each line, and whether it reports the failure.
        lines = [(safe_log_line(_TIME.sub("", line)), False) for line in text.split("\n")]
        if chunk.steps is not None:
            drawn = StepLines("l shows them", colour=False)
            lines = [
                (SafeText(line), step.failed or step.kind == "error") for step in chunk.steps for line in drawn.of(step)
            ]
        if not (lines := [line for line in lines if line[0].strip()]):
            return LogTail(missing="The log is empty.")
        reason = next((text for text, is_failed in reversed(lines) if is_failed), lines[-1][0])
        return LogTail(tuple(text for text, _ in lines[-40:]), reason)


GROWS_S: Final = 1.0
"""New runs that arrive within this time of others are read with the next tick."""


class RunsLoader:
    """Keeps table and pane current.

    It reads one window at a time: first the rows around the view, then the numbers, then which runs are stuck. If a new
    query has to search all runs, early matches are shown first, and another query cancels the search. The run under the
    cursor is read separately, then the end of its log if it failed.
    """

    class Counted(Message):
        """The numbers around the rows were read."""

    class ViewsCounted(Message):
        """The counts of the views changed."""

    def __init__(self, screen: "BaseScreen", split: "SplitView", query: TableQuery) -> None:
        self._screen = screen
        self._session = screen.session
        self._table = split.table
        self._pane = split.pane
        self.query = query
        self.extent: Extent | None = None
        """The extent of the cache; None: not known yet."""
        self.counts: dict[str, int] = {}
        """The number of runs in a view, by the view's line."""
        self.statuses: frozenset[str] | None = None
        """All statuses ever seen, and the spec's; None: not read yet."""
        self._changed: set[Literal["query", "runs"]] = set()
        """What changed since the last reading began."""
        self._is_behind = False
        """Whether more runs came, which are read with the next tick."""
        self._grown_s = -math.inf
        """When new runs were last read as they came (monotonic seconds)."""
        self._phase: BackfillPhase = "idle"
        self.views: tuple[View, ...] = ()
        """The views whose runs `load_counts` counts."""
        self._rows = CoalescedTask(self._read, screen.run_worker)
        self._numbers = CoalescedTask(self._read_numbers, screen.run_worker)
        self.load_counts = CoalescedTask(self._read_counts, screen.run_worker).ask
        self.load = self._rows.ask
        self.load_run = CoalescedTask(self._read_run, screen.run_worker).ask
        self.names = Vocabulary()
        self.load_names = CoalescedTask(self._read_names, screen.run_worker).ask
        self._summaries = CoalescedTask(self._learn, screen.run_worker)
        self._is_silent = False
        """Whether the last request about runs failed, which is repeated after the next poll."""
        self._logs = FailureLogs(screen, self.load_run)

    # Triggers

    def show_first(self, first: "FirstPaint") -> None:
        condition = self.condition
        if self.query.grouping is None:
            request = self._table.request(condition, self.query.sort)
            self._table.show(RunWindow(first.total, 0, first.rows), request)
        self._count(Extent(first.total, first.held, History(first.coverage), is_filtered=bool(condition)))

    async def begin(self) -> None:
        await self._session.opened()
        self.runs_changed()
        self.load_run()

    def runs_changed(self) -> None:
        """Read the rows again, and their places in the order."""
        self._changed.add("runs")
        self.load()

    def pins_changed(self, _: object) -> None:
        if self.condition.followed:
            self.runs_changed()

    def engine_changed(self, event: "Event") -> None:
        """Reload what changed; new runs in quick succession, such as pages of them, wait for the next tick."""
        if isinstance(event, RunsChanged) and not (event.changes.transitions or event.changes.updated):
            if self._is_filling or time.monotonic() < self._grown_s + GROWS_S:
                self._is_behind = True
                # Check a screen without changes less often.
                self._screen.on_update()
                return
            self._grown_s = time.monotonic()
        is_confirmed = isinstance(event, LinkChanged) and self._table.shows_unconfirmed
        if is_confirmed or isinstance(event, RunsChanged | ActionChanged | FilesChangedElsewhere):
            self.load_run()
        self._is_silent = self._is_silent and not isinstance(event, LinkChanged)
        if isinstance(event, LinkChanged) and not is_confirmed:
            # The end of a poll changes the coverage: up to when, and how far back, nothing is missing.
            self._numbers.ask()
        elif isinstance(event, BackfillMoved):
            # The progress is shown with the next tick.
            before = self._phase
            self._phase = event.progress.phase
            if self._phase != before:
                self.runs_changed()
        elif isinstance(event, LinkChanged | RunsChanged | FilesChangedElsewhere):
            self.runs_changed()

    def tick(self) -> None:
        """Read changes from the background, and ask for the subjects of the runs on show."""
        if self._is_behind:
            self._is_behind = False
            self.runs_changed()
            self.load_run()
        if self._session.vitals.as_of is None and not self._is_silent and self._unknown_runs():
            self._summaries.ask()

    def seek(self, run_id: str) -> None:
        """Put the cursor on a run as soon as it is in the table."""
        self._table.seek(run_id)
        self.runs_changed()

    def query_changed(self, before: TableQuery, after: TableQuery) -> None:
        """Read the rows of a changed query, and cancel an unfinished search."""
        self.query, now = after, self._session.run_now()
        has_other_groups = (after.grouping and after.grouping.by) != (before.grouping and before.grouping.by)
        if after.sort != before.sort or after.condition(now) != before.condition(now) or has_other_groups:
            # After sorting, the ends of the table matter; after filtering, the same run matters.
            self._table.start_over(follow=after.sort == before.sort)
            self._changed.add("query")
            self._rows.ask_anew()
        elif after.grouping != before.grouping:
            # When groups are folded or unfolded, the other rows keep their positions.
            self._changed.add("query")
            self.runs_changed()

    @property
    def _is_filling(self) -> bool:
        engine = self._session.engine
        return engine is not None and engine.backfill.progress.phase == "running"

    @property
    def condition(self) -> RunFilter:
        return self.query.condition(self._session.run_now())

    # Rows

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        changed = self._changed
        self._changed = set()
        try:
            cache = engine.cache
            table = self._table
            query = self.query
            condition = self.condition
            if "query" in changed and condition.is_scan and query.grouping is None:
                await self._read_page_by_page(cache, condition)
            else:
                request = table.request(condition, query.sort, query.grouping, is_fresh=bool(changed))
                table.show(await cache.window(request), request)
            if changed:
                # Rows first, since showing the counts may lay out the screen again.
                await self._wait_for_paint()
                await self._read_numbers()
            if "runs" in changed:
                table.mark_stuck(await cache.stuck())
        except BaseException:
            self._changed |= changed  # The next read has to make up for the failure.
            raise

    async def _read_page_by_page(self, cache: "Cache", condition: RunFilter) -> None:
        """Show early matches at once, then the rows around them, and their number once all runs were searched."""
        table = self._table
        sort = self.query.sort
        count = 0
        # Time limits of the first and second search for a page.
        for patience_s in (0.015, 0.06):
            request = table.request(condition, sort)
            rows = await cache.first_rows(condition, sort, limit=table.page, patience_s=patience_s)
            if len(rows) > count:
                count = len(rows)
                table.show(first_window(rows, request), request)
                await self._wait_for_paint()
            if count == table.page:
                break
        request = table.request(condition, sort)
        last = request.offset + request.limit
        rows = await cache.rows(condition, sort, offset=0, limit=last)
        table.show(first_window(rows, request), request)
        if len(rows) == last:
            await self._read_numbers(is_counted=False)
            table.set_total(await cache.count(condition))

    async def _wait_for_paint(self) -> None:
        # A closing console removes the table before its read has finished.
        if self._table.is_running:
            await self._table.wait_for_refresh()

    # Counts

    async def _read_numbers(self, *, is_counted: bool = True) -> None:
        if (engine := self._session.engine) is None:
            return
        cache = engine.cache
        condition = self.condition
        matching = self._table.window.runs
        history = await cache.history(cache.clock())
        extent = Extent(
            matching,
            await cache.count(RunFilter()) if condition else matching,
            history,
            is_filtered=bool(condition),
            is_counted=is_counted,
            undecided=0 if (undecided := condition.undecided) is None else await cache.count(undecided),
        )
        if self.extent is not None and self.extent.history.coverage.gaps != history.coverage.gaps:
            # The lines of gaps are among the rows. While gaps are filled they change all the time.
            if self._is_filling:
                self._is_behind = True
            else:
                self.runs_changed()
        self._count(extent)
        self._screen.post_message(self.Counted())

    def _count(self, extent: Extent) -> None:
        self.extent = extent
        self.counts[ALL.query] = extent.held
        if not self.query.is_changed:
            self.counts.pop(self.query.view.query, None)
            if extent.is_counted:
                self.counts[self.query.view.query] = extent.matching

    async def _read_counts(self) -> None:
        if (engine := self._session.engine) is None:
            return
        self.statuses = KNOWN_STATUSES | set(await engine.cache.known_statuses())
        now = self._session.run_now()
        lines = {view.query: parse(view.query, now).filter for view in self.views}
        # Only counts from an index: a count must not cost a search of a million runs.
        indexed = {
            line: which for line, which in lines.items() if not (which.is_scan or which.branches or which.not_branches)
        }
        counts = dict(zip(indexed, await engine.cache.counts(indexed.values()), strict=True))
        query = self.query.view.query
        if query in lines.keys() - indexed.keys() and query in self.counts:
            counts[query] = self.counts[query]
        if counts != self.counts:
            self.counts = counts
            self._screen.post_message(self.ViewsCounted())

    async def _read_names(self) -> None:
        if (engine := self._session.engine) is not None:
            cache = engine.cache
            repositories = await cache.repositories()
            branches = await cache.branches(RunFilter())
            self.names = Vocabulary(repositories, branches, await cache.agents(), await cache.known_statuses())

    # Selected run

    async def _read_run(self) -> None:
        engine = self._session.engine
        row = self._table.row
        now = self._session.run_now()
        if engine is None or row is None:
            self._pane.show(None, now)
            return
        view = await read_run(engine, row.run_id, stuck=row.run_id in self._table.stuck)
        tail = self._logs.tail(engine, None if view is None else view.detail)
        self._pane.show(None if view is None else replace(view, log=tail), now)

    # Summaries

    def _unknown_runs(self) -> list[RunRow]:
        """The visible runs whose summaries are due, the one under the cursor first."""
        engine = self._session.engine
        here = self._table.row
        rows = dict.fromkeys((*([here] if here else []), *self._table.rows_on_show))
        return [row for row in rows if engine is not None and engine.summaries.are_due(row)]

    async def _learn(self) -> None:
        engine = self._session.engine
        rows = self._unknown_runs()
        if engine is None or not rows:
            return
        try:
            async with aclosing(engine.summaries.learn(rows)) as learnt:
                async for row in learnt:
                    self._table.summarize(row)
                    if row.run_id == self._screen.focused_run_id:
                        self.load_run()
                    if row not in self._table.rows_on_show:
                        break  # The next tick asks about the runs visible by then.
        except ApiError:
            self._is_silent = True


async def read_run(engine: "Engine", run_id: str, *, stuck: bool) -> RunView | None:
    """Read a run with the instructions sent from here; None: the cache does not hold it."""
    from app.actions.actions import retry_key  # the engine, which is open, has imported it

    cache = engine.cache
    ledger = engine.ledger
    if (detail := await cache.detail(run_id)) is None:
        return None
    # By the service's clock, like all other times of a run.
    ahead = (await cache.budget()).clock_ahead
    seen = replace(detail, first_seen_at=detail.first_seen_at + ahead, last_seen_at=detail.last_seen_at + ahead)
    actions = await ledger.for_run(run_id)
    retried = await ledger.results([retry_key(detail.run)] if detail.run.status == "failed" else [])
    earlier = (a.subject for a in actions if a.kind == "run.continue" and run_id == a.result_id != a.subject)
    return RunView(
        seen,
        tuple(turn_of(action) for action in actions),
        stuck,
        next(earlier, None),
        Branch(*await cache.on_branch(run_id, each_way=3, count_limit=100)),
        engine.settings.history.confirmed_for,
        retried=next(iter(retried.values()), None),
    )


def first_window(rows: tuple[RunRow, ...], request: WindowRequest) -> RunWindow:
    """The first rows found so far; the cursor is on its run if the run is among them."""
    cursor = next((index for index, row in enumerate(rows) if row.run_id == request.cursor_id), 0)
    return RunWindow(len(rows), 0, rows, 0, cursor)
