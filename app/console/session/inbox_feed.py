"""The inbox's items, read again after events."""

import asyncio
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final

from textual.signal import Signal

from app.console.session.coalesced_task import CoalescedTask
from app.console.session.feed_host import FeedHost
from app.console.session.vitals_feed import VitalsFeed
from app.engine.events import (
    ActionChanged,
    CacheChangedElsewhere,
    Event,
    HealthChanged,
    RunsChanged,
    StateChangedElsewhere,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.automations.rule import Rule
    from app.inbox.inbox import Inbox
    from storage.records.inbox import InboxItem

AT_MOST_EVERY: Final = timedelta(seconds=2)
AT_LEAST_EVERY: Final = timedelta(minutes=1)
"""The end of a snooze and a silent bot cause no event."""


class InboxFeed:
    """The inbox of one session."""

    def __init__(self, session: FeedHost, vitals: VitalsFeed) -> None:
        """Start empty; after each reading the header shows the number of items."""
        self.changed: Signal[tuple[InboxItem, ...]] = Signal(session.app, "inbox changed")
        self.items: tuple[InboxItem, ...] | None = None
        """None: not read yet."""
        self.can_undo = False
        """Whether `undo` has something to bring back."""
        self.inbox: Inbox | None = None
        """None: the engine is not open yet."""
        self._session = session
        self._vitals = vitals
        self._automations: Sequence[Rule] = session.settings.automations
        self._read_at: datetime | None = None
        self._is_stale = False
        """Whether something changed since the last reading."""
        self._reader = CoalescedTask(self._read, session.start)

    def ask(self) -> None:
        """Read the items again."""
        self._reader.ask()

    def use_automations(self, automations: "Sequence[Rule]") -> None:
        """Use these rules from now on: they were just written into the configuration."""
        self._automations = tuple(automations)
        self._vitals.set_up("automations", is_set_up=bool(automations))
        self.ask()

    def engine_changed(self, event: Event) -> None:
        """Read the items again if this event may have changed them; new failed runs come by `ask_soon`."""
        has_moved = isinstance(event, RunsChanged) and bool(event.changes.transitions or event.changes.updated)
        elsewhere = CacheChangedElsewhere | StateChangedElsewhere
        if has_moved or isinstance(event, ActionChanged | HealthChanged | elsewhere):
            self.ask()

    def ask_soon(self, now: datetime) -> None:
        """Read the items again after a moment: while history is fetched, failed runs arrive all the time."""
        self._is_stale = True
        self.tick(now)

    def tick(self, now: datetime) -> None:
        """Read the items again if the last reading is old."""
        if self._read_at is not None and now - self._read_at >= (AT_MOST_EVERY if self._is_stale else AT_LEAST_EVERY):
            self.ask()

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        if self.inbox is None or self.inbox.engine is not engine:
            # In a thread: this imports the automations.
            await asyncio.to_thread(import_module, "app.inbox.inbox")
            from app.inbox.inbox import Inbox

            self.inbox = Inbox.of(engine, lambda: self._automations)
        self._read_at, self._is_stale = engine.clock(), False
        self.can_undo = await self.inbox.can_undo()
        self.items = await self.inbox.items()
        self._vitals.count_inbox(len(self.items))
        self.changed.publish(self.items)
