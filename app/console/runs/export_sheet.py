"""Where runs are written to."""

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import Input, Static

from app.console.export_sheet import export_problem, typed_path
from app.console.runs.export import FORMATS, Export, ExportError, write
from app.console.sheet import PickerScreen
from app.text import safe_text
from storage.errors import StorageError
from widgets.badges import STYLES, Tone
from widgets.forms.inputs import LineInput


class RunExportScreen(PickerScreen[str]):
    """Closes with what was written, in words, once it is written."""

    HINT = ".csv, .ndjson or .json, by the name's end · enter writes"
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, what: Export, suggested: Path) -> None:
        """Prepare.

        Args:
            what: Which runs.
            suggested: A path to begin with.
        """
        super().__init__()
        self._what = what
        self._suggested = suggested
        self._replacing: Path | None = None
        """The file that is there already, once that was said."""

    @property
    def title_text(self) -> str:
        """What is written."""
        kind = "marked" if self._what.marks else "matching"
        return f"Export {self._what.count:,} {kind} {'run' if self._what.count == 1 else 'runs'}"

    def compose_choice(self) -> ComposeResult:
        """One field."""
        yield LineInput(str(self._suggested), compact=True, select_on_focus=False)
        yield Static(markup=False, id="picker-note")

    def on_mount(self) -> None:
        """The cursor stands behind the path."""
        self.query_one(LineInput).focus()

    @on(Input.Changed)
    def _on_typed(self) -> None:
        self._replacing = None
        self._note("", "quiet")

    @on(Input.Submitted)
    def _on_entered(self, message: Input.Submitted) -> None:
        path = typed_path(message.value)
        if (why := export_problem(path, FORMATS)) is not None:
            self._note(why, "bad")
        elif path.exists() and path != self._replacing:
            self._replacing = path
            self._note("There is such a file. Enter again replaces it.", "warn")
        else:
            self.run_worker(self._write(path), exclusive=True, group="export")

    async def _write(self, path: Path) -> None:
        self._note("Writing…", "busy")
        try:
            count = await write(self._what, path)
        except (ExportError, StorageError) as error:
            self._note(str(error), "bad")
        else:
            self.dismiss(f"{count:,} runs written to {path}")

    def _note(self, text: str, tone: Tone) -> None:
        self.query_one("#picker-note", Static).update(Content.styled(safe_text(text), STYLES[tone]))
