"""The header's figures of one profile, its troubles, and the clock of its runs."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from app.console.session.coalesced_task import CoalescedTask, Start
from app.console.session.troubles import link_notice, storage_notice
from app.times import clocks_apart
from storage.records import LinkState, RunFilter
from storage.records.activity import ActivityFilter
from widgets.frame.header_bar import Vitals

if TYPE_CHECKING:
    from textual.signal import Signal

    from app.config import Profile
    from app.engine import Engine
    from app.events import Event
    from storage.cache.first_paint import FirstPaint
    from widgets.frame.freshness import PollTiming
    from widgets.frame.notice import Notice

TODAY: Final = timedelta(hours=24)
UNKNOWN: Final = ActivityFilter(outcomes=("unknown",), is_open=True)
"""Writes of unknown outcome."""


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
        self._told_of_clock = timedelta(0)  # The difference that was reported last.
        self._has_polled = False
        """Whether a poll ended since the last reading."""

    def ask(self) -> None:
        """Read all of it again."""
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
        self._tell_of_clock(engine.client.budget.clock_ahead)
        vitals = await read_vitals(engine, self.now, self._clock())
        if vitals.failed != self.now.failed:
            self._moved()
        if trouble is not None and has_polled:
            # The cache was written and read; once the ledger can be read as well, the trouble is over.
            await engine.ledger.actions(limit=1)
            self._storage_trouble = None
        self._show(replace(vitals, unknown=self.now.unknown, inbox=self.now.inbox))

    async def _read_unknown(self) -> None:
        # Apart from the rest: a poll does not change this, and the ledger may fail where the cache does not.
        if (engine := self._engine()) is None:
            return
        unknown = (await engine.ledger.journal(UNKNOWN, limit=0)).matching
        if unknown != self.now.unknown:
            self._show(replace(self.now, unknown=unknown))

    def _tell_of_clock(self, ahead: timedelta) -> None:
        if abs(ahead - self._told_of_clock) < timedelta(minutes=1):
            return
        self._told_of_clock = ahead
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
