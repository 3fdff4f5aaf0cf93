"""Reads the incidents of a profile's code hosts, and computes them again only after a new health sample."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Self

from app.health.facts import Incident, incidents, longest_gap
from app.profiles import Profile, Settings
from storage.cache.cache import Cache
from storage.records import HealthSpan, PlatformHealth

WHOLE: Final = timedelta(days=40)
"""The whole history that the cache keeps: with less, an incident could seem to start where the history starts."""


@dataclass(slots=True)
class IncidentReader:
    """Reads the incidents of one profile's code hosts."""

    cache: Cache
    healthy_words: Collection[str]
    health_s: float
    hold: timedelta
    """How long a host must be healthy before an incident is over."""
    _hosts: tuple[PlatformHealth, ...] = ()
    _states: list[tuple[str, str, bool, datetime]] | None = None
    """The state of each host at the last look, or None if nothing was read yet."""
    _incidents: tuple[Incident, ...] = ()

    @classmethod
    def of(cls, cache: Cache, settings: Settings, profile: Profile) -> Self:
        hold = timedelta(seconds=settings.notify.hold_s)
        return cls(cache, frozenset(settings.console.health_ok), profile.poll.health_s, hold)

    async def spans(self, since: datetime) -> Sequence[HealthSpan]:
        return await self.cache.health_spans(since, longest_gap=longest_gap(self.health_s))

    async def read(self, hosts: tuple[PlatformHealth, ...], now: datetime) -> tuple[Incident, ...]:
        """The incidents of all hosts, which are in this state now, grouped by host, the newest first."""
        # This is called after every poll. Incidents that are over last until a host's state changes.
        are_over = all(incident.is_over for incident in self._incidents)
        states = [(host.platform, host.status, host.connected, host.since) for host in hosts]
        if states != self._states or (not are_over and hosts != self._hosts):
            connected = {host.platform for host in hosts if host.connected}
            self._incidents = tuple(
                incident
                for platform, own in groupby(await self.spans(now - WHOLE), lambda span: span.platform)
                for incident in incidents(tuple(own), self.healthy_words, self.hold, connected=platform in connected)
            )
            self._hosts, self._states = hosts, states
        return self._incidents
