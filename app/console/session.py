"""The session: the profile on show, its engine and what all screens share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from textual.message import Message
from textual.screen import ModalScreen
from textual.signal import Signal

from app.api.errors import ApiError
from app.config import Profile, Settings
from app.console.batches import Batches
from app.console.coalesced_task import CoalescedTask, Start
from app.console.inbox_feed import InboxFeed
from app.console.tour import Tour
from app.console.troubles import READ_ONLY, link_notice, own_failure_text, storage_notice
from app.text import safe_text
from app.times import clocks_apart
from storage.errors import StorageError
from storage.records import LinkState, RunFilter
from storage.records.activity import ActivityFilter
from widgets.frame.freshness import PollTiming
from widgets.frame.header_bar import Vitals

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from app.engine import Engine
    from app.events import Event
    from app.rules.rule import Rule
    from storage.cache.first_paint import FirstPaint
    from storage.records.following import PinnedRun
    from storage.records.inbox import InboxItem
    from widgets.frame.notice import Notice

Result = TypeVar("Result")

LONGEST_COPY: Final = 10_000
"""In characters. A shortened id would be another id."""
STILL_OPENING: Final = "Still opening; a moment."
TOAST_S: Final = 4.0
CLOCK_S: Final = 15.0
"""For the notice that the clocks differ, which is shown once."""
CURE_S: Final = 10.0
"""For toasts that name a cure."""
TODAY: Final = timedelta(hours=24)
UNKNOWN: Final = ActivityFilter(outcomes=("unknown",), is_open=True)
"""Writes of unknown outcome."""


class Session:
    """One profile, from its first frame until another profile replaces it."""

    def __init__(
        self,
        settings: Settings,
        profile: Profile,
        clock: Callable[[], datetime],
        first: "FirstPaint | None",
        *,
        owner: "DOMNode",
        toast: Callable[..., None],
        copy_text: Callable[[str], None],
        can_switch: bool = False,
    ) -> None:
        """Prepare; `first` is what the cache held at first, and `owner` runs workers and publishes signals."""
        self.settings = settings
        self._automations = settings.automations
        self.profile = profile
        self.clock = clock
        self.first = first
        self.patience = PollTiming(clock(), profile.poll.runs_s)
        self.healthy_words = frozenset(settings.console.health_ok)
        self.not_open = STILL_OPENING
        """The answer to a key that needs the engine before it is open."""
        self.engine: Engine | None = None
        self.vitals = _vitals_of(profile, first, can_switch=can_switch)
        start = cast("Start", owner.run_worker)
        self.batches = Batches(lambda: self.engine, start, Signal(owner, "batches changed"))
        self.inbox = InboxFeed(lambda: self.engine, lambda: self._automations, start, self._show_inbox)
        self.tour = Tour(settings, start, Signal(owner, "tour changed"))
        self.pins: tuple[PinnedRun, ...] = ()
        """The followed runs, as read last."""
        self.engine_changed: Signal[Event] = Signal(owner, "engine changed")
        self.vitals_changed: Signal[Vitals] = Signal(owner, "vitals changed")
        self.pins_changed: Signal[tuple[PinnedRun, ...]] = Signal(owner, "pins changed")
        self.inbox_changed: Signal[tuple[InboxItem, ...]] = Signal(owner, "inbox changed")
        self._toast = toast
        self._copy_text = copy_text
        self._vitals_reader = CoalescedTask(self._read_vitals, start)
        self._unknown_reader = CoalescedTask(self._read_unknown, start)
        self._unsubscribe: tuple[Callable[[], None], ...] = ()
        self._opened = asyncio.Event()
        self._storage_trouble: str | None = None
        self._run_clock_ahead = timedelta(0)
        self._told_of_clock = timedelta(0)  # The difference that was reported last.
        self._has_polled = False
        """Whether a poll ended since the header was read last."""

    # The engine

    async def opened(self) -> "Engine":
        """Wait until the engine is open and return it."""
        await self._opened.wait()
        if self.engine is None:
            raise RuntimeError("The engine could not be opened.")
        return self.engine

    def open(self, engine: "Engine") -> None:
        """Start to use the engine."""
        self.engine = engine
        self._unsubscribe = engine.subscribe(self.hear), engine.subscribe(self.engine_changed.publish)
        self._opened.set()
        self.refresh_vitals()
        self._unknown_reader.ask()
        self.inbox.ask()
        if engine.cache.set_aside is not None:
            self.notify(str(engine.cache.set_aside))

    def leave(self) -> None:
        """Stop listening to the engine; its owner closes it."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe, self.engine = (), None
        self.show_pins(())

    def hear(self, event: "Event") -> None:
        """Handle an event of the engine."""
        from app.events import (
            ActionChanged,
            CacheChangedElsewhere,
            LinkChanged,
            StateChangedElsewhere,
            StorageFailed,
        )

        if isinstance(event, StorageFailed):
            self.storage_failed(event.message)
        if isinstance(event, LinkChanged) and event.own_failure is not None and event.state.subject == "runs":
            title, text = own_failure_text(event.own_failure)
            self.notify(text, title=title, severity="warning", timeout=CURE_S)
        self._has_polled = self._has_polled or isinstance(event, LinkChanged)
        if not isinstance(event, ActionChanged | StateChangedElsewhere):
            self.refresh_vitals()
        if isinstance(event, ActionChanged | CacheChangedElsewhere):
            self._unknown_reader.ask()
        self.batches.engine_changed(event)
        self.inbox.engine_changed(event)

    @property
    def is_settled(self) -> bool:
        """Whether the engine was opened, or failed to open."""
        return self.engine is not None or self._storage_trouble is not None

    def poll_soon(self) -> None:
        """Poll the service now."""
        if self.engine is not None:
            self.engine.polling.poll_soon("runs")
            self.engine.polling.poll_soon("health")

    # The header and the banner

    def refresh_vitals(self) -> None:
        """Read the header's figures again."""
        self._vitals_reader.ask()

    def show_vitals(self, vitals: Vitals) -> None:
        """Replace the header's figures."""
        self.vitals = vitals
        self.vitals_changed.publish(vitals)

    def show_pins(self, pins: "tuple[PinnedRun, ...]") -> None:
        """Replace the followed runs."""
        self.pins = pins
        self.pins_changed.publish(pins)
        self.inbox.ask()

    def trouble(self) -> "Notice | None":
        """The trouble with our own files or the link, or None."""
        return self.storage_trouble or link_notice(self.vitals.runs_link, self.clock())

    @property
    def storage_trouble(self) -> "Notice | None":
        """The trouble with our own files, or None."""
        return None if self._storage_trouble is None else storage_notice(self._storage_trouble)

    @property
    def standing(self) -> "Notice | None":
        """A notice that always applies to this profile, or None."""
        return READ_ONLY if self.profile.read_only else None

    @property
    def as_of(self) -> datetime | None:
        """When the service last answered, if it no longer does, by the runs' clock; None: the rows are live."""
        link = self.vitals.runs_link
        if link is None or link.last_ok_at is None or not link.is_failing:
            return None
        return link.last_ok_at + self._run_clock_ahead

    def run_now(self) -> datetime:
        """The current time by the runs' clock: the service's may be hours away from this machine's."""
        return self.clock() + self._run_clock_ahead

    def storage_failed(self, message: str) -> None:
        """Report on every screen that our own files fail."""
        self._storage_trouble = message
        self.not_open = f"The console cannot use its own files. {message}"
        self.show_vitals(replace(self.vitals, files_fail=True))

    async def _read_vitals(self) -> None:
        if (engine := self.engine) is None:
            return
        self._run_clock_ahead = await engine.cache.run_clock_ahead()
        self._tell_of_clock(engine.client.budget.clock_ahead)
        vitals = await read_vitals(engine, self.vitals, self.clock())
        vitals = replace(vitals, unknown=self.vitals.unknown, inbox=self.vitals.inbox)
        if vitals.failed != self.vitals.failed:
            self.inbox.ask_soon(self.clock())
        if self._storage_trouble is not None and self._has_polled:
            # The cache was written and read; once the ledger can be read as well, the trouble is over.
            await engine.ledger.actions(limit=1)
            self._storage_trouble, vitals = None, replace(vitals, files_fail=False)
        self._has_polled = False
        self.show_vitals(vitals)

    def take_automations(self, automations: "Sequence[Rule]") -> None:
        """Use these rules from now on: they were just written into the configuration."""
        self._automations = tuple(automations)
        self.inbox.ask()

    def _show_inbox(self, items: "tuple[InboxItem, ...]") -> None:
        if len(items) != self.vitals.inbox:
            self.show_vitals(replace(self.vitals, inbox=len(items)))
        self.inbox_changed.publish(items)

    async def _read_unknown(self) -> None:
        # Apart from the rest: a poll does not change this, and the ledger may fail where the cache does not.
        if (engine := self.engine) is None:
            return
        unknown = (await engine.ledger.journal(UNKNOWN, limit=0)).matching
        if unknown != self.vitals.unknown:
            self.show_vitals(replace(self.vitals, unknown=unknown))

    def _tell_of_clock(self, ahead: timedelta) -> None:
        if abs(ahead - self._told_of_clock) < timedelta(minutes=1):
            return
        self._told_of_clock = ahead
        if ahead:
            said = clocks_apart(ahead)
            self.notify(f"{said} Ages of runs are counted by the service's clock.", severity="warning", timeout=CLOCK_S)

    async def guard(self, work: Callable[..., Awaitable[Result]], *arguments: Any, **options: Any) -> Result | None:
        """Do the work; a failure of our own files or of a request becomes a notice."""
        return await guarded(work(*arguments, **options), self.failed)

    def failed(self, error: StorageError | ApiError) -> None:
        """Report a failure: of our own files in every screen's banner, of a request in a toast."""
        if isinstance(error, StorageError):
            self.storage_failed(str(error))
        else:
            self.notify(str(error), severity="error")

    # Notices

    def notify(self, message: str, *, severity: str = "information", title: str = "", timeout: float = TOAST_S) -> None:
        """Show a toast; foreign parts of the message must be safe text."""
        self._toast(safe_text(message), title=title, severity=severity, markup=False, timeout=timeout)

    def copy(self, text: str) -> None:
        """Copy foreign text as safe text and confirm it: pasted into a shell, it must not act."""
        safe = safe_text(text, limit=LONGEST_COPY)
        self.copy_as_is(safe, f"Copied {safe}")

    def copy_as_is(self, text: str, said: str) -> None:
        """Copy text that is safe already."""
        self._copy_text(text)
        self.notify(said)


async def guarded(work: Awaitable[Result], failed: Callable[[StorageError | ApiError], object]) -> Result | None:
    """Do the work and report a failure of our own files or of a request."""
    try:
        return await work
    except (StorageError, ApiError) as error:
        failed(error)
        return None


async def guarded_dispatch(screen: ModalScreen[Any], message: Message) -> None:
    """Stand in for a sheet's `_dispatch_message`: the app reports failures."""
    work, report = ModalScreen._dispatch_message(screen, message), screen.app._handle_exception  # noqa: SLF001 — no public ones
    await guarded(work, report)


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


def _vitals_of(profile: Profile, first: "FirstPaint | None", *, can_switch: bool) -> Vitals:
    """The header's figures before anything is read of the service."""
    vitals = Vitals(profile.name, profile.read_only, can_switch=can_switch)
    return vitals if first is None else replace(vitals, runs_link=link_of(first.links, "runs"), health=first.health)
