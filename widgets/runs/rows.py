"""Rows held by run: the cursor and what is on show stay on their runs, whatever arrives above them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from textual.message import Message

from storage.records import RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from widgets.cursor_view import CursorView

HOLD_S: Final = 0.05
"""The longest time that an old frame stays on the screen; a longer wait must be visible."""

FreezeFrame = Callable[[], AbstractContextManager[object]]
"""Nothing is painted while this context is open."""


class RunRows(CursorView, can_focus=True):
    """A window over any number of runs.

    It holds the rows around what is on show, asks for others with `WindowRequested` and is given them with `show`.
    Between `hold` and `release` the screen keeps its frame: one frame with rows beats two, the first without them.
    """

    @dataclass
    class WindowRequested(Message):
        """The table needs rows that it does not hold: read those of its `request`."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest place counts."""
            return isinstance(message, RunRows.WindowRequested)

    @dataclass
    class Highlighted(Message):
        """The cursor is on another run."""

        row: RunRow | None
        """None: there are no rows."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest run counts."""
            return isinstance(message, RunRows.Highlighted)

    def __init__(
        self,
        clock: Callable[[], datetime],
        freeze: FreezeFrame,
        *,
        id: str | None = None,  # noqa: A002 — Textual's word
    ) -> None:
        super().__init__(id=id)
        self._freeze = freeze
        self._frozen: ExitStack | None = None
        """Thaws the frame when closed. None: the frame is not held."""
        self._now = clock()
        self._as_of: datetime | None = None
        self._window = RunWindow()
        self._cursor_id: str | None = None
        """The cursor's run; None: there is none, or its row is not here yet."""
        self._row: RunRow | None = None
        """The cursor's run, once it is here."""
        self._named: RunRow | None = None
        """The run that was named last."""
        self._asked: tuple[int, int] | None = None
        self._unseen = 0
        """Runs that arrived above what is on show."""

    # What it needs from the widget that draws the rows

    def resize_to(self, total: int) -> None:
        """There are so many rows now."""
        raise NotImplementedError

    # What it is told

    def show(self, window: RunWindow, request: WindowRequest) -> None:
        """Show rows that were read; the cursor and what is on show stay on their runs.

        Args:
            window: The rows.
            request: What they answer, since the reader may have moved on while they were read.
        """
        before, top, cursor_before = self._window, self.scroll_offset.y, self._cursor
        is_sought = self._cursor_id is not None and self._row is None
        follows = is_sought or self._cursor in self.rows_on_show
        # Asking for the same again would bring the same again.
        self._window, self._asked = window, (request.offset, request.limit)
        self._settle_cursor(window, request)
        self.resize_to(window.total)
        self._hold_still(window, request, follows=follows)
        if self.is_held:
            # Rows for where the reader was before: those for where he is now are on their way.
            if self._holds_what_is_on_show():
                self.release()
        elif before.total != window.total or self.scroll_offset.y != top or not before.rows:
            self.refresh()
        else:
            self._repaint_changed(before, cursor_before)
        self._want_rows()

    def counted(self, total: int) -> None:
        """The rows of the table are counted now; it may have more than were known when the first of them came."""
        if total == self._window.total:
            return
        self._window, self._asked = replace(self._window, total=total), None
        self.resize_to(total)
        self.refresh()
        self._want_rows()

    def start_over(self, *, follow: bool) -> None:
        """The next rows are other rows: the view goes to the top.

        Args:
            follow: The cursor stays on its run if that is among them; otherwise it goes to the first one.
        """
        self.hold()
        if self.scroll_offset.y:
            self._window = replace(self._window, offset=0, rows=())
        if not follow:
            self._cursor, self._cursor_id = 0, None
        self.scroll_rows_to(0)

    def seek(self, run_id: str) -> None:
        """The cursor goes to this run with the next rows, if it is among them."""
        self._cursor_id, self._row = run_id, None

    # What it knows

    @property
    def total(self) -> int:
        """How many runs the whole table has."""
        return self._window.total

    @property
    def row(self) -> RunRow | None:
        """The run under the cursor."""
        return self._row

    def request(self, condition: RunFilter, sort: RunSort, *, is_fresh: bool = True) -> WindowRequest:
        """The rows around what is on show: the page before it, its own and the page after."""
        index, run_id = self._anchor() or (0, None)
        return WindowRequest(condition, sort, *self._around, run_id, index, self._cursor_id, self._cursor, is_fresh)

    @property
    def _around(self) -> tuple[int, int]:
        """The first row of three pages around what is on show, and how many they are."""
        return max(0, self.scroll_offset.y - self.page), 3 * self.page

    def _anchor(self) -> tuple[int, str] | None:
        if self.scroll_offset.y == 0:
            return None
        index = self._cursor if self._cursor in self.rows_on_show else self.scroll_offset.y
        row = self._window.row(index)
        return (index, row.run_id) if row else None

    # How it keeps the frame

    @property
    def is_held(self) -> bool:
        """Whether the screen keeps its frame."""
        return self._frozen is not None

    def hold(self) -> None:
        """Paints nothing until `release`, for `HOLD_S` at most since the first of several calls."""
        if self._frozen is None and self.is_mounted:
            self._frozen = ExitStack()
            self._frozen.enter_context(self._freeze())
            self._frozen.callback(self.set_timer(HOLD_S, self.release).stop)

    def release(self) -> None:
        """Paints again, if the frame was held."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            frozen.close()
            self.refresh()

    def on_unmount(self) -> None:
        """Releases the frame: the screen must not wait for the rows of a table that is gone."""
        self.release()

    # How it moves

    def rows_came_into_view(self) -> None:
        """Asks for those that are not here; at the top there is nothing unseen any more."""
        if self.scroll_offset.y == 0:
            self._unseen = 0
        self._want_rows()

    def cursor_moved(self) -> None:
        """Names the run that the cursor is on now."""
        row = self._row = self._window.row(self._cursor)
        self._cursor_id = row.run_id if row else None
        is_awaited = row is None and self.total > 0
        if row != self._named and not is_awaited:
            self._named = row
            # The rows are painted first: showing the run itself may take as long again.
            self.call_after_refresh(self.post_message, self.Highlighted(row))

    def _settle_cursor(self, window: RunWindow, request: WindowRequest) -> None:
        if self._cursor_id != request.cursor_id:
            self._cursor += window.shift  # The reader moved on while the rows were read.
        elif window.cursor_index is not None:
            self._cursor = window.cursor_index
        self._cursor = min(max(0, self._cursor), max(0, window.total - 1))
        if window.row(self._cursor) is not None or not window.total:
            self.cursor_moved()

    def _hold_still(self, window: RunWindow, request: WindowRequest, *, follows: bool) -> None:
        """Scrolls so that what the reader looks at stays where it is, and the cursor on show if it was."""
        unseen, top = self._unseen, self.scroll_offset.y
        if request.anchor_id is not None and window.shift:
            unseen += window.shift
            self.scroll_rows_to(top + window.shift)
        elif follows and self._cursor >= top + self.page:
            # What came above pushed the cursor's run out of the view.
            unseen += self._cursor - self.page + 1 - top
            self.scroll_rows_to(self._cursor - self.page + 1)
        self._unseen = max(0, unseen) if self.scroll_offset.y else 0

    def _want_rows(self) -> None:
        visible, margin = self.rows_on_show, self.page // 2
        if not visible or self._window.holds(visible.start - margin, visible.stop - 1 + margin):
            return
        if not self._holds_what_is_on_show():
            self.hold()
        if self._asked != self._around:
            self._asked = self._around
            self.post_message(self.WindowRequested())

    def _holds_what_is_on_show(self) -> bool:
        visible = self.rows_on_show
        return self._window.holds(visible.start, visible.stop - 1)

    def _repaint_changed(self, before: RunWindow, cursor_before: int) -> None:
        for index in self.rows_on_show:
            if before.row(index) != self._window.row(index) or index in {cursor_before, self._cursor}:
                self.repaint_row(index)
        self.repaint_header()
