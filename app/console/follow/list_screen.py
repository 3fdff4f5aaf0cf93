"""The followed runs, all of them, to look into or let go."""

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from app.console.follow.following import Following
from app.console.messages import FollowRun
from app.console.session import Session
from app.console.sheet import Sheet
from storage.records.following import PinnedRun
from widgets.follow import follow_line

TICK_S = 1.0
HINTS = "enter opens · f lets go · x lets go of the ended · esc closes"
NOTHING = "No run is followed. f on a run follows it to its end; the strip above the keys shows it in every tab."


class FollowList(Sheet[str | None]):
    """A sheet over the screen; closes with the run to open."""

    LEAVE = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,F", "dismiss", "close", id="follow.close"),
        Binding("f,delete", "let_go", "let go", id="follow.let_go"),
        Binding("x", "let_go_ended", "let go of the ended", id="follow.let_go_ended"),
        Binding("j", "move(1)", "down", show=False, id="follow.down"),
        Binding("k", "move(-1)", "up", show=False, id="follow.up"),
    ]

    def __init__(self, session: Session, following: Following) -> None:
        super().__init__()
        self._session = session
        self._following = following

    def compose(self) -> ComposeResult:
        """The sheet."""
        with Vertical() as sheet:
            sheet.border_title = "Followed runs"
            sheet.border_subtitle = HINTS
            yield OptionList(markup=False)
            yield Static(NOTHING, markup=False)

    def on_mount(self) -> None:
        """Show what is followed, and what comes to be."""
        self._session.pins_changed.subscribe(self, self._show)
        self._show(self._pins)
        self.set_interval(TICK_S, self._tick)
        self._list.focus()

    def on_resize(self) -> None:
        """Draw for the new width, once it is known."""
        self.call_after_refresh(self._tick)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        if rows > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    def action_let_go(self) -> None:
        """Let go of the run under the cursor."""
        index = self._list.highlighted
        if index is not None and index < len(self._pins):
            self.post_message(FollowRun((self._pins[index].run_id,)))

    async def action_let_go_ended(self) -> None:
        """Let go of all that have ended."""
        await self._following.unfollow_ended()

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        self.dismiss(self._pins[message.option_index].run_id)

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _pins(self) -> tuple[PinnedRun, ...]:
        return self._session.pins

    def _show(self, pins: Iterable[PinnedRun]) -> None:
        """Other runs: the cursor stays where it is, or on the last one."""
        lines = [self._line(pinned) for pinned in pins]
        at = self._list.highlighted
        self._list.clear_options().add_options(lines)
        self._list.display = bool(lines)
        self.query_one(Static).display = not lines
        if lines:
            self._list.highlighted = min(at or 0, len(lines) - 1)

    def _tick(self) -> None:
        for index, pinned in enumerate(self._pins[: self._list.option_count]):
            line = self._line(pinned)
            shown = self._list.get_option_at_index(index).prompt
            if not (isinstance(shown, Content) and line.is_same(shown)):
                self._list.replace_option_prompt_at_index(index, line)

    def _line(self, pinned: PinnedRun) -> Content:
        now = self._session.clock()
        return follow_line(pinned, now, self._session.as_of or now, max(40, self._list.size.width - 4))
