"""Lists of rows of any height between titles, redrawn for their width; most rows lead to something."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets.option_list import Option

from widgets.kit.choice_lists import Options


class LeadRow(Struct, frozen=True):
    """A row, or a title."""

    content: Content
    key: str = ""
    """Identifies the row across updates; empty: the cursor skips it."""
    leads: bool = False
    """Whether enter opens something."""


Draw = Callable[[int], Sequence[LeadRow]]
"""Makes the rows for a width in cells."""


class LeadList(Options):
    """Titles and rows; the cursor stays on its row, or on the first one."""

    DEFAULT_CSS = """
    LeadList, LeadList:focus {
        height: 1fr; border: none; padding: 0 1; background: $background; background-tint: $foreground 0%;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable; scrollbar-background: $background;
        scrollbar-color: $panel;
        & > .option-list--option-highlighted {
            background: $panel; color: $foreground; text-style: none;
        }
        & > .option-list--option-disabled { color: $foreground; }
    }
    LeadList:focus > .option-list--option-highlighted { background: $block-cursor-blurred-background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "select", "its runs", key_display="enter", tooltip="Show the runs of this row", id="leads.open"
        )
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._draw: Draw = lambda _: ()
        self._rows: Sequence[LeadRow] = ()
        self._sought = ""

    @property
    def row(self) -> LeadRow | None:
        """The row under the cursor; None: there is none."""
        return None if self.highlighted is None else self._rows[self.highlighted]

    def show(self, draw: Draw) -> None:
        """Show these rows."""
        self._draw = draw
        self.on_resize()

    def seek(self, key: str) -> None:
        """Put the cursor on the row with this key, now or once it is there."""
        self._sought = key
        self._find(key)

    def on_resize(self) -> None:
        """Draw for the new width; unchanged lines are not painted again."""
        before, here, top = self._rows, self.row, self.scroll_offset.y
        rows = self._rows = self._draw(max(1, self.scrollable_content_region.width))
        if [row.key for row in before] == [row.key for row in rows]:
            for index, (old, new) in enumerate(zip(before, rows, strict=True)):
                if not old.content.is_same(new.content):
                    self.replace_option_prompt_at_index(index, new.content)
            return
        is_first = here is None or here.key == next(row.key for row in before if row.key)
        near = self.highlighted or 0
        self.set_options(Option(row.content, row.key or None, disabled=not row.key) for row in rows)
        self.scroll_to(y=top, animate=False, force=True)
        indexes = [index for index, row in enumerate(rows) if row.key]
        if here is None or is_first:
            self.highlighted = indexes[0] if indexes else None
        elif not self._find(here.key) and indexes:
            self.highlighted = min(indexes, key=lambda index: abs(index - near))
        self._find(self._sought)

    def _find(self, key: str) -> bool:
        index = next((index for index, row in enumerate(self._rows) if key and row.key == key), None)
        if index is None:
            return False
        self._sought = "" if key == self._sought else self._sought
        self.highlighted = index
        return True

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a double click opens it."""
        event.prevent_default()
        index = event.style.meta.get("option")
        if index is not None and self._rows[index].key:
            self.highlighted = index
            if event.chain > 1:
                self.action_select()

    def action_first(self) -> None:
        """Move the cursor to the first row, and show the titles above it."""
        super().action_first()
        self.scroll_home(animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable enter on rows that open nothing; if none does, offer no key."""
        if action == "select":
            is_possible = self.row is not None and self.row.leads
            return is_possible or (None if any(row.leads for row in self._rows) else False)
        return super().check_action(action, parameters)
