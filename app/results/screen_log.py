"""The log of one turn, read backwards from the end and followed while the turn works."""

import asyncio
from datetime import datetime, timedelta
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from app.engine.text import plural, safe_text
from app.engine.times import span
from app.results.service import REST_S, WAIT_S
from app.results.steps import LABEL, StepLines
from app.runs.screen_subject import RunSubject, SearchedPart, showing_failure, unavailable
from storage.records.results import LogChunk, Unavailable
from widgets.kit.text_view import TextPiece, TextSearch
from widgets.results.log import FAILED_STEP, LogSpool, LogView

PIECE: Final = 256 * 1024
"""Bytes of one request."""
PAUSE_S: Final = 5.0
"""The pause after a failed request."""
QUIET_FROM: Final = timedelta(seconds=3)
"""The time without output after which the log is reported as waiting."""


class LogPart(SearchedPart):
    """Reads a log while it is shown: as a conversation if the service knows its steps."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("exclamation_mark", "error", "next error", id="log.error"),
        Binding("i", "raw_log", "raw", tooltip="Show the raw log with full times", id="log.raw"),
    ]

    body: LogView

    def __init__(self, subject: RunSubject) -> None:
        super().__init__(subject)
        self._spool = LogSpool()
        self.body = LogView(self._spool)
        self.search = TextSearch(self.body, self._read_earlier)
        self.search.none_of = {FAILED_STEP: "No step is marked as failed here. Press / to search the text."}
        self._shown: tuple[str, int] | None = None
        self._whole = 0
        self._has_ended = False
        self._grown_at: datetime | None = None
        self._problem = ""
        self._is_reading = asyncio.Lock()
        self._offers_steps = False
        """Whether the service knows the steps of this log."""
        self._steps = StepLines("Press i for the raw log", colour=True)

    def compose(self) -> ComposeResult:
        yield self.search

    def show(self) -> None:
        turn = self.subject.run_id, self.subject.turn or self.subject.last_turn
        if turn != self._shown:
            self._shown = turn
            self._offers_steps = False
            self._start_over()
        self.start(self._follow, exclusive=True, group="log")

    def _start_over(self) -> None:
        self._whole, self._has_ended, self._grown_at = 0, False, None
        self._drop()
        self.refresh_bindings()
        self.body.notice = unavailable("Reading the log…", "")

    def _drop(self) -> None:
        self._spool.clear()
        self._steps = StepLines("Press i for the raw log", colour=True)
        self.body.show_added()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "error":
            return bool(self.body.total and self.body.label)
        if action == "raw_log":
            return bool(self.body.total)
        return super().check_action(action, parameters)

    def action_raw_log(self) -> None:
        self.body.is_raw = not self.body.is_raw
        self.body.refresh()
        if self._offers_steps:
            self._start_over()
            self.start(self._follow, exclusive=True, group="log")

    def stop_reading(self) -> None:
        self.screen.workers.cancel_group(self.screen, "log")

    def tick(self, now: datetime) -> None:
        spool = self._spool
        size = self._whole
        extent = plural(spool.count, "line")
        if spool.begin:
            whole = f"{size / 1e6:.1f} MB" if size // 1_000_000 else f"{size / 1e3:.0f} KB"
            extent = f"the last {extent} of {whole}"
        pieces = [TextPiece(f" turn {self._shown[1] if self._shown else 1} · {extent}", "quiet")]
        if self._problem:
            pieces.append(TextPiece(f" · {self._problem}", "bad"))
        elif self._has_ended:
            pieces.append(TextPiece(" · ended", "quiet"))
        else:
            since = now - self._grown_at if self._grown_at is not None else timedelta(0)
            waits = "following"
            if since >= QUIET_FROM:
                waits = f"waiting for output {span(since.total_seconds())}"
            pieces.append(TextPiece(f" · {waits if self.body.follows else 'more at the end: G'}", "busy"))
        self.body.set_remark(pieces)

    def action_error(self) -> None:
        self.search.seek(FAILED_STEP, 1)

    @on(LogView.EarlierRequested)
    def read_earlier(self, message: LogView.EarlierRequested) -> None:
        if self.body.has_focus:
            self.start(self._read_all if message.up_to_first else self._read_earlier, group="log earlier")

    @on(TextSearch.Missed)
    def report_missed(self, message: TextSearch.Missed) -> None:
        self.session.notify(message.text)

    async def _follow(self) -> None:
        spool = self._spool
        while not (self._has_ended and spool.end >= self._whole):
            # A new or replaced log is read backwards from the end.
            offset = spool.end if spool.end or self._grown_at is not None else -PIECE
            wait_s = WAIT_S if offset >= 0 and not self._has_ended else 0
            version = self._shown
            before = None if self.body.is_raw else 0
            if version is None:
                return
            with showing_failure(self.body):
                chunk = await self.subject.results.log(*version, offset=offset, wait_s=wait_s, before=before)
            if self._shown != version:
                return
            if isinstance(chunk, Unavailable) and self._grown_at is not None:
                self._problem = safe_text(chunk.reason)
                self.tick(self.session.clock())
                await asyncio.sleep(PAUSE_S)
                continue
            if isinstance(chunk, Unavailable):
                self._has_ended = True
                self.body.notice = unavailable("No log to show.", chunk.reason)
                return
            self._add_chunk(chunk)
            if chunk.next_offset == chunk.offset and not chunk.ended:
                await asyncio.sleep(REST_S)

    def _add_chunk(self, chunk: LogChunk) -> int:
        follows = self.body.follows
        self._problem = ""
        spool = self._spool
        if chunk.size < spool.end:
            # The log shrank, so it was replaced.
            self._drop()
            self._whole, self._grown_at = 0, None
            self.session.notify("The log was replaced by another one.")
            return 0
        if spool.end and chunk.offset != spool.end and not chunk.offset < spool.begin <= chunk.next_offset:
            return 0  # Requested before the view moved away.
        if chunk.next_offset > chunk.offset or self._grown_at is None:
            self._grown_at = self.session.clock()
        detail = self.subject.detail
        is_last = self._shown == (self.subject.run_id, self.subject.last_turn)
        if chunk.ended and not self._has_ended and is_last and detail is not None and not detail.is_final:
            self.session.poll_soon()  # The run's status comes with the list, which is polled later.
        self._whole = chunk.size
        self._has_ended = chunk.ended
        had_none = not spool.count
        lines = None
        self.body.label = 0
        if chunk.steps is not None:
            self.body.label = LABEL + 1
            self._offers_steps = True
            lines = "".join(f"{line}\n" for step in chunk.steps for line in self._steps.of(step)).encode()
        before = spool.add_chunk(chunk, lines)
        if had_none:
            self.refresh_bindings()
        if not chunk.size:
            follows_on = "" if chunk.ended else "Its first lines will appear here."
            self.body.notice = unavailable(
                "The log is empty." if chunk.ended else "The log is empty so far.", follows_on
            )
        self.body.show_added(before=before, follow=follows and not before)
        self.tick(self.session.clock())
        return before

    async def _read_earlier(self) -> int | None:
        """Read earlier lines; return how many lines are new, or None."""
        async with self._is_reading:
            version = self._shown
            begin = self._spool.begin
            is_raw = self.body.is_raw
            if version is None or not begin:
                return None
            offset, before = (-PIECE, begin) if self.body.label else (max(0, begin - PIECE), None)
            chunk = await self.subject.results.log(*version, offset=offset, before=before)
            is_other = self._shown != version or self.body.is_raw != is_raw
            if isinstance(chunk, Unavailable) or is_other:
                return None
            return self._add_chunk(chunk)

    async def _read_all(self) -> None:
        while await self._read_earlier() is not None:
            pass
        self.body.put_cursor(0)
