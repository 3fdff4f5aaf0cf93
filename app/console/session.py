"""The session: the profile on show, its engine, the screens' shared state, and their messages to the app.

Feeds are facts that are read again after events: the header's figures, the inbox, and the batches under way. Work
requested more often than it can be done runs once at a time, and once more for all later requests.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from textual.app import App
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.signal import Signal

from app.console.terminal import copy_out
from app.console.troubles import link_notice, own_failure_text, storage_notice
from app.engine.events import (
    ActionChanged,
    Event,
    FilesChangedElsewhere,
    HealthChanged,
    LinkChanged,
    RunsChanged,
    StateChangedElsewhere,
    StorageFailed,
)
from app.engine.text import safe_text
from app.engine.times import clocks_apart
from app.profiles import Profile, Settings
from storage import RunwardenError
from storage.errors import StorageError
from storage.records import ActionFilter, link_of
from storage.records.activity import Wait
from storage.records.error_kinds import error_kind
from widgets.frame import Notice, PollTiming, Vitals
from widgets.kit.badges import ProfileMark

if TYPE_CHECKING:
    from app.actions.screen_batch import RunBatch
    from app.automations.rule import Rule
    from app.engine.engine import Engine
    from app.inbox.inbox import Inbox
    from app.profiles.engines import ProfileEngines
    from storage.cache.first_paint import FirstPaint
    from storage.records.following import PinnedRun
    from storage.records.inbox import InboxItem
    from widgets.runs.follow import BatchView

FOLLOWED: Final = "is:followed"
"""The target in Runs: the followed runs."""
FIRST_UNKNOWN: Final = "unknown"
"""The target in Activity: its first write of unknown outcome."""
ResultT = TypeVar("ResultT")
MAX_COPY: Final = 10_000
"""The most characters that are copied: more than any id has, since a shortened id would be another one."""
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
SEEN_AFTER: Final = timedelta(seconds=2)
"""How long a finished run must have been shown before a key means that someone saw it."""
MAX_NOTICES: Final = 9
TOAST_S: Final = 4.0
FIX_TOAST_S: Final = 10.0
"""Seconds that a toast which names a fix is shown."""


@dataclass
class OpenRun(Message):
    """Show one run on the full screen."""

    run_id: str
    profile: str = ""
    """The run's profile, which the console switches to; empty: the one on show."""
    part: str = "conversation"
    """The part of the run's page to show."""


@dataclass
class FollowRun(Message):
    """Follow these runs; unfollow them if all are followed."""

    run_ids: tuple[str, ...]
    profile: str = ""
    """The profile whose runs they are. Empty: the one on show."""


@dataclass
class GoToTab(Message):
    """Show another tab and a target in it."""

    name: str
    target: str | None = None
    """The key of a row, or for runs a line of the query language; None: the tab as it was left."""


@dataclass
class SwitchProfile(Message):
    """Ask the app to show another profile."""

    name: str


def mark_of(of: "Engine | Session") -> ProfileMark:
    return ProfileMark(of.profile.name, of.settings.color_of(of.profile.name))


class ShownNotice(Struct, frozen=True):
    """A toast, for the key that opens it."""

    text: str
    opens: Message | None
    """Opens the toast's subject; None if it has none."""
    until: datetime
    """When the toast disappears."""


@dataclass(eq=False)
class CoalescedTask:
    """Runs its work when asked; requests during a run lead to exactly one more run."""

    _work: Callable[[], Coroutine[None, None, None]]
    _start: Callable[..., object]
    """Runs a coroutine function in the background, such as a screen's `run_worker`."""
    _wanted: bool = False
    _busy: bool = False
    _run: asyncio.Task[None] | None = None
    _is_given_up: bool = False

    def ask(self) -> None:
        """Run the work now, or once more after the current run."""
        self._wanted = True
        if not self._busy:
            self._busy = True
            self._start(self._drain)

    def ask_anew(self) -> None:
        """Run the work now: a current run is cancelled, since nobody needs its result."""
        if self._run is not None:
            self._is_given_up = True
            self._run.cancel()
        self.ask()

    async def _drain(self) -> None:
        has_failed = False
        try:
            while self._wanted:
                self._wanted = self._is_given_up = False
                self._run = asyncio.ensure_future(self._work())
                try:
                    await self._run
                except asyncio.CancelledError:
                    if not self._is_given_up:
                        self._run.cancel()
                        raise
                finally:
                    self._run = None
        except Exception:
            has_failed = True
            raise
        finally:
            self._busy = False
            # The error is reported at once; requests from before it are served by another task.
            if has_failed and self._wanted:
                self.ask()


