"""The sheet that confirms applying a change or cancelling a run, and shows the result."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, Static

from app.console.sheets import PickerScreen, SheetNote
from app.console.sheets.export import typed_path
from storage.base_error import RunwardenError
from widgets.forms.inputs import LineInput


class NotSureError(RunwardenError):
    """The work needs a second confirmation with another key, which the message names."""


class ConfirmSheet(PickerScreen[str]):
    """Shows the facts, asks for a folder if needed, and closes with the result as text."""

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
        """Prepare; `do` may fail with an OSError or any `RunwardenError`. Without `folder` none is asked for.

        `anyway` is called for the folder that `do` refused last with NotSureError.
        """
        super().__init__()
        self.TITLE_TEXT = title
        self._facts = facts
        self._folder = folder
        self._do = do
        self._anyway = anyway
        self._refused: str | None = None
        """The refused folder, as it was typed."""
        self._is_busy = False

    def compose_choice(self) -> ComposeResult:
        """Compose the facts and the folder's field."""
        yield Static(Content("\n").join((*self._facts, Content())), markup=False)
        line = LineInput(str(self._folder or ""), placeholder="A folder", compact=True, select_on_focus=False)
        line.set_class(self._folder is None, "-hidden")
        yield line
        yield SheetNote()

    def on_mount(self) -> None:
        """Put the cursor behind the path."""
        if self._folder is not None:
            self.query_one(LineInput).focus()

    @on(Input.Submitted)
    def action_go_on(self) -> None:
        """Do the work."""
        if self._folder is not None and not self.query_one(LineInput).value.strip():
            self.query_one(SheetNote).say("Name a folder.", "bad")
        else:
            self._start(self._do)

    def action_anyway(self) -> None:
        """Do the refused work anyway."""
        if self._anyway is not None and self._refused == self.query_one(LineInput).value:
            self._start(self._anyway)

    def _start(self, do: Callable[[Path], Awaitable[str]]) -> None:
        if not self._is_busy:
            self._is_busy = True
            self.query_one(SheetNote).say("Working…", "busy")
            self.begin(partial(self._work, do, self.query_one(LineInput).value), group="take over")

    async def _work(self, do: Callable[[Path], Awaitable[str]], typed: str) -> None:
        self._refused = None
        try:
            said = await do(typed_path(typed))
        except (OSError, RunwardenError) as error:
            self._refused = typed if isinstance(error, NotSureError) else None
            self.failed(str(error))
        else:
            self.done(said)
        finally:
            self._is_busy = False
