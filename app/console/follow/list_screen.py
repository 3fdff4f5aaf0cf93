"""The list of followed runs."""

from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from app.console.base.batch_screen import BatchScreen
from app.console.follow.following import RunFollower
from app.console.messages import FollowRun
from app.console.session import Session
from app.console.sheets import Sheet
from storage.records.following import PinnedRun
from widgets.after_refresh import after_refresh
from widgets.batch import BatchView
from widgets.follow import follow_line

TICK_S: Final = 1.0
HINTS: Final = "enter opens · f lets go · X lets go of the ended · esc closes"
NOTHING: Final = "No run is followed. f on a run follows it to its end; the strip above the keys shows it in every tab."


class FollowList(Sheet[str | None]):
    """A sheet over the screen; closes with the run to open."""

    LEAVE = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,F", "dismiss", "close", id="follow.close"),
        Binding("f,delete", "let_go", "let go", id="follow.let_go"),
        Binding("X", "let_go_ended", "let go of the ended", id="follow.let_go_ended"),
        Binding("j", "move(1)", "down", show=False, id="follow.down"),
        Binding("k", "move(-1)", "up", show=False, id="follow.up"),
    ]

    def __init__(self, session: Session, following: RunFollower) -> None:
        super().__init__()
        self._session = session
        self._following = following

    def compose(self) -> ComposeResult:
        """Compose the sheet."""
        with Vertical() as sheet:
            sheet.border_title = "Followed runs"
            sheet.border_subtitle = HINTS
            yield OptionList(markup=False)
            yield Static(NOTHING, markup=False)

    def on_mount(self) -> None:
        """Show the followed runs, and each change."""
        self._session.pins_changed.subscribe(self, lambda _: self._show())
        self._session.batches.changed.subscribe(self, lambda _: self._show())
        self._show()
        self.set_interval(TICK_S, self._tick)
        self._list.focus()

    def on_resize(self) -> None:
        """Draw for the new width."""
        after_refresh(self, self._tick)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        if rows > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    def action_let_go(self) -> None:
        """Unfollow the run under the cursor."""
        item = self._item(self._list.highlighted)
        if isinstance(item, BatchView):
            self._session.batches.let_go((item.key,))
        elif item is not None:
            self.post_message(FollowRun((item.run_id,)))

    async def action_let_go_ended(self) -> None:
        """Unfollow all runs that have ended."""
        batches = self._session.batches
        ended = tuple(batch.key for batch in batches.views if batch.is_over)
        batches.let_go(ended)
        await self._following.unfollow_ended(len(ended))

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        item = self._item(message.option_index)
        if isinstance(item, BatchView):
            self.app.push_screen(BatchScreen(self._session, item.key), self._run_picked)
        elif item is not None:
            self.dismiss(item.run_id)

    def _run_picked(self, run_id: str | None) -> None:
        if run_id is not None:
            self.dismiss(run_id)

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _items(self) -> tuple[PinnedRun | BatchView, ...]:
        return (*self._session.batches.views, *self._session.pins)

    def _item(self, index: int | None) -> PinnedRun | BatchView | None:
        return self._items[index] if index is not None and index < len(self._items) else None

    def _show(self) -> None:
        """Show the runs again; the cursor keeps its line, or moves to the last one."""
        lines = [self._line(item) for item in self._items]
        at = self._list.highlighted
        self._list.clear_options().add_options(lines)
        self._list.display = bool(lines)
        self.query_one(Static).display = not lines
        if lines:
            self._list.highlighted = min(at or 0, len(lines) - 1)

    def _tick(self) -> None:
        for index, item in enumerate(self._items[: self._list.option_count]):
            line = self._line(item)
            shown = self._list.get_option_at_index(index).prompt
            if not (isinstance(shown, Content) and line.is_same(shown)):
                self._list.replace_option_prompt_at_index(index, line)

    def _line(self, item: PinnedRun | BatchView) -> Content:
        now, width = self._session.clock(), max(40, self._list.size.width - 4)
        if isinstance(item, BatchView):
            return item.line(width)
        return follow_line(item, now, self._session.vitals.as_of or now, width)
