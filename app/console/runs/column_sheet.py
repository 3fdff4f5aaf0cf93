"""The sheet of the table's columns: which are shown, in which order, and how wide."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from app.console.sheets import PickerScreen
from storage.records import RunSort
from widgets.badges import STYLES
from widgets.runs.columns import COLUMNS, ColumnChoice


class ColumnList(Widget):
    """Draws the columns: whether each is shown, and its width."""

    def __init__(self, choice: ColumnChoice, sort: RunSort) -> None:
        super().__init__()
        self.choice = choice
        self._sort = sort
        self.cursor = 0

    @property
    def key(self) -> str:
        """The column under the cursor."""
        return self.choice.every_key[self.cursor]

    def show(self, choice: ColumnChoice) -> None:
        """Show another choice; the cursor stays on its column."""
        key = self.key
        self.choice = choice
        self.cursor = choice.every_key.index(key)
        self.refresh()

    def render(self) -> Content:
        """A line for each column."""
        return Content("\n").join(self._line(index, key) for index, key in enumerate(self.choice.every_key))

    def _line(self, index: int, key: str) -> Content:
        column = next(column for column in COLUMNS if column.key == key)
        shown = key in self.choice.shown
        width = self.choice.width(key)
        here = " on $block-cursor-blurred-background" if index == self.cursor else ""
        arrow = ("↓" if self._sort.descending else "↑") if column.sort == self._sort.column else " "
        notes = f"{f'{width} wide' if width else 'as wide as fits':<18}{'stays in view' if column.frozen else '':<14}"
        return Content.assemble(
            ("▌ " if here else "  ", f"$accent{here}"),
            ("■ " if shown else "□ ", f"{'$accent' if shown else '$foreground 70%'}{here}"),
            (f"{column.name:<12}{arrow} ", f"$foreground{here}"),
            (notes, f"{STYLES['quiet']}{here}"),
            (" " * max(0, self.size.width - 18 - len(notes)), here),
        )


class ColumnPicker(PickerScreen[ColumnChoice]):
    """Applies each change at once; closes with the choice, or with None after restoring the columns."""

    TITLE_TEXT = "Columns"
    HINT = "space shows · J K move · < > width · = fits · enter keeps"
    CLICKABLE: ClassVar[Mapping[str, str]] = {"space shows": "switch", "= fits": "fit", "enter keeps": "keep"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "cursor(1)", "down", show=False, id="columns.down"),
        Binding("up,k", "cursor(-1)", "up", show=False, id="columns.up"),
        Binding("space", "switch", "show or hide", id="columns.toggle"),
        Binding("shift+down,J", "shift(1)", "move down", id="columns.move_down"),
        Binding("shift+up,K", "shift(-1)", "move up", id="columns.move_up"),
        Binding("greater_than_sign,right,l", "size(2)", "wider", id="columns.wider"),
        Binding("less_than_sign,left,h", "size(-2)", "narrower", id="columns.narrower"),
        Binding("equals_sign", "fit", "as wide as fits", id="columns.fit"),
        Binding("0", "usual", "as at first", id="columns.usual"),
        Binding("enter", "keep", "keep", id="columns.keep"),
    ]

    def __init__(
        self,
        choice: ColumnChoice,
        sort: RunSort,
        width_of: Callable[[str], int],
        apply: Callable[[ColumnChoice], None],
    ) -> None:
        super().__init__()
        self._before = choice
        self._sort = sort
        self._width_of = width_of
        self._apply = apply

    def compose_choice(self) -> ComposeResult:
        """The columns."""
        yield ColumnList(self._before, self._sort)

    @property
    def _list(self) -> ColumnList:
        return self.query_one(ColumnList)

    @on(events.Click)
    def _on_list_clicked(self, event: events.Click) -> None:
        """Show or hide the column under the pointer."""
        widget, region = self.get_widget_at(event.screen_x, event.screen_y)
        if isinstance(widget, ColumnList) and event.screen_y - region.y < len(COLUMNS):
            widget.cursor = event.screen_y - region.y
            self.action_switch()

    def action_cursor(self, step: int) -> None:
        """Move the cursor, around the ends."""
        self._list.cursor = (self._list.cursor + step) % len(COLUMNS)
        self._list.refresh()

    def action_switch(self) -> None:
        """Show or hide the column."""
        self._change(self._list.choice.toggled(self._list.key))

    def action_shift(self, step: int) -> None:
        """Move the column among the shown ones."""
        order = [column.key for column in self._list.choice.columns]
        if self._list.key in order:
            there = order.index(self._list.key) + step
            if 0 <= there < len(order):
                self._change(self._list.choice.moved(self._list.key, order[there]))

    def action_size(self, cells: int) -> None:
        """Change the column's width."""
        width = self._list.choice.width(self._list.key) or self._width_of(self._list.key)
        self._change(self._list.choice.sized(self._list.key, width + cells))

    def action_fit(self) -> None:
        """Make the column as wide as its text."""
        self._change(self._list.choice.sized(self._list.key, None))

    def action_usual(self) -> None:
        """Go back to the default columns."""
        self._change(ColumnChoice())

    def action_keep(self) -> None:
        """Close with the choice."""
        self.dismiss(self._list.choice)

    def action_leave(self) -> None:
        """Restore the columns and close."""
        self._apply(self._before)
        self.dismiss(None)

    def _change(self, choice: ColumnChoice) -> None:
        self._list.show(choice)
        self._apply(choice)
