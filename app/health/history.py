"""The past of the code hosts and of our link to the service, computed from samples."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.health.facts import HealthLevel, Incident, Uptime, flips, incidents, longest_gap, slices, uptime
from storage.records import HealthSpan, PlatformHealth
from storage.records.activity import PollSpan
from storage.records.error_kinds import error_kind
from storage.records.health import NO_STATUS

OUR_LINK: Final = "our link"
LONGEST_WINDOW: Final = timedelta(days=30)
WINDOWS: Final = (("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("30d", LONGEST_WINDOW))
SLICES: Final = 1_440
"""Many more than a screen has columns, so that a cell can show the share of a short outage."""
SLICE: Final = timedelta(days=1) / SLICES
FLAPPING: Final = timedelta(minutes=15)
_WELL: Final = "ok"


class PlatformHistory(Struct, frozen=True):
    """The past of one platform."""

    history: tuple[HealthLevel | None, ...]
    uptimes: tuple[Uptime, ...]
    """One for each of `WINDOWS`."""
    flips: int = 0
    """Changes between healthy and unhealthy within `FLAPPING`."""
    incidents: tuple[Incident, ...] = ()
    """Newest first."""


NOTHING_SEEN: Final = PlatformHistory((), (Uptime(LONGEST_WINDOW, 0, 0),) * len(WINDOWS))


class SampleReader(Struct, frozen=True):
    """Computes histories from samples."""

    healthy_words: frozenset[str]
    hold: timedelta
    """An incident continues after a shorter recovery."""
    health_s: float
    """Seconds between health polls."""

    @property
    def longest_gap(self) -> timedelta:
        """How far apart two samples may be and still cover the time between them."""
        return longest_gap(self.health_s)

    def pasts(
        self, hosts: Sequence[PlatformHealth], spans: Sequence[HealthSpan], now: datetime
    ) -> dict[str, PlatformHistory]:
        """Return each platform's past by name; empty without samples."""
        own = {platform: tuple(group) for platform, group in groupby(spans, lambda span: span.platform)}
        return {
            host.platform: self._past(own.get(host.platform, ()), now, self.healthy_words, connected=host.connected)
            for host in hosts
        }

    def link_past(self, polls: Sequence[PollSpan], now: datetime) -> PlatformHistory:
        """Our link's past, from the polls of runs, newest first; only unanswered polls make incidents."""
        past = self._past(_link_spans(polls, self.longest_gap), now, frozenset({_WELL}))
        return replace(past, incidents=tuple(one for one in past.incidents if one.worst == "bad"))

    def _past(
        self, spans: tuple[HealthSpan, ...], now: datetime, words: frozenset[str], *, connected: bool = True
    ) -> PlatformHistory:
        return PlatformHistory(
            slices(spans, now, SLICES, SLICE, words),
            tuple(uptime(spans, window, now, words) for _, window in WINDOWS),
            flips(spans, words, now - FLAPPING),
            incidents(spans, words, self.hold, connected=connected),
        )


def recent_incidents(pasts: dict[str, PlatformHistory], since: datetime) -> tuple[Incident, ...]:
    """Incidents of platforms and our link that were not over at `since`: ongoing ones first, then the newest."""
    recent = [one for past in pasts.values() for one in past.incidents if (one.recovered_at or one.until) >= since]
    return tuple(sorted(recent, key=lambda one: (one.goes_on, one.start), reverse=True))


def _link_spans(polls: Sequence[PollSpan], longest_gap: timedelta) -> tuple[HealthSpan, ...]:
    """Spans, oldest first; each one extends to the next, unless the gap is too long."""
    # A refused token is an answer too; without a token there is no request.
    words: dict[str | None, str] = {None: _WELL, "rate_limited": "slow", "token": NO_STATUS}
    spans: list[HealthSpan] = []
    for poll in reversed(polls):
        kind = error_kind(poll.error_kind)
        usual = _WELL if kind.concerns == "token" else kind.word.removeprefix("service ")
        word = words.get(poll.error_kind, usual)
        spans.append(HealthSpan(OUR_LINK, word, poll.first_at, poll.last_at))
    joined = [
        replace(one, end=after.start) if timedelta(0) <= after.start - one.end <= longest_gap else one
        for one, after in pairwise(spans)
    ]
    return (*joined, *spans[-1:])
