"""The sheet that asks for the file of an export."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from app.console.sheets import PickerScreen, SheetNote
from storage.errors import StorageError
from widgets.forms.inputs import LineInput


class ExportScreen(PickerScreen[str]):
    """Writes the file and closes with the result as text."""

    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(
        self, title: str, suggested: Path, formats: Sequence[str], write: Callable[[Path], Awaitable[str]]
    ) -> None:
        """Prepare; `write` writes the file completely or not at all, and may raise OSError and StorageError."""
        super().__init__()
        self.TITLE_TEXT = title
        self.HINT = f"{', '.join(formats[:-1])} or {formats[-1]}, by the name's end · enter writes"
        self._suggested = suggested
        self._formats = formats
        self._write_file = write
        self._replacing: Path | None = None
        """The existing file that the user was warned of."""

    def compose_choice(self) -> ComposeResult:
        """Compose the field."""
        yield LineInput(str(self._suggested), compact=True, select_on_focus=False)
        yield SheetNote()

    def on_mount(self) -> None:
        """Put the cursor behind the path."""
        self.query_one(LineInput).focus()

    @on(Input.Changed)
    def _on_typed(self) -> None:
        self._replacing = None
        self.query_one(SheetNote).say("", "quiet")

    @on(Input.Submitted)
    def _on_entered(self, message: Input.Submitted) -> None:
        path = typed_path(message.value)
        if (why := export_problem(path, self._formats)) is not None:
            self.query_one(SheetNote).say(why, "bad")
        elif any(worker.name == str(path.absolute()) for worker in self.app.workers if not worker.is_finished):
            self.query_one(SheetNote).say("This file is being written: wait, or name another.", "warn")
        elif path.exists() and path != self._replacing:
            self._replacing = path
            self.query_one(SheetNote).say("There is such a file. Enter again replaces it.", "warn")
        else:
            self.query_one(SheetNote).say("Writing…", "busy")
            self.begin(partial(self._write, path), name=str(path.absolute()), group="export")

    async def _write(self, path: Path) -> None:
        try:
            said = await self._write_file(path)
        except OSError as error:
            self.failed(f"{path} cannot be written: {error.strerror or error}.")
        except StorageError as error:
            self.failed(str(error))
        else:
            self.done(said)


def typed_path(text: str) -> Path:
    """The path that was typed, with `~` expanded where that user exists."""
    path = Path(text.strip())
    try:
        return path.expanduser()
    except RuntimeError:
        # No user has that name: the path is kept as typed, and reported as any missing folder.
        return path


def export_problem(path: Path, formats: Sequence[str]) -> str | None:
    """The reason why a file cannot have this name; None: none is known before writing."""
    if path.suffix.lower() not in formats:
        return f"End the name in {', '.join(formats[:-1])} or {formats[-1]}: it says what is written."
    try:
        if path.is_dir():
            return f"{path} is a folder: name a file."
        if not path.parent.is_dir():
            return f"There is no folder {path.parent}."
    except OSError as error:
        return f"There can be no such file: {error.strerror or error}. Name another."
    return None
