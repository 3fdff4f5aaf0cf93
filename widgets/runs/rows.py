"""The rows of the run table: the cursor and the visible rows stay on their runs, whatever arrives above."""

from collections.abc import Callable, Container
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from textual.message import Message

from app.text import SafeText
from storage.records import CoverageGap, RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from storage.records.grouping import Grouping, RunGroup
from widgets.cursor_view import CursorView
from widgets.frame.notice import Notice

HOLD_S: Final = 0.05
"""The longest time that an old frame stays on the screen; a longer wait must be visible."""

DIMMED: Final = 0.5
"""The opacity of rows that are about to be replaced."""

FreezeFrame = Callable[[], AbstractContextManager[object]]
"""Returns a context in which the screen paints nothing."""


class RunRows(CursorView, can_focus=True):
    """A window over any number of runs.

    It holds the rows around the view, asks for others with `WindowRequested` and receives them through `show`.
    Between `hold` and `release` the screen keeps its old frame, so that it paints no frame without rows in between.
    """

    @dataclass
    class WindowRequested(Message):
        """The table needs rows that it does not hold, as its `request` describes."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest request counts."""
            return isinstance(message, RunRows.WindowRequested)

    @dataclass
    class Highlighted(Message):
        """The cursor moved to another run."""

        row: RunRow | None
        """None: there are no rows."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest run counts."""
            return isinstance(message, RunRows.Highlighted)

    @dataclass
    class Replaced(Message):
        """The rows of another query are on show."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        freeze: FreezeFrame,
        resize_to: Callable[[int], None],
        *,
        id: str | None = None,
    ) -> None:
        """Start empty; `resize_to` makes room for a number of rows."""
        super().__init__(id=id)
        self._freeze = freeze
        self._resize_to = resize_to
        self._frozen: ExitStack | None = None
        """The open context of `FreezeFrame`. None: the screen paints."""
        self._now = clock()
        self._as_of: datetime | None = None
        self._window = RunWindow()
        self._cursor_id: str | None = None
        """The cursor's run; None: there is none, or its row is not loaded."""
        self._row: RunRow | None = None
        """The cursor's run, once it is loaded."""
        self._named: RunRow | RunGroup | None = None
        """The run announced last, or the group."""
        self._asked: tuple[int, int] | None = None
        self._unseen = 0
        """Runs that arrived above the view."""
        self.is_replacing = False
        """Whether the rows of another query are on their way; until they come, keys about rows do nothing."""
        self._notice: Notice | None = None
        self._tail: tuple[SafeText, ...] = ()
        """The text of the line below the last run; the cursor can stand on it."""

    @property
    def count(self) -> int:
        """The number of runs, however many of them are held here."""
        return self._window.runs

    @property
    def gaps(self) -> tuple[CoverageGap, ...]:
        """The gaps that have a line between two runs."""
        return tuple(gap for _, gap in self._window.gaps)

    @property
    def gap(self) -> CoverageGap | None:
        """The gap of the line under the cursor, or None."""
        return self._window.gap(self._cursor)

    @property
    def group(self) -> RunGroup | None:
        """The group whose head is under the cursor, or None."""
        return self._window.head(self._cursor)

    @property
    def group_at(self) -> RunGroup | None:
        """The group that the cursor is in, on its head or on one of its runs."""
        above = [group for number, group in self._window.heads if number <= self._cursor]
        return above[-1] if above else None

    @property
    def is_at_tail(self) -> bool:
        """Whether the cursor is on the line that follows the last run."""
        return bool(self._tail) and self._cursor == self._window.total

    @property
    def is_at_gap(self) -> bool:
        """Whether the cursor is on a line that stands for missing runs."""
        return self.is_at_tail or self.gap is not None

    def show(self, window: RunWindow, request: WindowRequest) -> None:
        """Show rows that were read; the cursor and the visible rows stay on their runs.

        The user may have moved on while the rows were read.
        """
        before, top, cursor_before = self._window, self.scroll_offset.y, self._cursor
        is_sought, was_at_tail = self._cursor_id is not None and self._row is None, self.is_at_tail
        gap_before, group_before = self.gap, self.group_at
        is_found = is_sought and self._cursor_id == request.cursor_id and window.cursor_index is not None
        follows = is_sought or self._cursor in self.visible_rows
        # Remembered, so that the same rows are not requested again.
        self._window, self._asked = window, (request.offset, request.limit)
        self.total = window.total + bool(self._tail)
        self._settle_cursor(window, request, was_at_tail=was_at_tail, gap_before=gap_before, group=group_before)
        self._resize_to(self.total)
        if self.is_replacing:
            self.is_replacing, self._unseen, self.styles.text_opacity = False, 0, 1.0
            # The cursor stays in view: on its run if that is still there, else on the first one.
            self.scroll_rows_to(0 if self._cursor < self.page else max(0, self._cursor - self.page // 2))
            self.post_message(self.Replaced())
        else:
            self._hold_still(window, request, follows=follows)
            if is_found and not self.shows_cursor:
                self.scroll_rows_to(max(0, self._cursor - self.page // 2))
        if self.is_held:
            # These rows may be for an earlier position; those for the current one follow.
            if self._holds_visible_rows():
                self.release()
        elif before.total != window.total or self.scroll_offset.y != top or not before.rows:
            self.refresh()
        else:
            self._repaint_changed(before, cursor_before)
        self._request_rows()

    def counted(self, total: int) -> None:
        """Take the exact number of rows: the first answer may have held only a minimum."""
        if total == self.count:
            return
        self._window, self._asked = replace(self._window, total=total, gaps=()), None
        self._count_rows()
        self._request_rows()

    def explain(self, notice: Notice | None) -> None:
        """Show a notice in place of the rows while there are none."""
        if notice != self._notice:
            self._notice = notice
            if not self.count:
                self.refresh()

    def end_with(self, tail: tuple[SafeText, ...]) -> None:
        """Show the first of these texts that fits on a line below the last run; without texts no such line."""
        before, self._tail = self._tail, tail
        if bool(before) != bool(tail):
            self._count_rows()
            self.put_cursor(self._cursor)
        elif before != tail:
            self.repaint_row(self._window.total)
        for index, _ in self._window.gaps:
            self.repaint_row(index)

    def _count_rows(self) -> None:
        self.total = self._window.total + bool(self._tail)
        self._resize_to(self.total)
        self.refresh()

    def start_over(self, *, follow: bool) -> None:
        """Prepare for other rows: the cursor goes to the first one or else follows its run. The old ones are dimmed."""
        self.hold()
        self.is_replacing = True
        if not follow:
            self._cursor_id = None

    def seek(self, run_id: str) -> None:
        """Move the cursor to this run with the next rows, if it is among them."""
        self._cursor_id, self._row = run_id, None

    @property
    def row(self) -> RunRow | None:
        """The run under the cursor."""
        return self._row

    @property
    def is_row_awaited(self) -> bool:
        """Whether the cursor is on a run that is not loaded."""
        return self._row is None and self._cursor < self._window.total and not (self.gap or self.group)

    def is_loaded(self, below: int) -> bool:
        """Whether the run that is so many rows below the cursor is loaded."""
        return self._window.row(self._cursor + below) is not None

    @property
    def rows_on_show(self) -> tuple[RunRow, ...]:
        """The runs in view, as far as they are loaded."""
        return tuple(row for row in map(self._window.row, self.visible_rows) if row is not None)

    def repaint_runs(self, run_ids: Container[str]) -> None:
        """Repaint the lines of these runs, where they are in view."""
        for index in self.visible_rows:
            row = self._window.row(index)
            if row is not None and row.run_id in run_ids:
                self.repaint_row(index)

    def request(
        self, condition: RunFilter, sort: RunSort, grouping: Grouping | None = None, *, is_fresh: bool = True
    ) -> WindowRequest:
        """Request the visible rows, and a page before and after them."""
        if self.is_replacing:
            return WindowRequest(condition, sort, 0, 3 * self.page, cursor_id=self._cursor_id, grouping=grouping)
        index, run_id = self._anchor() or (0, None)
        key = (*self._around, run_id, index, self._cursor_id, self._cursor)
        return WindowRequest(condition, sort, *key, is_fresh, grouping)

    @property
    def _around(self) -> tuple[int, int]:
        """The first row of the three pages around the view, and their number of rows."""
        return max(0, self.scroll_offset.y - self.page), 3 * self.page

    def _anchor(self) -> tuple[int, str] | None:
        if self.scroll_offset.y == 0:
            return None
        index = self._cursor if self._cursor in self.visible_rows and self._row else self.scroll_offset.y
        row = self._window.row(index)
        return (index, row.run_id) if row else None

    @property
    def is_held(self) -> bool:
        """Whether the screen keeps its frame."""
        return self._frozen is not None

    def hold(self) -> None:
        """Paint nothing until `release`, for `HOLD_S` at most since the first of several calls."""
        if self._frozen is None and self.is_mounted:
            self._frozen = ExitStack()
            self._frozen.enter_context(self._freeze())
            self._frozen.callback(self.set_timer(HOLD_S, self.release).stop)

    def release(self) -> None:
        """Paint again, if the frame was held."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            self.styles.text_opacity = DIMMED if self.is_replacing else 1.0
            frozen.close()
            self.refresh()

    def on_unmount(self) -> None:
        """Release the frame: the screen must not wait for the rows of a table that is gone."""
        self.release()

    def rows_came_into_view(self) -> None:
        """Request missing rows, and forget the unseen runs once the top is in view."""
        if self.scroll_offset.y == 0:
            self._unseen = 0
        self._request_rows()

    def cursor_moved(self) -> None:
        """Announce the run under the cursor."""
        row = self._row = self._window.row(self._cursor)
        self._cursor_id = row.run_id if row else None
        if (named := row or self.group) != self._named and not self.is_row_awaited:
            self._named = named
            # Paint the rows first: showing the run itself may take as long again.
            self.call_after_refresh(self.post_message, self.Highlighted(row))

    def _settle_cursor(
        self,
        window: RunWindow,
        request: WindowRequest,
        *,
        was_at_tail: bool,
        gap_before: CoverageGap | None,
        group: RunGroup | None,
    ) -> None:
        is_sought_since = self._row is None and self._cursor_id not in {None, request.cursor_id}
        if self._cursor_id != request.cursor_id:
            self._cursor += window.shift  # The user moved on while the rows were read.
        elif window.cursor_index is not None:
            self._cursor = window.cursor_index
        elif group is not None and not self.is_replacing:
            at = window.row_of_head(group.name)  # The head of its group.
            self._cursor = self._cursor if at is None else at
        elif self.is_replacing:
            self._cursor = 0
        elif gap_before is not None:
            # The gap is filled: put the cursor on the first run that replaced its line.
            same = (number for number, gap in window.gaps if gap.before == gap_before.before)
            self._cursor = next(same, self._cursor + window.shift)
        elif was_at_tail:
            self._cursor += window.shift  # Further runs replaced the line below the last one.
        self._cursor = min(max(0, self._cursor), max(0, self.total - 1))
        is_known = window.row(self._cursor) is not None or self._cursor >= window.total or self.gap or self.group
        if is_known and not is_sought_since:
            self.cursor_moved()

    def _hold_still(self, window: RunWindow, request: WindowRequest, *, follows: bool) -> None:
        """Scroll so that the visible rows stay where they are, and the cursor stays in view if it was."""
        unseen, top = self._unseen, self.scroll_offset.y
        if request.anchor_id is not None and window.shift:
            unseen += window.shift
            self.scroll_rows_to(top + window.shift)
        elif follows and self._cursor >= top + self.page:
            # New rows above pushed the cursor's run out of the view.
            unseen += self._cursor - self.page + 1 - top
            self.scroll_rows_to(self._cursor - self.page + 1)
        self._unseen = max(0, unseen) if self.scroll_offset.y else 0

    def _request_rows(self) -> None:
        visible, margin = self.visible_rows, self.page // 2
        if not visible or self._window.holds(visible.start - margin, visible.stop - 1 + margin):
            return
        if not self._holds_visible_rows():
            self.hold()
        if self._asked != self._around:
            self._asked = self._around
            self.post_message(self.WindowRequested())

    def _holds_visible_rows(self) -> bool:
        visible = self.visible_rows
        return self._window.holds(visible.start, visible.stop - 1)

    def _repaint_changed(self, before: RunWindow, cursor_before: int) -> None:
        for index in self.visible_rows:
            now = self._window
            lines = ((before.row, now.row), (before.gap, now.gap), (before.head, now.head))
            is_other = any(old(index) != new(index) for old, new in lines)
            if is_other or index in {cursor_before, self._cursor}:
                self.repaint_row(index)
        self.repaint_header()
