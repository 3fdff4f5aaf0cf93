"""Confirm with the facts in sight, and see what came of it: the sheet for taking a change over and for cancelling."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, Static

from app.actions import ActionRefusedError
from app.api.errors import ApiError
from app.console.export_sheet import typed_path
from app.console.sheet import PickerScreen
from app.results.git import GitError
from app.text import safe_text
from storage.errors import StorageError
from widgets.badges import STYLES, Tone
from widgets.forms.inputs import LineInput


class NotSureError(Exception):
    """Done only when confirmed once more, with another key; the message names that key."""


class ConfirmSheet(PickerScreen[str]):
    """Says what will be done, asks where if that is open, and closes with what was done, in words."""

    CSS = "ConfirmSheet .-hidden { display: none; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "go_on", "go on", show=False, id="confirm.go_on"),
        Binding("ctrl+s", "anyway", "go on all the same", show=False, id="confirm.anyway", priority=True),
    ]
    CLICKABLE: ClassVar[Mapping[str, str]] = {"enter goes on": "go_on"}
    HINT = "enter goes on"

    def __init__(
        self,
        title: str,
        facts: Sequence[Content],
        folder: Path | str | None,
        do: Callable[[Path], Awaitable[str]],
        anyway: Callable[[Path], Awaitable[str]] | None = None,
    ) -> None:
        """Prepare; `do` may fail by git, the file system, our own files or the service; without a folder none is asked.

        `anyway` is for the folder that `do` refused last with NotSureError.
        """
        super().__init__()
        self.TITLE_TEXT = title
        self._facts = facts
        self._folder = folder
        self._do = do
        self._anyway = anyway
        self._refused: str | None = None
        """The folder, as it was typed."""
        self._is_busy = False

    def compose_choice(self) -> ComposeResult:
        """The facts, and where."""
        yield Static(Content("\n").join((*self._facts, Content())), markup=False)
        line = LineInput(str(self._folder or ""), placeholder="A folder", compact=True, select_on_focus=False)
        line.set_class(self._folder is None, "-hidden")
        yield line
        yield Static(markup=False, id="picker-note")

    def on_mount(self) -> None:
        """The cursor stands behind the path."""
        if self._folder is not None:
            self.query_one(LineInput).focus()

    @on(Input.Submitted)
    def action_go_on(self) -> None:
        """Do it."""
        if self._folder is not None and not self.query_one(LineInput).value.strip():
            self._note("Name a folder.", "bad")
        else:
            self._start(self._do)

    def action_anyway(self) -> None:
        """Do what was refused."""
        if self._anyway is not None and self._refused == self.query_one(LineInput).value:
            self._start(self._anyway)

    def _start(self, do: Callable[[Path], Awaitable[str]]) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._note("Working…", "busy")
            # The app's worker: leaving this sheet does not stop it half-way.
            work: Any = partial(self._work, do, self.query_one(LineInput).value)
            self.app.run_worker(work, group="take over")

    async def _work(self, do: Callable[[Path], Awaitable[str]], typed: str) -> None:
        self._refused = None
        try:
            said = await do(typed_path(typed))
        except (NotSureError, GitError, OSError, ActionRefusedError, StorageError, ApiError) as error:
            self._refused = typed if isinstance(error, NotSureError) else None
            if self.is_current:
                self._note(str(error), "bad")
            else:
                self.app.notify(safe_text(str(error)), severity="error", markup=False)
        else:
            if self.is_current:
                self.dismiss(said)
            else:
                self.app.notify(safe_text(said), markup=False)
        finally:
            self._is_busy = False

    def _note(self, text: str, tone: Tone) -> None:
        self.query_one("#picker-note", Static).update(Content.styled(safe_text(text), STYLES[tone]))
