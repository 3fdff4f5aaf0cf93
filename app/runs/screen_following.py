"""The runs that a console follows, and the toasts and notifications about changes in them."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from app.console.messages import FollowRun
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.sheets import BatchScreen, Sheet
from app.engine.events import ActionChanged, Event, StorageFailed
from app.engine.text import safe_text
from app.notify.channels import Channels, Text
from app.notify.incidents import IncidentReader
from app.notify.watch import Watch
from storage.cache.following import PIN_CAP
from storage.records.following import PinnedRun
from storage.state import State
from widgets.actions.batch import BatchView
from widgets.kit.after_refresh import after_refresh
from widgets.kit.choice_lists import Options
from widgets.runs.follow import follow_line

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from storage.records.alert import Alert


TOAST_S: Final = {"information": 6.0, "warning": 10.0, "error": 15.0}
"""How long a toast about a run stays; a click closes it."""


class RunFollower:
    """Follows runs, and shows and delivers news of them: first at `look`, then after each event."""

    def __init__(self, engine: "Engine", session: Session, write: Callable[[str], None]) -> None:
        """Start empty; `write` sends text to the terminal unchanged, or nowhere without a terminal."""
        settings, profile = engine.settings, engine.profile
        state = engine.state if isinstance(engine.state, State) else None
        incidents = IncidentReader.of(engine.cache, settings, profile)
        self.watch = Watch(engine.cache, engine.ledger, state, settings.notify, incidents, profile.name, engine.clock)
        self._engine = engine
        self._session = session
        notify = settings.notify
        bell = session.app.bell if notify.bell else lambda: None
        self._channels = Channels(notify.desktop, notify.command, os.environ, bell, write)
        self._troubles: set[str] = set()
        """Failures of channels that were reported; each is reported once."""
        self._has_begun = False
        self.look = CoalescedTask(self._look, session.start).ask
        """Look for news now."""

    def engine_changed(self, event: Event) -> None:
        """Look for news and moved runs after an event."""
        if not isinstance(event, ActionChanged | StorageFailed):
            self.look()

    async def toggle(self, *run_ids: str) -> None:
        """Follow these runs, or unfollow them if all are followed, and confirm which.

        Raises:
            StorageError: The cache cannot be written.
        """
        following = self._engine.cache.following
        followed = {pinned.run_id for pinned in self._session.pins}
        if followed.issuperset(run_ids):
            for run_id in run_ids:
                await following.unpin(run_id)
            await self._read_pins()
            self._session.notify("Unfollowed." if len(run_ids) == 1 else f"Unfollowed {len(run_ids):,} runs.")
            return
        wanted = tuple(run_id for run_id in run_ids if run_id not in followed)[:PIN_CAP]
        for run_id in wanted:
            await following.pin(run_id, at=self._engine.clock())
        await self._read_pins()
        others = len(run_ids) - len(wanted)
        row = next((pinned.row for pinned in self._session.pins if pinned.run_id in wanted), None)
        if len(wanted) > 1 or others:
            besides = f", {others:,} are followed already or too many" if others else ""
            text = f"Following {len(wanted):,} runs to their end{besides}. Press F for the list."
        elif row is not None and row.is_final:
            text = "Following for a day in case it is continued: it has ended."
        else:
            text = "Following it to its end, also after a restart. Press F for the list."
        self._session.notify(text)

    async def unfollow_ended(self, batches: int = 0) -> None:
        """Unfollow the runs that have ended; confirm their number, with this number of batches.

        Raises:
            StorageError: The cache cannot be written.
        """
        count = batches + await self._engine.cache.following.unpin_ended()
        await self._read_pins()
        self._session.notify(f"Unfollowed {count}." if count else "None of them has ended.")

    async def _look(self) -> None:
        if not self._has_begun:
            await self.watch.begin()
            self._has_begun = True
        report = await self.watch.look()
        await self._read_pins()
        for news in report.screen:
            self._session.notify(news.body, title=news.title, severity=news.level, timeout=TOAST_S[news.level])
        if report.outward:
            self._session.start(partial(self._deliver, report.outward))

    async def _read_pins(self) -> None:
        pins = await self._engine.cache.following.pins()
        if pins != self._session.pins:
            self._session.show_pins(pins)

    async def _deliver(self, news: "tuple[Alert, ...]") -> None:
        texts = [Text.of(alert, self._engine.profile.name) for alert in news]
        for trouble in await self._channels.deliver(texts):
            if trouble not in self._troubles:
                self._troubles.add(trouble)
                text = safe_text(f"A notification was not delivered. {trouble}", limit=300)
                self._session.notify(text, severity="warning")


TICK_S: Final = 1.0
HINTS: Final = "enter open · f unfollow · X unfollow ended · esc close"
NOTHING: Final = "No run is followed. Press f on a run to see it in every tab until it ends."


class FollowList(Sheet[str | None]):
    """A sheet over the screen; closes with the run to open."""

    LEAVE = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,F", "dismiss", "close", id="follow.close"),
        Binding("f,delete", "let_go", "unfollow", id="follow.let_go"),
        Binding("X", "let_go_ended", "unfollow ended", id="follow.let_go_ended"),
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
            yield Options(markup=False)
            yield Static(NOTHING, markup=False)

    def on_mount(self) -> None:
        """Show the followed runs, and each change."""
        self._session.pins_changed.subscribe(self, lambda _: self._show())
        self._session.batches.changed.subscribe(self, lambda _: self._show())
        self._show()
        self.set_interval(TICK_S, self._show)
        self._list.focus()

    def on_resize(self) -> None:
        """Draw for the new width."""
        after_refresh(self, self._show)

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

            def opened(run_id: str | None) -> None:
                if run_id is not None:
                    self.dismiss(run_id)

            self.app.push_screen(BatchScreen(self._session, item.key), opened)
        elif item is not None:
            self.dismiss(item.run_id)

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
        self._list.set_options(lines)
        self._list.display = bool(lines)
        self.query_one(Static).display = not lines
        if lines:
            self._list.highlighted = min(at or 0, len(lines) - 1)

    def _line(self, item: PinnedRun | BatchView) -> Content:
        now = self._session.clock()
        width = max(40, self._list.size.width - 4)
        if isinstance(item, BatchView):
            return item.line(width)
        return follow_line(item, now, self._session.vitals.as_of or now, width)
