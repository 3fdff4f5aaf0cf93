"""The session: the profile on show, its engine, the screens' shared state, and their messages to the app."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from textual.app import App
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.signal import Signal

from app.console.feeds import Batches, InboxFeed, VitalsFeed
from app.console.terminal import copy_out
from app.console.troubles import own_failure_text
from app.engine.events import Event, LinkChanged
from app.engine.text import safe_text
from app.profiles import Profile, Settings
from storage import RunwardenError
from storage.errors import StorageError
from storage.records import link_of
from widgets.frame import Vitals
from widgets.kit.badges import ProfileMark

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.profiles.engines import ProfileEngines
    from storage.cache.first_paint import FirstPaint
    from storage.records.following import PinnedRun
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
CLOCK_S: Final = 15.0
"""Seconds for which the notice about differing clocks is shown, once."""
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
        warn = partial(self.notify, severity="warning", timeout=CLOCK_S)
        self.vitals = VitalsFeed(app, lambda: self.engine, clock, now, profile.poll.runs_s, warn)
        self.batches = Batches(app, lambda: self.engine)
        self.inbox = InboxFeed(app, lambda: self.engine, self.vitals, settings.automations)
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
        before = self._looked_at
        self._looked_at = self.clock()
        if self.engine is not None:
            self.engine.budget.give_way()
        if any(before - at < SEEN_AFTER <= self._looked_at - at for at in self._ended.values()):
            self.pins_changed.publish(self.pins)

    @property
    def followed(self) -> "tuple[tuple[PinnedRun, ...], tuple[BatchView, ...]]":
        """The followed runs and batches, without those whose end was seen."""
        ended_keys = [pin.run_id for pin in self.pins if pin.row is None or pin.row.is_final]
        ended_keys += [batch.key for batch in self.batches.views if batch.is_over]
        self._ended = {key: self._ended.get(key, self.clock()) for key in ended_keys}
        seen = {key for key, at in self._ended.items() if self._looked_at - at >= SEEN_AFTER}
        pins = tuple(pin for pin in self.pins if pin.run_id not in seen)
        return pins, tuple(batch for batch in self.batches.views if batch.key not in seen)

    async def guard(self, work: Callable[..., Awaitable[ResultT]], *arguments: Any, **options: Any) -> ResultT | None:
        """Do the work; a `RunwardenError` becomes a notice."""
        try:
            return await work(*arguments, **options)
        except RunwardenError as error:
            self.report_error(error)
            return None

    def report_error(self, error: RunwardenError) -> None:
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
        result = copy_out(self.app, text)
        self.notify(f"{name} {result}.", severity="warning" if result.startswith("not") else "information")
