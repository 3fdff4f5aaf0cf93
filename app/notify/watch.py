"""The watch: looks at the cache after every change and returns the notifications, for the screen and outward."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from app.config import NotifySettings
from app.notify.incidents import IncidentReader
from app.notify.notifications import (
    Notification,
    condensed,
    link_back_notification,
    missed_notification,
    move_notifications,
    state_notifications,
)
from storage.cache.cache import Cache
from storage.records.following import Watermark

RECENT: Final = timedelta(days=2)
"""How long after an incident its end may still be told."""
SKEW: Final = timedelta(minutes=5)
"""How far the service's clock may be behind ours before a new event is taken for an old one."""


class NewNotifications(Struct, frozen=True):
    """The notifications of one look."""

    screen: tuple[Notification, ...] = ()
    """For this process's own screen."""
    outward: tuple[Notification, ...] = ()
    """For bell, desktop and command: claimed by this process alone."""


@dataclass(slots=True)
class Watch:
    """One process's watch over one profile's cache."""

    cache: Cache
    notify: NotifySettings
    healthy_words: Collection[str]
    health_s: float
    """Seconds between health polls."""
    profile: str
    clock: Callable[[], datetime]
    _watermark: Watermark | None = None
    _file: int | None = None
    """Which of the cache's files the watermark belongs to; None: it has not begun."""
    _began_at: datetime | None = None
    _since: datetime | None = None
    """Older events are history, however new to the cache."""
    _said: set[str] = field(default_factory=set)
    """Keys of states that this process, or an earlier one, has told."""
    _held: set[str] = field(default_factory=set)
    """Keys of states that began in quiet hours and still have to be told outward."""
    _link_down: Notification | None = None
    _incidents: IncidentReader = field(init=False)

    def __post_init__(self) -> None:
        hold = timedelta(seconds=self.notify.hold_s)
        self._incidents = IncidentReader(self.cache, self.healthy_words, self.health_s, hold)

    async def begin(self) -> None:
        """Start where the last watch ended, or without one from what is cached now. Call it before the first look.

        Raises:
            StorageError: The cache cannot be read.
        """
        now, self._file = self.clock(), self.cache.opened
        self._watermark = watermark = await self.cache.following.watermark()
        await self.cache.following.save_watermark(watermark, at=now)
        # Before the very first watch nothing is news, whatever the first sync brings.
        self._since = now if watermark.saved_at is None else min(now, watermark.saved_at) - SKEW
        self._began_at = now
        states = await self._states(self._began_at)
        keys = [key for one in states for key in (one.key, *one.after)]
        self._said = set(await self.cache.following.claimed(keys))

    async def look(self) -> NewNotifications:
        """The changes since the last look.

        Raises:
            StorageError: The cache cannot be read or written.
        """
        now = self.clock()
        if self._file not in {None, self.cache.opened}:
            await self.begin()
        events, missed = await self._moved()
        states = await self._states(now)
        fresh = [one for one in states if one.key not in self._said and (not one.after or self._said & set(one.after))]
        # States that have ended are forgotten.
        known = {key for one in states for key in (one.key, *one.after)}
        self._said = (self._said & known) | {one.key for one in fresh}
        pending = [one for one in states if one.key in self._held]
        outward = [] if self._is_quiet(now) else [*events, *fresh, *pending]
        if self._is_quiet(now):
            self._held |= {one.key for one in fresh if one.is_lasting}
        else:
            self._held.clear()
        won = await self.cache.following.claim([one.key for one in outward], at=now) if outward else frozenset()
        screen = [*events, *fresh, *([missed] if missed else [])]
        return NewNotifications(condensed(screen), condensed([one for one in outward if one.key in won]))

    async def _moved(self) -> tuple[Sequence[Notification], Notification | None]:
        if self._watermark is None or self._began_at is None or self._since is None:
            raise RuntimeError("A watch begins before it looks.")
        found = await self.cache.following.changes(self._watermark, since=self._since)
        if found.watermark != self._watermark:
            await self.cache.following.save_watermark(found.watermark, at=self.clock())
            self._watermark = found.watermark
        begun = self._began_at - SKEW
        # A followed run's end is always told; other moves before this watch began are summed up.
        mine_or_new = [change for change in found.changes if change.at >= begun or change.is_pinned]
        missed = [change for change in found.changes if change.at < begun and not change.is_pinned]
        news = move_notifications(mine_or_new, self.notify.on, self.profile)
        return news, missed_notification(missed, self.notify.on, self.clock())

    async def _states(self, now: datetime) -> list[Notification]:
        found, links = await self._incidents.read(now), await self.cache.links()
        link = next(each for each in links if each.subject == "runs")
        recent = [one for one in found if not one.is_over or (one.recovered_at or one.until) > now - RECENT]
        stuck = await self.cache.following.stuck_runs()
        states = state_notifications(self.notify, self.profile, now, stuck=stuck, incidents=recent, link=link)
        down = next((each for each in states if each.kind == "link"), None)
        if down is None and self._link_down is not None and not link.is_failing:
            states.append(link_back_notification(self._link_down, link, now, self.profile))
        if down is not None or not link.is_failing:
            self._link_down = down
        return states

    def _is_quiet(self, now: datetime) -> bool:
        quiet = self.notify.quiet
        return quiet is not None and quiet.cover(now.astimezone().time())
