"""The code hosts' incidents, computed again only after a new health sample."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Self

from app.health.facts import Incident, incidents, longest_gap
from app.profiles import Profile, Settings
from storage.cache.cache import Cache
from storage.records import PlatformHealth

WHOLE: Final = timedelta(days=40)
"""The whole history that the cache keeps: with less, an incident could seem to start where the history starts."""


@dataclass(slots=True)
class IncidentReader:
    """Reads the incidents of one profile's code hosts."""

    cache: Cache
    healthy_words: Collection[str]
    health_s: float
    """Seconds between health polls."""
    hold: timedelta
    """How long a host must be healthy before an incident is over."""
    _hosts: tuple[PlatformHealth, ...] = ()
    _states: list[tuple[str, str, bool, datetime]] | None = None
    """The state of each host at the last look. None: nothing was read yet."""
    _incidents: tuple[Incident, ...] = ()

    @classmethod
    def of(cls, cache: Cache, settings: Settings, profile: Profile) -> Self:
        """Create the reader of a profile."""
        hold = timedelta(seconds=settings.notify.hold_s)
        return cls(cache, frozenset(settings.console.health_ok), profile.poll.health_s, hold)

    async def read(self, now: datetime) -> tuple[Incident, ...]:
        """The incidents of all hosts, grouped by host, the newest first."""
        hosts = await self.cache.health()
        # This is called after every poll. Incidents that are over last until a host's state changes.
        are_over = all(incident.is_over for incident in self._incidents)
        states = [(host.platform, host.status, host.connected, host.since) for host in hosts]
        if states != self._states or (not are_over and hosts != self._hosts):
            connected = {host.platform for host in hosts if host.connected}
            spans = await self.cache.health_spans(now - WHOLE, longest_gap=longest_gap(self.health_s))
            self._incidents = tuple(
                incident
                for platform, own in groupby(spans, lambda span: span.platform)
                for incident in incidents(tuple(own), self.healthy_words, self.hold, connected=platform in connected)
            )
            self._hosts, self._states = hosts, states
        return self._incidents
