"""The past of code hosts and of our link, computed from samples: their uptime, their changes and their incidents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Final

from app.health import HealthLevel, Incident, Uptime, flips, incidents, slices, uptime
from storage.records import HealthSpan, PlatformHealth
from storage.records.activity import PollSpan

REFUSALS: Final = frozenset({"not_authorized", "forbidden", "token"})
"""Errors of the token, not of the link."""
LONGEST_WINDOW: Final = timedelta(days=30)
WINDOWS: Final = (("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("30d", LONGEST_WINDOW))
SLICES: Final = 288
"""More than most screens have columns; several share a cell."""
SLICE: Final = timedelta(days=1) / SLICES
FLAPPING: Final = timedelta(minutes=15)
LONGEST_GAP: Final = timedelta(minutes=10)
"""Samples further apart do not cover the time between them, unless they are meant to be that far apart."""
_ANSWERED: Final = "ok"


@dataclass(frozen=True, slots=True)
class PlatformHistory:
    """The past of one platform, as read at one time."""

    history: tuple[HealthLevel | None, ...]
    uptimes: tuple[Uptime, ...]
    """One for each of `WINDOWS`."""
    flips: int = 0
    """Changes between well and unwell within `FLAPPING`."""
    incidents: tuple[Incident, ...] = ()
    """The incidents, newest first."""


NOTHING_SEEN: Final = PlatformHistory((), (Uptime(LONGEST_WINDOW, 0, 0),) * len(WINDOWS))


@dataclass(frozen=True, slots=True)
class SampleReader:
    """Makes histories of samples."""

    healthy_words: frozenset[str]
    hold: timedelta
    """A shorter recovery ends no incident."""
    longest_gap: timedelta

    def pasts(
        self, hosts: Sequence[PlatformHealth], spans: Sequence[HealthSpan], now: datetime
    ) -> dict[str, PlatformHistory]:
        """Return each platform's past by name; without samples it is empty."""
        own = {platform: tuple(group) for platform, group in groupby(spans, lambda span: span.platform)}
        return {host.platform: self._past(host, own.get(host.platform, ()), now) for host in hosts}

    def link_past(self, polls: Sequence[PollSpan], now: datetime) -> PlatformHistory:
        """Our link's past, from the polls of runs, newest first."""
        return self._uptime(_link_spans(polls, self.longest_gap), now, frozenset({_ANSWERED}))

    def _uptime(self, spans: tuple[HealthSpan, ...], now: datetime, words: frozenset[str]) -> PlatformHistory:
        uptimes = tuple(uptime(spans, window, now, words) for _, window in WINDOWS)
        return PlatformHistory(slices(spans, now, SLICES, SLICE, words), uptimes)

    def _past(self, host: PlatformHealth, spans: tuple[HealthSpan, ...], now: datetime) -> PlatformHistory:
        words = self.healthy_words
        return replace(
            self._uptime(spans, now, words),
            flips=flips(spans, words, now - FLAPPING),
            incidents=incidents(spans, words, self.hold, connected=host.connected),
        )


def recent_incidents(pasts: dict[str, PlatformHistory], since: datetime) -> tuple[Incident, ...]:
    """Incidents of all platforms that last or ended after `since`: lasting ones first, then the newest."""
    found = [one for past in pasts.values() for one in past.incidents if (one.recovered_at or one.until) >= since]
    return tuple(sorted(found, key=lambda one: (goes_on(one), one.start), reverse=True))


def goes_on(incident: Incident) -> bool:
    """Whether the incident still lasts."""
    return not incident.is_over and incident.recovered_at is None


def _link_spans(polls: Sequence[PollSpan], longest_gap: timedelta) -> tuple[HealthSpan, ...]:
    """Spans, oldest first; each lasts until the next one, unless that is too far away."""
    found = [HealthSpan("", _link_word(poll.error_kind), poll.first_at, poll.last_at) for poll in reversed(polls)]
    joined = [
        replace(one, end=after.start) if timedelta(0) <= after.start - one.end <= longest_gap else one
        for one, after in pairwise(found)
    ]
    return (*joined, *found[-1:])


def _link_word(error_kind: str | None) -> str:
    if error_kind is None or error_kind in REFUSALS:
        return _ANSWERED
    return "slow" if error_kind == "rate_limited" else "unreachable"
