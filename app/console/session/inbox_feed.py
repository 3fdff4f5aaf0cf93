"""The items of the inbox, read again when an event may have changed them."""

import asyncio
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final

from app.console.session.coalesced_task import CoalescedTask, Start
from storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.signal import Signal

    from app.automations.inbox import Inbox
    from app.engine import Engine
    from app.events import Event
    from app.rules.rule import Rule
    from storage.records.inbox import InboxItem

AT_MOST_EVERY: Final = timedelta(seconds=2)
AT_LEAST_EVERY: Final = timedelta(minutes=1)
"""The end of a snooze and a silent bot cause no event."""


class InboxFeed:
    """The inbox of one session."""

    def __init__(
        self,
        engine: "Callable[[], Engine | None]",
        automations: "Sequence[Rule]",
        start: Start,
        changed: "Signal[tuple[InboxItem, ...]]",
        count: "Callable[[int], None]",
    ) -> None:
        """Start empty; after each reading `count` is given the number of items, then `changed` is published."""
        self.changed = changed
        self._automations = automations
        self.items: tuple[InboxItem, ...] | None = None
        """None: not read yet."""
        self.can_undo = False
        """Whether `undo` has something to bring back."""
        self.inbox: Inbox | None = None
        """None: the engine is not open yet."""
        self._engine = engine
        self._count = count
        self._read_at: datetime | None = None
        self._is_stale = False
        """Whether something changed since the last reading."""
        self._reader = CoalescedTask(self._read, start)

    @property
    def trouble(self) -> str:
        """Why items cannot be put away; empty: they can."""
        engine = self._engine()
        return str(engine.state) if engine is not None and isinstance(engine.state, StorageError) else ""

    def ask(self) -> None:
        """Read the items again."""
        self._reader.ask()

    def take_automations(self, automations: "Sequence[Rule]") -> None:
        """Use these rules from now on: they were just written into the configuration."""
        self._automations = tuple(automations)
        self.ask()

    def engine_changed(self, event: "Event") -> None:
        """Read the items again if this event may have changed them; the session counts new runs first."""
        from app.events import ActionChanged, CacheChangedElsewhere, HealthChanged, RunsChanged, StateChangedElsewhere

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
        if (engine := self._engine()) is None:
            return
        if self.inbox is None or self.inbox.engine is not engine:
            # In a thread: this imports the automations.
            await asyncio.to_thread(import_module, "app.automations.inbox")
            from app.automations.inbox import Inbox

            self.inbox = Inbox.of(engine, lambda: self._automations)
        self._read_at, self._is_stale = engine.clock(), False
        self.can_undo = await self.inbox.can_undo()
        self.items = await self.inbox.items()
        self._count(len(self.items))
        self.changed.publish(self.items)
