"""What a session reads again after events: the header's figures with the runs' clock, and the items of the inbox."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final

from app.console.session.coalesced_task import CoalescedTask, Start
from app.console.session.troubles import link_notice, storage_notice
from app.times import clocks_apart
from storage.errors import StorageError
from storage.records import LinkState, RunFilter
from storage.records.activity import ActivityFilter
from widgets.frame.header_bar import Vitals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.signal import Signal

    from app.automations.inbox import Inbox
    from app.config import Profile
    from app.engine import Engine
    from app.events import Event
    from app.rules.rule import Rule
    from storage.cache.first_paint import FirstPaint
    from storage.records.inbox import InboxItem
    from widgets.frame.freshness import PollTiming
    from widgets.frame.notice import Notice

TODAY: Final = timedelta(hours=24)
UNKNOWN: Final = ActivityFilter(outcomes=("unknown",), is_open=True)
"""Writes of unknown outcome."""
AT_MOST_EVERY: Final = timedelta(seconds=2)
AT_LEAST_EVERY: Final = timedelta(minutes=1)
"""The end of a snooze and a silent bot cause no event."""


class VitalsFeed:
    """The vitals of one session, read again whenever they may have changed."""

    def __init__(
        self,
        before: Vitals,
        timing: "PollTiming",
        engine: "Callable[[], Engine | None]",
        clock: Callable[[], datetime],
        start: Start,
        changed: "Signal[Vitals]",
        *,
        moved: Callable[[], None],
        warn: Callable[[str], None],
    ) -> None:
        """Start with these; `moved` is called when the number of failed runs changed, `warn` when the clocks differ."""
        self.now = before
        self.timing = timing
        self.changed = changed
        self._engine = engine
        self._clock = clock
        self._moved = moved
        self._warn = warn
        self._reader = CoalescedTask(self._read, start)
        self._unknown_reader = CoalescedTask(self._read_unknown, start)
        self._storage_trouble: str | None = None
        self._run_clock_ahead = timedelta(0)
        self._reported_ahead = timedelta(0)  # The difference that was reported last.
        self._has_polled = False
        """Whether a poll ended since the last reading."""

    def ask(self) -> None:
        """Read all figures again."""
        self._reader.ask()
        self._unknown_reader.ask()

    def engine_changed(self, event: "Event") -> None:
        """Read again what the event may have changed."""
        from app.events import ActionChanged, CacheChangedElsewhere, LinkChanged, StateChangedElsewhere, StorageFailed

        if isinstance(event, StorageFailed):
            self.storage_failed(event.message)
        self._has_polled = self._has_polled or isinstance(event, LinkChanged)
        if not isinstance(event, ActionChanged | StateChangedElsewhere):
            self._reader.ask()
        if isinstance(event, ActionChanged | CacheChangedElsewhere):
            self._unknown_reader.ask()

    def storage_failed(self, message: str) -> None:
        """Report on every screen that our own files fail."""
        self._storage_trouble = message
        self._show(self.now)

    def count_inbox(self, count: int) -> None:
        """Show the number of items in the inbox."""
        if count != self.now.inbox:
            self._show(replace(self.now, inbox=count))

    def run_now(self) -> datetime:
        """The current time by the runs' clock: the service's may be hours away from this machine's."""
        return self._clock() + self._run_clock_ahead

    @property
    def as_of(self) -> datetime | None:
        """When the service last answered, if it no longer does, by the runs' clock; None: the rows are live."""
        link = self.now.runs_link
        if link is None or link.last_ok_at is None or not link.is_failing:
            return None
        return link.last_ok_at + self._run_clock_ahead

    @property
    def trouble(self) -> "Notice | None":
        """The trouble with our own files or the link, or None."""
        return self.storage_trouble or link_notice(self.now.runs_link, self._clock())

    @property
    def storage_trouble(self) -> "Notice | None":
        """The trouble with our own files, or None."""
        return None if self._storage_trouble is None else storage_notice(self._storage_trouble)

    def _show(self, vitals: Vitals) -> None:
        self.now = replace(vitals, files_fail=self._storage_trouble is not None)
        self.changed.publish(self.now)

    async def _read(self) -> None:
        if (engine := self._engine()) is None:
            return
        trouble, has_polled, self._has_polled = self._storage_trouble, self._has_polled, False
        self._run_clock_ahead = await engine.cache.run_clock_ahead()
        self._report_clock(engine.client.budget.clock_ahead)
        vitals = await read_vitals(engine, self.now, self._clock())
        if vitals.failed != self.now.failed:
            self._moved()
        if trouble is not None and has_polled:
            # The cache was written and read; once the ledger can be read as well, the trouble is over.
            await engine.ledger.actions(limit=1)
            self._storage_trouble = None
        self._show(replace(vitals, unknown=self.now.unknown, inbox=self.now.inbox))

    async def _read_unknown(self) -> None:
        # Separate from the other figures: a poll does not change it, and the ledger may fail while the cache works.
        if (engine := self._engine()) is None:
            return
        unknown = (await engine.ledger.journal(UNKNOWN, limit=0)).matching
        if unknown != self.now.unknown:
            self._show(replace(self.now, unknown=unknown))

    def _report_clock(self, ahead: timedelta) -> None:
        if abs(ahead - self._reported_ahead) < timedelta(minutes=1):
            return
        self._reported_ahead = ahead
        if ahead:
            self._warn(f"{clocks_apart(ahead)} Ages of runs are counted by the service's clock.")


async def read_vitals(engine: "Engine", before: Vitals, now: datetime) -> Vitals:
    """Read the header's figures.

    Raises:
        StorageError: The cache cannot be read.
    """
    cache = engine.cache
    links = await cache.links()
    counts = await cache.status_counts(RunFilter())
    today = now + await cache.run_clock_ahead() - TODAY
    runs_link, health_link = link_of(links, "runs"), link_of(links, "health")
    return replace(
        before,
        runs_link=runs_link,
        wait=await engine.polling.next_poll(),
        working=counts.get("working", 0),
        queued=counts.get("queued", 0),
        failed=counts.get("failed", 0),
        failed_today=await cache.count(RunFilter(statuses=("failed",), since=today)),
        health=await cache.health(),
        health_is_stale=health_link is not None and health_link.is_failing,
        known=bool(counts) or (runs_link is not None and runs_link.last_ok_at is not None),
    )


def link_of(links: tuple[LinkState, ...], subject: str) -> LinkState | None:
    """Return the state of one subject's link."""
    return next((link for link in links if link.subject == subject), None)


def first_vitals(profile: "Profile", first: "FirstPaint | None", *, can_switch: bool) -> Vitals:
    """The header's figures before anything is read of the service."""
    vitals = Vitals(profile.name, profile.read_only, can_switch=can_switch)
    return vitals if first is None else replace(vitals, runs_link=link_of(first.links, "runs"), health=first.health)


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
        """Read the items again if this event may have changed them; new failed runs come by `ask_soon`."""
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