CLOCK_S: Final = 15.0
"""Seconds for which the notice about differing clocks is shown, once."""
TODAY: Final = timedelta(hours=24)
ASK_AGAIN: Final = timedelta(seconds=4)
"""How soon a service that gives no answer is asked again while the terminal has the focus."""


class VitalsFeed:
    """The vitals of one session, read again whenever they may have changed."""

    def __init__(self, session: "Session", now: Vitals) -> None:
        self._session = session
        self.now, self.timing = now, PollTiming(session.clock(), session.profile.poll.runs_s)
        self.changed: Signal[Vitals] = Signal(session.app, "vitals changed")
        self._reader = CoalescedTask(self._read, session.app.run_worker)
        self._unknown_reader = CoalescedTask(self._read_unknown, session.app.run_worker)
        self._storage_trouble: str | None = None
        self.run_clock_ahead = timedelta(0)
        """How far the service's clock, by which runs are timed, is ahead of this machine's."""
        self._reported_ahead = timedelta(0)
        """The difference that was reported last."""
        self._has_polled = False
        """Whether a poll ended since the last reading."""
        self._asks_at = session.clock()
        """When the service is asked again for someone who looks at old rows."""
        self._may_create: bool | None = False if now.read_only else None
        """Whether the token may create organizations; None: the service was not asked yet."""

    def ask(self) -> None:
        self._reader.ask()
        self._unknown_reader.ask()

    def engine_changed(self, event: Event) -> None:
        if isinstance(event, StorageFailed):
            self.storage_failed(event.message)
        self._has_polled = self._has_polled or isinstance(event, LinkChanged)
        if not isinstance(event, ActionChanged | StateChangedElsewhere):
            self._reader.ask()
        is_answered = isinstance(event, LinkChanged) and event.state.subject == "runs" and not event.state.is_failing
        if isinstance(event, ActionChanged | FilesChangedElsewhere) or (is_answered and self._may_create is None):
            self._unknown_reader.ask()

    def storage_failed(self, message: str) -> None:
        """Report on every screen that our own files fail."""
        self._storage_trouble = message
        self._show(self.now)

    def change(self, **figures: Any) -> None:
        if (vitals := replace(self.now, **figures)) != self.now:
            self._show(vitals)

    def set_up(self, tab: str, *, is_set_up: bool) -> None:
        before = self.now.set_up
        self.change(set_up=before | {tab} if is_set_up else before - {tab})

    @property
    def as_of(self) -> datetime | None:
        """When the service last answered, if it no longer does, by the runs' clock; None: the rows are live."""
        link = self.now.runs_link
        if link is None or link.last_ok_at is None or not link.is_failing:
            return None
        return link.last_ok_at + self.run_clock_ahead

    def tick(self, now: datetime) -> None:
        """Poll again because the user is looking at old rows, unless the service asked for a pause."""
        if now >= self._asks_at and self._is_awaited(self.now) and (engine := self._session.engine) is not None:
            self._asks_at = now + ASK_AGAIN
            engine.polling.poll_soon("runs")

    def _is_awaited(self, vitals: Vitals) -> bool:
        link, wait = vitals.runs_link, vitals.wait
        if link is None or not self._session.app.app_focus or (wait is not None and wait.reason != "service_down"):
            return False
        if link.is_failing or link.last_ok_at is None:
            return error_kind(link.error_kind).concerns == "link"
        # Another process may poll, and wait longer.
        return (self._session.clock() - link.last_ok_at).total_seconds() >= self.timing.due_after_s

    @property
    def trouble(self) -> Notice | None:
        return self.storage_trouble or link_notice(self.now.runs_link, self._session.clock(), self.now.wait)

    @property
    def storage_trouble(self) -> Notice | None:
        return None if self._storage_trouble is None else storage_notice(self._storage_trouble)

    @property
    def files_trouble(self) -> str:
        """Why our own files cannot be used, with the fix; empty if they can."""
        return self._storage_trouble or self.state_trouble

    @property
    def state_trouble(self) -> str:
        """Why the state cannot be used, which prevents acknowledging items; empty if it can."""
        engine = self._session.engine
        return str(engine.state) if engine is not None and isinstance(engine.state, StorageError) else ""

    def _show(self, vitals: Vitals) -> None:
        self.now = replace(vitals, files_fail=self._storage_trouble is not None)
        self.changed.publish(self.now)

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        trouble, has_polled, self._has_polled = self._storage_trouble, self._has_polled, False
        vitals = await read_vitals(engine, self.now, self._session.clock())
        self.run_clock_ahead = ahead = engine.budget.clock_ahead
        if abs(ahead - self._reported_ahead) >= timedelta(minutes=1):
            self._reported_ahead = ahead
            if ahead:
                text = f"{clocks_apart(ahead)} Ages of runs are counted by the service's clock."
                self._session.notify(text, severity="warning", timeout=CLOCK_S)
        if self._is_awaited(vitals):
            vitals = replace(vitals, wait=Wait("service_down", self._asks_at))
        if self.now.link_fails and not vitals.link_fails and vitals.health_is_stale:
            engine.polling.poll_soon("health")
        if trouble is not None and has_polled:
            # The cache was written and read; once the ledger can be read too, the problem is over.
            await engine.ledger.actions(limit=1)
            self._storage_trouble = None
        self._show(replace(vitals, unknown=self.now.unknown, inbox=self.now.inbox, set_up=self.now.set_up))

    async def _read_unknown(self) -> None:
        # Separate from the other figures: a poll does not change it, and the ledger may fail while the cache works.
        if (engine := self._session.engine) is None:
            return
        self.change(unknown=await engine.ledger.count(ActionFilter(is_unresolved=True)))
        is_set_up = bool(await engine.ledger.actions(ActionFilter(["organization.create"]), limit=1))
        self.set_up("organizations", is_set_up=is_set_up or bool(self._may_create))
        link = link_of(await engine.cache.links(), "runs")
        if self._may_create is None and link is not None and link.last_ok_at is not None and not link.is_failing:
            from app.organizations.invitations import may_create  # the engine, which is open, has imported its client

            # If the request fails, it is repeated after the service's next answer.
            self._may_create = await may_create(engine)
            self.set_up("organizations", is_set_up=is_set_up or bool(self._may_create))


