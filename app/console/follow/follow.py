"""What one console follows and tells: it asks the watch after every change, and hands the runs on to the screens."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from app.console.latest import Latest, Start
from app.events import ActionChanged, Event, StorageFailed
from app.notify.channels import Channels
from app.notify.watch import Watch
from app.text import safe_text
from storage.cache import Cache
from storage.errors import StorageError

if TYPE_CHECKING:
    from app.engine import Engine
    from app.notify.notifications import Notification
    from storage.records.following import PinnedRun


@dataclass(frozen=True, slots=True)
class Ways:
    """How it reaches the screen and the terminal around it."""

    start: Start
    """Runs a coroutine in the background."""
    show: "Callable[[tuple[PinnedRun, ...]], None]"
    tell: "Callable[[Notification], None]"
    """A toast."""
    say: Callable[[str], None]
    """A toast about something that went wrong."""
    ring_bell: Callable[[], None]
    write: Callable[[str], None]
    """To the terminal as it stands; to nowhere where there is none."""
    failed: Callable[[str], None]
    """Our own files cannot be used; the message names the cure."""


class Follow:
    """Begins with `begin`; from then on `rang` hears the engine's events."""

    def __init__(
        self, cache: Cache, watch: Watch, channels: Channels, clock: Callable[[], datetime], ways: Ways
    ) -> None:
        self.pins: tuple[PinnedRun, ...] = ()
        """As they were read last."""
        self._cache = cache
        self._watch = watch
        self._channels = channels
        self._clock = clock
        self._ways = ways
        self._troubles: set[str] = set()
        """What was said of ways that fail: once is enough."""
        self._has_begun = False
        self._looking = Latest(self._look, ways.start)

    @classmethod
    def on(cls, engine: "Engine", ways: Ways) -> "Follow":
        """Over an open engine, as its settings have it."""
        settings, profile = engine.settings, engine.profile
        watch = Watch(
            engine.cache,
            settings.notify,
            frozenset(settings.console.health_ok),
            profile.poll.health_s,
            profile.name,
            engine.clock,
        )
        channels = Channels(settings.notify, profile.name, os.environ, ways.ring_bell, ways.write)
        return cls(engine.cache, watch, channels, engine.clock, ways)

    def rang(self, event: Event) -> None:
        """Something changed: there may be something to tell, and the followed runs may be elsewhere."""
        if not isinstance(event, ActionChanged | StorageFailed):
            self._looking.ask()

    def look(self) -> None:
        """Looks now."""
        self._looking.ask()

    async def toggle(self, run_id: str) -> bool:
        """Follows a run, or lets it go; whether it is followed now.

        Raises:
            StorageError: The cache cannot be written.
        """
        following = self._cache.following
        is_followed = not await following.unpin(run_id)
        if is_followed:
            await following.pin(run_id, at=self._clock())
        await self._read_pins()
        return is_followed

    async def let_go_ended(self) -> int:
        """Lets go of the followed runs that have ended; how many those were.

        Raises:
            StorageError: The cache cannot be written.
        """
        count = await self._cache.following.unpin_ended()
        await self._read_pins()
        return count

    async def _look(self) -> None:
        try:
            if not self._has_begun:
                await self._watch.begin()
                self._has_begun = True
            telling = await self._watch.look()
            await self._read_pins()
        except StorageError as error:
            self._ways.failed(str(error))
            return
        for news in telling.screen:
            self._ways.tell(news)
        if telling.outward:
            self._ways.start(self._deliver(telling.outward))

    async def _read_pins(self) -> None:
        pins = await self._cache.following.pins()
        if pins != self.pins:
            self.pins = pins
            self._ways.show(pins)

    async def _deliver(self, news: "tuple[Notification, ...]") -> None:
        for trouble in await self._channels.deliver(news):
            if trouble not in self._troubles:
                self._troubles.add(trouble)
                self._ways.say(safe_text(f"A notification was not delivered. {trouble}", limit=300))
