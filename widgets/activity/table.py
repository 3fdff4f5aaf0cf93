"""The table of what happened, newest first."""

from datetime import datetime
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from widgets.activity.formatting import Entry, line_of
from widgets.line_table import GAP, Line, LineColumn, LineTable

_OUTCOME: Final = LineColumn("outcome", 0, 13)
_WHAT: Final = LineColumn("what", 1, 19)
_BY: Final = LineColumn("by", 4, 14)
_WHEN: Final = LineColumn("when", 5, 9)
_RESULT_FROM: Final = 100
"""Narrower tables leave the result, and who asked, to the facts beside them."""


class ActivityTable(LineTable[Entry]):
    """Writes and stretches of polls, a line each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "choose",
            "open",
            key_display="enter",
            tooltip="The run, or the room, that it is about",
            id="activity.open",
        )
    ]

    def columns_for(self, width: int) -> tuple[LineColumn, ...]:
        """Outcome, what, about, when; result and by whom where there is room."""
        fixed = (_OUTCOME, _WHAT, _WHEN)
        rest = width - sum(column.width + GAP for column in fixed) - GAP
        if width < _RESULT_FROM:
            return (_OUTCOME, _WHAT, LineColumn("about", 2, max(8, rest)), _WHEN)
        rest -= _BY.width + 2 * GAP
        about = rest * 3 // 5
        return (
            _OUTCOME,
            _WHAT,
            LineColumn("about", 2, about),
            LineColumn("result", 3, rest - about),
            _BY,
            _WHEN,
        )

    def key_of(self, item: Entry) -> str:
        """The action's id, or the stretch's."""
        return item.key

    def line_of(self, item: Entry, now: datetime) -> Line:
        """How it reads now."""
        return line_of(item, now)