async def read_vitals(engine: "Engine", before: Vitals, now: datetime) -> Vitals:
    """Read the header's figures.

    Raises:
        StorageError: The cache cannot be read.
    """
    wait = await engine.polling.next_poll()
    figures = await engine.cache.figures(now + engine.budget.clock_ahead - TODAY)
    counts, runs_link, health_link = figures.runs, link_of(figures.links, "runs"), link_of(figures.links, "health")
    return replace(
        before,
        runs_link=runs_link,
        wait=wait,
        working=counts.get("working", 0),
        queued=counts.get("queued", 0),
        failed=counts.get("failed", 0),
        failed_today=figures.failed_lately,
        health=figures.health,
        health_is_stale=health_link is not None and health_link.is_failing,
        known=bool(counts) or (runs_link is not None and runs_link.last_ok_at is not None),
    )


AT_MOST_EVERY: Final = timedelta(seconds=2)
AT_LEAST_EVERY: Final = timedelta(minutes=1)
"""The end of a snooze and a silent bot cause no event."""


class InboxFeed:
    """The inbox of one session."""

    def __init__(self, session: "Session") -> None:
        """Start empty; after each reading the vitals have the number of items."""
        self.changed: Signal[tuple[InboxItem, ...]] = Signal(session.app, "inbox changed")
        self.items: tuple[InboxItem, ...] | None = None
        """None: not read yet."""
        self.can_undo = False
        """Whether `undo` has something to bring back."""
        self.inbox: Inbox | None = None
        """None: the engine is not open yet."""
        self._session, self._automations = session, session.settings.automations
        self._read_at: datetime | None = None
        self._failed = 0
        """The number of failed runs at the last reading."""
        self.ask = CoalescedTask(self._read, session.app.run_worker).ask
        """Reads the items again."""

    def use_automations(self, automations: "Sequence[Rule]") -> None:
        """Use these rules from now on: they were just written into the configuration."""
        self._automations = tuple(automations)
        self._session.vitals.set_up("automations", is_set_up=bool(automations))
        self.ask()

    def engine_changed(self, event: Event) -> None:
        """Read the items again if this event may have changed them; `tick` sees new failed runs."""
        has_moved = isinstance(event, RunsChanged) and bool(event.changes.transitions or event.changes.updated)
        # A confirmed health status can only close an item.
        has_moved |= isinstance(event, HealthChanged) and bool(event.changes or self.items)
        if has_moved or isinstance(event, ActionChanged | FilesChangedElsewhere | StateChangedElsewhere):
            self.ask()

    def tick(self, now: datetime) -> None:
        """Read the items again each minute, and soon after a failed run arrived: a backfill brings many of them."""
        every = AT_LEAST_EVERY if self._session.vitals.now.failed == self._failed else AT_MOST_EVERY
        if self._read_at is not None and now - self._read_at >= every:
            self.ask()

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        if self.inbox is None or self.inbox.engine is not engine:
            # In a thread: this imports the automations.
            await asyncio.to_thread(import_module, "app.inbox.inbox")
            from app.inbox.inbox import Inbox

            self.inbox = Inbox.of(engine, lambda: self._automations)
        self._read_at, self._failed = engine.clock(), self._session.vitals.now.failed
        self.can_undo = await self.inbox.can_undo()
        self.items = await self.inbox.items()
        self._session.vitals.change(inbox=len(self.items))
        self.changed.publish(self.items)


