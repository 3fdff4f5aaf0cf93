"""By which column the table is sorted."""

from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.console.picker import PickerScreen
from app.console.runs.views import DESCENDING, chosen_order
from storage.records import RunSort
from storage.records.query import SortColumn

ORDERS: Final[tuple[tuple[SortColumn, str, str], ...]] = (
    ("started", "oldest first", "newest first"),
    ("updated", "longest unchanged first", "latest change first"),
    ("took", "shortest first", "longest first, what goes on above"),
    ("status", "a to z", "z to a"),
    ("repository", "a to z", "z to a"),
    ("branch", "a to z", "z to a"),
    ("run", "a to z", "z to a"),
)
"""What each column's two orders mean, ascending and descending."""


class OrderPicker(PickerScreen[RunSort]):
    """Closes with the order; choosing the column that it is sorted by turns it round."""

    TITLE_TEXT = "Sort by"
    HINT = "enter sorts; the current one once more turns it round"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor(1)", "down", show=False, id="picker.cursor_down"),
        Binding("k", "cursor(-1)", "up", show=False, id="picker.cursor_up"),
    ]

    def __init__(self, sort: RunSort) -> None:
        """Prepare with the order as it is."""
        super().__init__()
        self._sort = sort

    def compose_choice(self) -> ComposeResult:
        """The columns."""
        yield OptionList(*(Option(self._entry(*order)) for order in ORDERS))

    def on_mount(self) -> None:
        """The cursor stands on the current one."""
        self.query_one(OptionList).highlighted = [column for column, _, _ in ORDERS].index(self._sort.column)

    def action_cursor(self, step: int) -> None:
        """Moves the cursor."""
        columns = self.query_one(OptionList)
        (columns.action_cursor_down if step > 0 else columns.action_cursor_up)()

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(chosen_order(ORDERS[message.option_index][0], self._sort))

    def _entry(self, column: SortColumn, ascending: str, descending: str) -> Content:
        is_current = column == self._sort.column
        is_down = self._sort.descending if is_current else column in DESCENDING
        arrow = ("↓" if is_down else "↑") if is_current else " "
        return Content.assemble(
            (f"{column:<12}", "bold" if is_current else ""),
            (f"{arrow} ", "$accent"),
            (descending if is_down else ascending, "$foreground 70%"),
        )
