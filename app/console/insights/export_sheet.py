"""Where the figures are written to."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from app.console.insights.export import FORMATS
from app.console.sheet import Sheet
from app.console.typed_path import export_problem, typed_path
from app.text import safe_text
from widgets.badges import STYLES, Tone
from widgets.forms.inputs import LineInput


class InsightExport(Sheet[Path | None]):
    """Closes with the file's path; None: nothing is written."""

    CSS = """
    InsightExport {
        align: center middle;
        background: $background 60%;
        #export {
            width: 92%; max-width: 90; height: auto; padding: 1 2; border: round $primary; background: $surface;
            border-title-color: $primary; border-subtitle-color: $foreground 70%;
        }
        LineInput, LineInput:focus { border: none; height: 1; padding: 0 1; background: $panel; }
        Static { height: auto; margin-top: 1; }
    }
    """
    SCOPED_CSS = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel", priority=True)]

    def __init__(self, suggested: Path) -> None:
        """Prepare with a path to begin with."""
        super().__init__()
        self._suggested = suggested
        self._replacing: Path | None = None
        """The file that is there already, once that was said."""

    def compose(self) -> ComposeResult:
        """One field."""
        with Vertical(id="export") as box:
            box.border_title = "Export these figures"
            box.border_subtitle = "esc leaves"
            yield LineInput(str(self._suggested), compact=True, select_on_focus=False)
            yield Static(id="export-note", markup=False)

    def on_mount(self) -> None:
        """The cursor stands behind the path."""
        self._note(".csv or .json, by the name's end · enter writes it", "quiet")
        self.query_one(LineInput).focus()

    def action_leave(self) -> None:
        """Closes and writes nothing."""
        self.dismiss(None)

    @on(Input.Changed)
    def _changed(self) -> None:
        self._replacing = None

    @on(Input.Submitted)
    def _submitted(self, message: Input.Submitted) -> None:
        message.stop()
        path = typed_path(message.value)
        if (why := export_problem(path, FORMATS)) is not None:
            self._note(why, "bad")
        elif path.exists() and path != self._replacing:
            self._replacing = path
            self._note("There is such a file. Enter again replaces it.", "warn")
        else:
            self.dismiss(path)

    def _note(self, text: str, tone: Tone) -> None:
        self.query_one("#export-note", Static).update(Content.styled(safe_text(text), STYLES[tone]))