class Batches:
    """Started batches that were not dismissed."""

    def __init__(self, session: "Session") -> None:
        """Start empty; `changed` is published with the views of all batches."""
        self.changed: Signal[tuple[BatchView, ...]] = Signal(session.app, "batches changed")
        self.views: tuple[BatchView, ...] = ()
        """Newest first."""
        self._session = session
        self._batches: dict[str, RunBatch] = {}
        self._reading = CoalescedTask(self._read, session.app.run_worker)

    def put(self, batch: "RunBatch") -> None:
        """Add a batch, or replace it with its next stage."""
        if batch.sent or batch.is_sending:
            self._batches[batch.batch_id] = batch
            self._reading.ask()

    def dismiss(self, key: str) -> None:
        self._batches.pop(key, None)
        self._reading.ask()

    def engine_changed(self, event: Event) -> None:
        if self._batches and isinstance(event, RunsChanged | ActionChanged | FilesChangedElsewhere):
            self._reading.ask()

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        for key, batch in tuple(self._batches.items()):
            for open_action in batch.unknown:
                action = await engine.ledger.action(open_action.action_id)
                if key in self._batches and action is not None and action.state != open_action.state:
                    self._batches[key] = self._batches[key].resolved(action)
        details = await engine.cache.details([run_id for batch in self._batches.values() for run_id in batch.made])
        views = tuple(batch.view(details) for batch in reversed(self._batches.values()))
        if views != self.views:
            self.views = views
            self.changed.publish(views)


