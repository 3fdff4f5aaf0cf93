"""Picks one of the configured instructions."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.config import Template
from app.console.sheet import Sheet
from app.text import safe_text


class TemplatePicker(Sheet[str | None]):
    """Ends with the template's instructions, or None."""

    # Not the default style sheet: the console's own says how screens look, and these lie over one.
    CSS = """
    TemplatePicker {
        align: center middle;
        background: $background 60%;
        OptionList {
            width: 70%;
            max-width: 80;
            height: auto;
            max-height: 70%;
            border: round $primary;
            background: $surface;
            text-wrap: nowrap;
            text-overflow: ellipsis;
            &:focus { border: round $primary; }
            & > .option-list--option-highlighted { background: $primary 25%; color: $foreground; text-style: none; }
        }
    }
    """
    SCOPED_CSS = False
    LEAVE = "dismiss(None)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("j", "down", "Down", show=False),
        Binding("k", "up", "Up", show=False),
    ]

    def __init__(self, templates: Sequence[Template]) -> None:
        """Prepare with the templates, in the order of the configuration."""
        super().__init__()
        self._templates = templates

    def compose(self) -> ComposeResult:
        """A name each, with the beginning of its text."""
        picker = OptionList(*(Option(_entry(template)) for template in self._templates))
        picker.border_title = Content("Templates")
        yield picker

    def action_down(self) -> None:
        """The next one."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """The one before."""
        self.query_one(OptionList).action_cursor_up()

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._templates[event.option_index].instructions)


def _entry(template: Template) -> Content:
    beginning = safe_text(" ".join(template.instructions.split()), limit=200)
    return Content.assemble((safe_text(template.name, limit=60), "bold"), "\n", (beginning, "$foreground 70%"))
