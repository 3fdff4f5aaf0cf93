"""One batch with the current state of its runs."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList

from app.console.messages import FollowRun
from app.console.session import Session
from app.console.sheets import Options, Sheet
from app.text import safe_text
from widgets.after_refresh import after_refresh
from widgets.batch import BatchView

HINTS: Final = "enter opens · f follows all · esc closes"


class BatchScreen(Sheet[str | None]):
    """A live list over the screen; closes with the chosen run."""

    LEAVE = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "close", id="batch.close"),
        Binding("f", "follow", "follow all", id="batch.follow"),
    ]

    def __init__(self, session: Session, key: str) -> None:
        """Prepare for the batch with this key."""
        super().__init__()
        self._session = session
        self._key = key

    def compose(self) -> ComposeResult:
        """Compose the sheet."""
        with Vertical() as sheet:
            sheet.border_subtitle = HINTS
            yield Options(markup=False)

    def on_mount(self) -> None:
        """Show the progress and ask the service for the runs."""
        self._session.batches.changed.subscribe(self, lambda _: self._show())
        self._session.poll_soon()
        self._list.focus()
        self._show()

    def on_resize(self) -> None:
        """Draw for the new width."""
        after_refresh(self, self._show)

    def action_follow(self) -> None:
        """Follow the runs of the batch."""
        if self._batch is not None:
            made = tuple(line.opens for line in self._batch.lines if line.opens is not None)
            self.post_message(FollowRun(made))

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        """Open the run, if there is one."""
        line = self._batch.lines[message.option_index] if self._batch is not None else None
        if line is not None and line.opens is not None:
            self.dismiss(line.opens)
        elif line is not None:
            self._session.notify(f"It made no run. {line.about}")

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _batch(self) -> BatchView | None:
        return self._session.batches.view(self._key)

    def _show(self) -> None:
        if (batch := self._batch) is None:
            return
        sheet, width = self.query_one(Vertical), max(40, self._list.size.width - 4)
        sheet.border_title = safe_text(f"{batch.title}: {batch.outcome.word} sent, {batch.progress}")
        lines = batch.run_list(width)
        if self._list.option_count != len(lines):
            self._list.clear_options().add_options(lines)
            self._list.highlighted = 0
        for index, line in enumerate(lines):
            if self._list.get_option_at_index(index).prompt != line:
                self._list.replace_option_prompt_at_index(index, line)