class Session:
    """One profile, from its first frame until another profile replaces it."""

    def __init__(
        self,
        settings: Settings,
        profile: Profile,
        clock: Callable[[], datetime],
        first: "FirstPaint | None",
        app: App[Any],
        engines: "ProfileEngines",
    ) -> None:
        """Prepare; `first` holds the first rows of the cache, and the app runs workers and shows toasts."""
        self.settings = settings
        self.profile = profile
        self.clock = clock
        self.first = first
        self.app = app
        self.engines = engines
        self.engine: Engine | None = None
        rules = frozenset({"automations"} if settings.automations else ())
        color = settings.color_of(profile.name)
        now = Vitals(profile.name, profile.read_only, color, can_switch=len(engines.profiles) > 1, set_up=rules)
        if first is not None:
            now = replace(now, runs_link=link_of(first.links, "runs"), health=first.health)
        self.vitals = VitalsFeed(self, now)
        self.batches = Batches(self)
        self.inbox = InboxFeed(self)
        self.pins: tuple[PinnedRun, ...] = ()
        """The followed runs, as read last."""
        self._ended: dict[str, datetime] = {}
        """When each followed run or batch was first shown as ended."""
        self._looked_at = clock()
        """The last key or click."""
        self.pins_changed: Signal[tuple[PinnedRun, ...]] = Signal(app, "pins changed")
        self.engine_changed: Signal[Event] = Signal(app, "engine changed")
        self._unsubscribe: Callable[[], None] = lambda: None
        self._opened = asyncio.Event()
        self.notices: deque[ShownNotice] = deque(maxlen=MAX_NOTICES)
        """The latest notices, the newest first."""

    @property
    def healthy_words(self) -> frozenset[str]:
        """The statuses of a healthy code host."""
        return frozenset(self.settings.console.health_ok)

    # Engine

    async def opened(self) -> "Engine":
        await self._opened.wait()
        return self.open_engine

    @property
    def open_engine(self) -> "Engine":
        """The open engine; only the Runs screen can be shown before it is open."""
        if self.engine is None:
            raise RuntimeError("The engine is not open.")
        return self.engine

    def open(self, engine: "Engine") -> None:
        self.engine = engine
        self._unsubscribe = engine.events.subscribe(self.handle)
        self._opened.set()
        self.vitals.ask()
        self.inbox.ask()
        if engine.cache.set_aside is not None:
            self.notify(str(engine.cache.set_aside))

    def leave(self) -> None:
        """Stop listening to the engine; its owner closes it."""
        self._unsubscribe()
        self.engine = None
        self.show_pins(())

    def handle(self, event: Event) -> None:
        if isinstance(event, LinkChanged) and event.own_failure is not None and event.state.subject == "runs":
            title, text = own_failure_text(event.own_failure)
            self.notify(text, title=title, severity="warning", timeout=FIX_TOAST_S, opens=GoToTab("health"))
        self.vitals.engine_changed(event)
        self.batches.engine_changed(event)
        self.inbox.engine_changed(event)
        self.engine_changed.publish(event)

    @property
    def not_open(self) -> str:
        """The answer to a key that needs the engine before it is open."""
        if (trouble := self.vitals.storage_trouble) is None:
            return "The profile is still opening. Try again in a moment."
        return f"The console cannot use its own files. {trouble.lines[0]}"

    def poll_soon(self) -> None:
        if self.engine is not None:
            self.engine.polling.poll_soon("runs", "health")

    # Header and banner

    def run_now(self) -> datetime:
        """The current time by the runs' clock: the service's may be hours away from this machine's."""
        return self.clock() + self.vitals.run_clock_ahead

    def show_pins(self, pins: "tuple[PinnedRun, ...]") -> None:
        if not self.pins:
            # Runs that ended before this console began are in the inbox.
            self._ended |= {pin.run_id: LONG_AGO for pin in pins if pin.row is not None and pin.row.is_final}
        self.pins = pins
        self.pins_changed.publish(pins)
        self.inbox.ask()

    def note_input(self) -> None:
        """Note a key or a click: ends that were shown long enough count as seen, and background requests wait."""
        before, self._looked_at = self._looked_at, self.clock()
        if self.engine is not None:
            self.engine.budget.give_way()
        if any(before - at < SEEN_AFTER <= self._looked_at - at for at in self._ended.values()):
            self.pins_changed.publish(self.pins)

    @property
    def followed(self) -> "tuple[tuple[PinnedRun, ...], tuple[BatchView, ...]]":
        """The followed runs and batches, without those whose end was seen."""
        ended = [pin.run_id for pin in self.pins if pin.row is None or pin.row.is_final]
        ended += [batch.key for batch in self.batches.views if batch.is_over]
        self._ended = {key: self._ended.get(key, self.clock()) for key in ended}
        seen = {key for key, at in self._ended.items() if self._looked_at - at >= SEEN_AFTER}
        pins = tuple(pin for pin in self.pins if pin.run_id not in seen)
        return pins, tuple(batch for batch in self.batches.views if batch.key not in seen)

    async def guard(self, work: Callable[..., Awaitable[ResultT]], *arguments: Any, **options: Any) -> ResultT | None:
        """Do the work; a `RunwardenError` becomes a notice."""
        try:
            return await work(*arguments, **options)
        except RunwardenError as error:
            self.failed(error)
            return None

    def failed(self, error: RunwardenError) -> None:
        """Report a failure: of a database in every screen's banner, any other in a toast."""
        if isinstance(error, StorageError):
            self.vitals.storage_failed(str(error))
        else:
            self.notify(str(error), severity="error")

    # Notices

    def notify(
        self,
        message: str,
        *,
        severity: SeverityLevel = "information",
        title: str = "",
        timeout: float = TOAST_S,
        opens: Message | None = None,
    ) -> None:
        """Show a toast, which a key opens; foreign parts of the message must be safe text."""
        text = safe_text(f"{title}: {message}" if title else message)
        self.notices.appendleft(ShownNotice(text, opens, self.clock() + timedelta(seconds=timeout)))
        self.app.notify(safe_text(message), title=title, severity=severity, markup=False, timeout=timeout)

    @property
    def has_notice(self) -> bool:
        return bool(self.notices) and self.clock() < self.notices[0].until

    def copy(self, text: str) -> None:
        """Copy foreign text as safe text and confirm it: pasted into a shell, it must not act."""
        safe = safe_text(text, limit=MAX_COPY)
        self.copy_as_is(safe, safe)

    def copy_as_is(self, text: str, name: str) -> None:
        """Copy text that is safe already; `name` names it in the confirmation."""
        how = copy_out(self.app, text)
        self.notify(f"{name} {how}.", severity="warning" if how.startswith("not") else "information")
