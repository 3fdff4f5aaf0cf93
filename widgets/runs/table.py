"""The run table: it draws any number of runs, holding only those near the view.

Once the user has moved in it, the cursor and the visible rows stay on their runs when others arrive above. Until then
the table stays at its top.
"""

from collections.abc import Container, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from app.engine.text import SafeText
from storage.records import FIELD_BY_NAME, CoverageGap, RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from storage.records.query import Grouping, RunGroup
from widgets.kit import hidden
from widgets.kit.cursor_view import HEADER, CursorView
from widgets.runs.columns import (
    HIDDEN_IF_EMPTY,
    MAX_AGE_LAG,
    ColumnArrangement,
    ColumnChoice,
    RowFacts,
    RowTimes,
    ages_slowly,
    row_times,
)
from widgets.runs.lines import PARTS, TableRenderer, unseen_note

WAITS_S: Final = 0.05
"""How long the screen holds its frame for requested rows; a longer wait is shown."""
STALE: Final = 0.75
"""How bright rows are that the service no longer confirms; they must stay readable during an outage."""


class Position(Struct, frozen=True):
    """Where the cursor and the view are, and the run that the cursor stays with."""

    cursor: int
    top: int
    """The first visible row."""
    page: int
    """How many rows fit into the view."""
    unseen: int = 0
    """Runs that arrived above the view."""
    run_id: str | None = None
    """The cursor's run; None on other rows, or if the row is not loaded."""
    is_sought: bool = False
    """Whether the cursor is still to go to that run."""
    is_pinned: bool = False
    """Whether the cursor stays with its run even at the top, because the user moved it there."""

    def after(
        self, before: RunWindow, window: RunWindow, request: WindowRequest, total: int, *, is_replacing: bool
    ) -> "Position":
        """The position once `window` was read, in a table of `total` rows; `is_replacing`: for another query.

        The user may have moved on while the rows were read.
        """
        cursor = min(max(0, self._cursor_in(before, window, request, is_replacing=is_replacing)), max(0, total - 1))
        last_top = max(0, total - self.page)
        centred = max(0, cursor - self.page // 2)
        is_sought = self.is_sought and self.run_id != request.cursor_id
        is_found = self.is_sought and not is_sought and window.cursor_index is not None
        if is_replacing:
            # The cursor stays in view: on its run if that is still there, otherwise on the first one.
            top = 0 if cursor < self.page else min(centred, last_top)
            return replace(self, cursor=cursor, top=top, unseen=0, is_sought=is_sought)
        # The visible rows stay where they are, and the cursor stays in view if it was.
        top = self.top
        is_visible = self.top <= self.cursor < self.top + self.page
        if request.anchor_id is not None and window.shift:
            top += window.shift
        elif is_visible and not is_found:
            # New rows above may push the cursor's run out of the view.
            top = max(top, cursor - self.page + 1)
        unseen = self.unseen + top - self.top
        top = min(max(0, top), last_top)
        unseen = max(0, unseen) if top else 0
        if is_found and not top <= cursor < top + self.page:
            top = min(centred, last_top)
        return replace(self, cursor=cursor, top=top, unseen=unseen, is_sought=is_sought)

    def _cursor_in(self, before: RunWindow, window: RunWindow, request: WindowRequest, *, is_replacing: bool) -> int:
        if self.run_id != request.cursor_id:
            return self.cursor + window.shift  # The user moved on while the rows were read.
        if not (self.is_pinned or is_replacing or self.top):
            return 0
        if window.cursor_index is not None:
            return window.cursor_index
        if is_replacing:
            return 0
        if (group := before.group_at(self.cursor)) is not None:
            heads = (at for at, head in window.heads if head.name == group.name and not head.others)
            return next(heads, self.cursor)
        is_at_gap = before.gap(self.cursor) is not None
        above = before.row(self.cursor - 1) if is_at_gap else None
        if above is not None and (at := window.row_of_run(above.run_id)) is not None:
            # Below the same run: on the gap, or on the first run that replaced its line. While the gap is filled, its
            # line is below the runs that have come.
            return at + 1
        # Further runs may have replaced the line below the last one.
        if is_at_gap or self.cursor == before.total:
            return self.cursor + window.shift
        return self.cursor


def chosen_order(column: str, before: RunSort) -> RunSort:
    """The order after choosing a column; choosing the current one reverses it."""
    if column == before.column:
        return RunSort(column, not before.descending)
    return RunSort(column, FIELD_BY_NAME[column].begins_descending)


class LatestMessage(Message):
    """A message that replaces earlier ones of its kind."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, type(self))


class RunTable(CursorView, can_focus=True):
    """Draws runs, one a line, under titles that sort.

    It holds the rows around the view, asks for others with `WindowRequested` and receives them through `show`.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"run-table--{part}" for part in PARTS}

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("right", "sideways(1)", "columns to the right", id="table.right"),
        hidden("left", "sideways(-1)", "columns to the left", id="table.left"),
        hidden("enter", "choose", "open", id="table.open"),
        hidden("space", "mark", "mark", tooltip="Mark the run for an action on several", id="table.mark"),
        hidden("shift+down,J", "stretch(1)", "mark down", id="table.mark_down"),
        hidden("shift+up,K", "stretch(-1)", "mark up", id="table.mark_up"),
    ]

    sort: reactive[RunSort] = reactive(RunSort)
    words: reactive[tuple[str, ...]] = reactive(())
    """The words of the search, case-folded, which are highlighted."""

    @dataclass
    class Chosen(Message):
        """A run, a line for missing runs or the head of a group was opened, with enter or the mouse."""

        entry: RunRow | CoverageGap | RunGroup | None
        """None: the line for missing runs below the last run."""

    @dataclass
    class SortRequested(Message):
        """A column's title was clicked."""

        sort: RunSort

    class Marked(Message):
        """The marks changed."""

    class WindowRequested(LatestMessage):
        """The table needs rows that it does not hold, as its `request` describes."""

    class Highlighted(LatestMessage):
        """The cursor moved to another run, group or gap."""

    class Refilled(Message):
        """Empty columns got their first values and became visible."""

    class Replaced(Message):
        """The rows of another query are on show."""

    def __init__(
        self, now: datetime, choice: ColumnChoice | None = None, *, confirmed_for: timedelta = timedelta.max
    ) -> None:
        """Start empty; a run that was not confirmed for `confirmed_for` is drawn quietly."""
        super().__init__()
        self._confirmed_for = confirmed_for
        self._now = now
        self._as_of: datetime | None = None
        self.window = RunWindow()
        self._cursor_id: str | None = None
        """The cursor's run; None on other rows, or if the row is not loaded."""
        self.row: RunRow | None = None
        self._is_moved = False
        """Whether the user moved the cursor, which pins it to its run; going to the first row unpins it."""
        self._named: RunRow | RunGroup | None = None
        """The run announced last, or the group."""
        self._asked: tuple[int, int] | None = None
        self._unseen = 0
        """Runs that arrived above the view."""
        self.is_replacing = False
        """Whether the rows of another query are on their way; until they come, keys about rows do nothing."""
        self._kept_frame: ExitStack | None = None
        """Ends the wait for rows, during which the screen holds its frame; None while it paints."""
        self._missing: Mapping[CoverageGap | None, tuple[SafeText, ...]] = {}
        """The lines for missing runs, by gap; None: the one below the last run."""
        self.columns = ColumnArrangement(choice or ColumnChoice())
        self.stuck: frozenset[str] = frozenset()
        """The runs that take far longer than usual."""
        self.profile_times: dict[str, tuple[timedelta, datetime | None]] = {}
        """How far the clock of a profile's runs is ahead, and `as_of` by that clock; others: as of the last tick."""
        self.marks: dict[str, None] = {}
        """The marked runs by id, in the order of marking: they stay marked while a filter hides them."""
        self._range: list[str] = []
        """The runs marked one after the other, from the first one."""
        self._painted: dict[int, RowTimes] = {}
        self._aged, self._aged_at = self.window, self._now
        self._renderer: TableRenderer | None = None

    @property
    def group(self) -> RunGroup | None:
        return self.window.head(self.cursor)

    @property
    def is_at_gap(self) -> bool:
        """Whether the cursor is on a line for missing runs, that below the last run included."""
        is_last = None in self._missing and self.cursor == self.window.total
        return is_last or self.window.gap(self.cursor) is not None

    def show(self, window: RunWindow, request: WindowRequest) -> None:
        """Show rows that were read; the cursor and the visible rows stay on their runs."""
        before = self.window
        was_replacing = self.is_replacing
        self.window = window
        # Decide where the cursor and the view go.
        is_sought = self._cursor_id is not None and self.row is None
        place = self.cursor, self.scroll_offset.y, self.page, self._unseen
        position = Position(*place, self._cursor_id, is_sought, self._is_moved)
        self.total = window.total + (None in self._missing)
        target = position.after(before, window, request, self.total, is_replacing=was_replacing)
        self._make_room()
        # Remembered, so that the same rows are not requested again.
        self._asked = (request.offset, request.limit)
        self.cursor = target.cursor
        if self._holds_cursor and not target.is_sought:
            self.cursor_moved()
        self.resize_to(self.total)
        if was_replacing:
            self.is_replacing = False
            self.styles.text_opacity = 1.0
            self.post_message(self.Replaced())
        if target.top != position.top:
            self.scroll_rows_to(target.top)
        self._unseen = target.unseen
        # Decide what to repaint: everything if the view moved or rows are gone, otherwise only the lines that differ.
        if was_replacing or before.total > window.total or target.top != position.top or not before.rows:
            self.refresh()
        else:
            others = {position.cursor, target.cursor, before.total, window.total}
            lines = ((before.row, window.row), (before.gap, window.gap), (before.head, window.head))
            for index in self.visible_rows:
                if index in others or any(old(index) != new(index) for old, new in lines):
                    self.repaint_row(index)
            self.repaint_header()
        self._request_rows()
        if self._holds_visible_rows:
            self._paint_again()

    def set_total(self, total: int) -> None:
        """Take the exact number of rows: the first answer may have held only a minimum."""
        if total != self.window.runs:
            self.window = replace(self.window, total=total, gaps=())
            self._asked = None
            self._count_rows()
            self._request_rows()

    def show_missing(self, texts: Mapping[CoverageGap | None, tuple[SafeText, ...]]) -> None:
        """Show the lines of missing runs, the first text of each that fits; the one of None below the last run."""
        before = self._missing
        self._missing = texts
        if (None in before) != (None in texts):
            self._count_rows()
            super().put_cursor(self.cursor)
        elif before != texts:
            for index in (*(number for number, _ in self.window.gaps), self.window.total):
                self.repaint_row(index)

    def _count_rows(self) -> None:
        self.total = self.window.total + (None in self._missing)
        self.resize_to(self.total)
        self.scroll_y = self.validate_scroll_y(self.scroll_y)
        self.refresh()

    def start_over(self, *, follow: bool) -> None:
        """Prepare for other rows: the cursor goes to the first one or follows its run. The old ones are dimmed."""
        self.is_replacing = True
        self._keep_frame()
        if not follow:
            self._cursor_id, self._is_moved = None, False

    def _keep_frame(self) -> None:
        """Hold back painting until the rows arrive, at most `WAITS_S`: a frame without them would only flicker."""
        if self._kept_frame is None and self.is_running:
            self._kept_frame = ExitStack()
            self._kept_frame.enter_context(self.app.batch_update())
            self._kept_frame.callback(self.set_timer(WAITS_S, self._paint_again).stop)

    def _paint_again(self) -> None:
        frame = self._kept_frame
        self._kept_frame = None
        if frame is not None:
            opacity = 1.0 if self._as_of is None else STALE
            self.styles.text_opacity = 0.5 if self.is_replacing else opacity
            frame.close()
            self.refresh()

    def on_unmount(self) -> None:
        """Let the screen paint again, since a removed table never gets its rows."""
        self._paint_again()

    def seek(self, run_id: str) -> None:
        """Move the cursor to this run with the next rows, if it is among them."""
        self._cursor_id = run_id
        self.row = None
        self._is_moved = True

    def put_cursor(self, index: int) -> None:
        """Put the cursor on a row; it stays on its run."""
        self._is_moved = True
        super().put_cursor(index)

    def action_first(self) -> None:
        """Move the cursor to the first row, where it stays while runs change."""
        super().action_first()
        self._is_moved = False

    @property
    def _holds_cursor(self) -> bool:
        at = self.cursor
        window = self.window
        return at >= window.total or bool(window.row(at) or window.gap(at) or window.head(at))

    @property
    def rows_on_show(self) -> tuple[RunRow, ...]:
        """The runs in view, as far as they are loaded."""
        return tuple(row for row in map(self.window.row, self.visible_rows) if row is not None)

    def _repaint_runs(self, run_ids: Container[str]) -> None:
        for index in self.visible_rows:
            row = self.window.row(index)
            if row is not None and row.run_id in run_ids:
                self.repaint_row(index)

    def request(
        self, condition: RunFilter, sort: RunSort, grouping: Grouping | None = None, *, is_fresh: bool = True
    ) -> WindowRequest:
        """Request the visible rows, and a page before and after them."""
        if self.is_replacing:
            return WindowRequest(condition, sort, 0, 3 * self.page, cursor_id=self._cursor_id, grouping=grouping)
        anchor: tuple[str | None, int] = None, 0
        if top := self.scroll_offset.y:
            index = self.cursor if self.cursor in self.visible_rows and self.row else top
            anchor = (row.run_id, index) if (row := self.window.row(index)) is not None else anchor
        return WindowRequest(condition, sort, *self._around, *anchor, self._cursor_id, self.cursor, is_fresh, grouping)

    @property
    def _around(self) -> tuple[int, int]:
        return max(0, self.scroll_offset.y - self.page), 3 * self.page

    def cursor_moved(self) -> None:
        row = self.row = self.window.row(self.cursor)
        self._cursor_id = row.run_id if row else None
        if (entry := row or self.group) != self._named and self._holds_cursor:
            self._named = entry
            # Paint the rows first: showing the run itself may take as long again.
            self.call_after_refresh(self.post_message, self.Highlighted())

    def _request_rows(self) -> None:
        visible = self.visible_rows
        margin = self.page // 2
        if not visible or self.window.holds(visible.start - margin, visible.stop - 1 + margin):
            return
        if not self._holds_visible_rows:
            self._keep_frame()
        if self._asked != self._around:
            self._asked = self._around
            self.post_message(self.WindowRequested())

    @property
    def _holds_visible_rows(self) -> bool:
        visible = self.visible_rows
        return self.window.holds(visible.start, visible.stop - 1)

    def tick(self, now: datetime, as_of: datetime | None = None) -> None:
        """Update the times; active runs are timed up to `as_of`, if the service has stopped answering then."""
        may_lag = (
            self._aged is self.window and as_of == self._as_of and timedelta(0) <= now - self._aged_at < MAX_AGE_LAG
        )
        if not may_lag:
            self._aged = self.window
            self._aged_at = now
        if (as_of is None) != (self._as_of is None) and not self.is_replacing:
            self.styles.text_opacity = 1.0 if as_of is None else STALE
        self._now = now
        self._as_of = as_of
        for index in self.visible_rows:
            row = self.window.row(index)
            if (
                row is not None
                and not (may_lag and ages_slowly(row, now))
                and self._painted.get(index) != self._times(row)
            ):
                self.repaint_row(index)

    def set_columns(self, choice: ColumnChoice | None = None, *, is_limited: bool | None = None) -> None:
        """Change the columns, their order and widths, or whether they stop growing at the width kept next to a pane."""
        columns = self.columns
        before = columns.choice, columns.is_limited
        columns.choice = choice or columns.choice
        columns.is_limited = columns.is_limited if is_limited is None else is_limited
        if (columns.choice, columns.is_limited) != before:
            self._lay_out_again()

    def _lay_out_again(self) -> None:
        self.resize_to(self.total)
        self.refresh()

    @property
    def ample_width(self) -> int:
        """The width of all columns and the scroll bar when a pane is next to them."""
        return self.columns.ample_width + self.styles.scrollbar_size_vertical

    def mark_stuck(self, run_ids: frozenset[str]) -> None:
        changed = self.stuck ^ run_ids
        self.stuck = run_ids
        self._repaint_runs(changed)

    def summarize(self, row: RunRow) -> None:
        """Show new facts about a run, if it is held in the state that it had then."""

        def learnt(held: RunRow) -> RunRow:
            is_same = (held.run_id, held.status, held.updated_at) == (row.run_id, row.status, row.updated_at)
            return row if is_same else held

        self.window = replace(self.window, rows=tuple(map(learnt, self.window.rows)))
        self.row = learnt(self.row) if self.row else None
        self._make_room()
        self._repaint_runs((row.run_id,))

    def _make_room(self) -> None:
        rows = self.window.rows
        columns = self.columns
        filled = columns.filled | {key for key in HIDDEN_IF_EMPTY if any(getattr(row.summary, key) for row in rows)}
        if filled != columns.filled:
            columns.filled = filled
            self._lay_out_again()
            self.post_message(self.Refilled())

    def mark(self, run_ids: Iterable[str], *, is_marked: bool = True) -> None:
        self._range, changed = [], dict.fromkeys(run_ids)
        others = {run_id: None for run_id in self.marks if run_id not in changed}
        self.marks = self.marks | changed if is_marked else others
        self.refresh()
        self.post_message(self.Marked())

    @property
    def shows_unconfirmed(self) -> bool:
        """Whether, as of the last read, a visible row had not been confirmed for a long time."""
        return any(not times.is_live for times in self._painted.values())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self.is_replacing and action != "sideways":
            return False
        return super().check_action(action, parameters)

    def action_sideways(self, columns: int) -> None:
        x = self.scroll_offset.x
        if later := [stop for stop in self.columns.layout.stops if (stop > x if columns > 0 else stop < x)]:
            self.scroll_to(x=later[0 if columns > 0 else -1], animate=False, force=True)

    def action_choose(self) -> None:
        if self.is_at_gap:
            self.post_message(self.Chosen(self.window.gap(self.cursor)))
        elif (entry := self.group or self.row) is not None:
            self.post_message(self.Chosen(entry))

    def action_mark(self) -> None:
        """Mark or unmark the run under the cursor, and move on to the next one."""
        if self.row is not None:
            self.mark((self.row.run_id,), is_marked=self.row.run_id not in self.marks)
            self.action_move(1)

    def action_stretch(self, rows: int) -> None:
        """Mark the run under the cursor and the next one; going back unmarks."""
        row = self.row
        target = self.window.row(self.cursor + rows)
        # Stop where rows are missing: a range never skips a run.
        if row is not None and target is not None:
            ids = self._range if self._range[-1:] == [row.run_id] else [row.run_id]
            is_back = ids[-2:-1] == [target.run_id]
            self.mark(ids[-1:] if is_back else (row.run_id, target.run_id), is_marked=not is_back)
            self._range = ids[:-1] if is_back else [*ids, target.run_id]
            self.action_move(rows)

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()
        if event.y < HEADER:
            layout = self.columns.layout
            placed = layout.at(event.x if event.x < layout.frozen_width else event.x + self.scroll_offset.x)
            if self._unseen and event.x >= self.scrollable_content_region.width - len(unseen_note(self._unseen)) - 1:
                self.action_first()
            elif placed is not None and placed.column.title in FIELD_BY_NAME:
                self.post_message(self.SortRequested(chosen_order(placed.column.title, self.sort)))
            return
        index = self.row_at(event.y - HEADER)
        if index >= self.total or self.is_replacing:
            return
        self.put_cursor(index)
        if event.ctrl and (row := self.window.row(index)) is not None:
            self.mark((row.run_id,), is_marked=row.run_id not in self.marks)
        elif event.chain > 1 or self.is_at_gap or self.group is not None:
            self.action_choose()

    def resize_to(self, total: int) -> None:
        self.columns.fit(self.scrollable_content_region.width)
        before = self.virtual_size
        size = Size(self.columns.layout.width, total + HEADER)
        if self.show_vertical_scrollbar and size.width == before.width:
            # The bar is always there: other rows change it alone, and Textual would lay out the whole screen.
            self.set_reactive(RunTable.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.virtual_size = size

    def rows_came_into_view(self) -> None:
        """Request missing rows, and forget the times of those that left the view."""
        if self.scroll_offset.y == 0:
            self._unseen = 0
        self._request_rows()
        self._painted = {index: self._painted[index] for index in self.visible_rows if index in self._painted}

    def on_resize(self) -> None:
        self.resize_to(self.total)
        super().put_cursor(self.cursor)
        self._request_rows()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._renderer = None

    def render_line(self, y: int) -> Strip:
        renderer = self._renderer = self._renderer or TableRenderer.of(self)
        view = self.scrollable_content_region.size
        if view.width != self.columns.width:
            # The first frame is painted before on_resize: its columns would jump with the second.
            self.columns.fit(view.width)
        layout = self.columns.layout
        if y < HEADER:
            return renderer.header(layout, self.sort, self._unseen, view.width, self.scroll_offset.x)
        index = self.scroll_offset.y + y - HEADER
        gap = self.window.gap(index)
        at_cursor = index == self.cursor
        cursor_style = renderer.styles["cursor" if self.has_focus else "cursor-resting"]
        ground = cursor_style if at_cursor else renderer.base
        if gap or (index == self.window.total and None in self._missing):
            texts = self._missing.get(gap, (SafeText("…"),))
            return renderer.missing(texts, view.width, ground, at_cursor=at_cursor)
        if head := self.window.head(index):
            return renderer.head(head, view.width, ground, at_cursor=at_cursor)
        if not self.window.runs:
            return renderer.notice(self.notice, y - HEADER, view.width, view.height - HEADER)
        if index >= self.total:
            return Strip.blank(view.width, renderer.base)
        row = self.window.row(index)
        if row is None:
            return renderer.placeholder(layout, view.width, at_cursor=at_cursor)
        times = self._painted[index] = self._times(row)
        facts = RowFacts(row, times, row.run_id in self.stuck)
        place = (layout, view.width, self.scroll_offset.x)
        is_marked = row.run_id in self.marks
        return renderer.row(facts, self.words, *place, ground, at_cursor=at_cursor, is_marked=is_marked)

    def _times(self, row: RunRow) -> RowTimes:
        ahead, as_of = self.profile_times.get(row.profile, (timedelta(0), self._as_of))
        return row_times(row, self._now + ahead, as_of, self._confirmed_for)
