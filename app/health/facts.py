"""Uptime, history and incidents, computed from the cached health samples of code hosts. Pure."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from storage.records import HealthSpan, LinkState, PlatformHealth
from storage.records.activity import PollSpan
from storage.records.error_kinds import error_kind
from storage.records.health import NO_STATUS

HealthLevel = Literal["well", "impaired", "bad"]
IMPAIRED: Final = frozenset({"degraded", "warning", "warn", "partial", "slow", "maintenance", "pending"})
"""Lower-case statuses of a host that works, but with problems (the spec defines no statuses)."""
UNOBSERVED_AFTER: Final = timedelta(minutes=15)
"""If health cannot be read for this long, nobody knows how the code hosts are."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
OUR_LINK: Final = "our link"
MAX_WINDOW: Final = timedelta(days=30)
WINDOWS: Final = (("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("30d", MAX_WINDOW))
SLICES: Final = 1_440
"""Many more than a screen has columns, so that a cell can show the share of a short outage."""
SLICE: Final = timedelta(days=1) / SLICES
FLAPPING: Final = timedelta(minutes=15)
_WELL: Final = "ok"


def longest_gap(health_s: float) -> timedelta:
    """How far apart two samples may be and still cover the time between them, if polls are `health_s` apart."""
    return max(timedelta(minutes=10), timedelta(seconds=3 * health_s))


def level(status: str, healthy_words: Collection[str]) -> HealthLevel | None:
    """Rate a status at one of three levels; `healthy_words` are in lower case.

    An unknown word is bad, so that it is noticed. The level is None if the service gives no status for the host.
    """
    if status == NO_STATUS:
        return None
    word = status.strip().casefold()
    if word in healthy_words:
        return "well"
    return "impaired" if word in IMPAIRED else "bad"


def unobserved_since(links: Iterable[LinkState], now: datetime) -> datetime | None:
    """Since when health could not be read; None while the last answer is recent enough to rely on."""
    since = next((link.failing_since for link in links if link.subject == "health"), None)
    if since is not None and now - since >= UNOBSERVED_AFTER:
        return since
    return None


def is_down(host: PlatformHealth, healthy_words: Collection[str]) -> bool:
    """Whether a host was bad when it was last seen."""
    return host.connected and level(host.status, healthy_words) == "bad"


def warning_of(hosts: Iterable[PlatformHealth], platforms: Collection[str], healthy_words: Collection[str]) -> str:
    """A warning that names the platforms that are down, before work is sent there; empty if none is known to be."""
    bad = (host for host in hosts if host.platform in platforms and is_down(host, healthy_words))
    down = [f"{host.platform} is {host.status}" for host in bad]
    if down:
        return f"Code host {' and '.join(down)}: what is retried now may fail again."
    return ""


class Uptime(Struct, frozen=True):
    """The uptime of one platform in one window."""

    well_s: float
    known_s: float
    """Time with a known status; other time counts neither as up nor as down."""

    @property
    def share(self) -> float | None:
        """The healthy share of the known time, 0 to 1, or None if nothing is known."""
        return self.well_s / self.known_s if self.known_s else None


def uptime(spans: Sequence[HealthSpan], window: timedelta, now: datetime, healthy_words: Collection[str]) -> Uptime:
    well_s = known_s = 0.0
    for span in spans:
        rating = level(span.status, healthy_words)
        seconds = _overlap_s(span, now - window, now) if rating else 0.0
        known_s += seconds
        if rating == "well":
            well_s += seconds
    return Uptime(well_s, known_s)


def slices(
    spans: Sequence[HealthSpan], now: datetime, count: int, width: timedelta, healthy_words: Collection[str]
) -> tuple[HealthLevel | None, ...]:
    """One platform's last `count` slices of time, oldest first, each with its worst level, or None if that is unknown.

    They start at whole multiples of `width`, so that past slices never change. The last slice is the present, which
    has the newest level instead of the worst.
    """
    start = _EPOCH + ((now - _EPOCH) // width - (count - 1)) * width
    seconds: list[dict[HealthLevel, float]] = [{} for _ in range(count)]
    present: HealthLevel | None = None
    for span in spans:
        rating = level(span.status, healthy_words)
        first = (span.start - start) // width
        last = (span.end - start) // width
        present = rating if now - span.end < width else None
        if rating is None:
            continue
        for index in range(max(0, first), min(count - 1, last) + 1):
            overlap_s = _overlap_s(span, start + index * width, start + (index + 1) * width)
            seconds[index][rating] = seconds[index].get(rating, 0.0) + overlap_s
    needed_s = 0.5 * width.total_seconds()
    worst: list[HealthLevel | None] = []
    for part in seconds[:-1]:
        if "bad" in part:
            worst.append("bad")
        elif "impaired" in part:
            worst.append("impaired")
        else:
            worst.append("well" if part.get("well", 0.0) >= needed_s else None)
    return (*worst, present)


def _overlap_s(span: HealthSpan, start: datetime, end: datetime) -> float:
    return max(0.0, (min(span.end, end) - max(span.start, start)).total_seconds())


class Incident(Struct, frozen=True):
    """One platform's outage, from the first unhealthy sample to a lasting recovery."""

    platform: str
    start: datetime
    until: datetime
    """The time of the last unhealthy sample."""
    words: tuple[str, ...]
    """The distinct statuses of the incident, the latest first."""
    worst: HealthLevel
    bad_s: float
    """How long the platform was bad, not only impaired."""
    recovered_at: datetime | None = None
    """When the platform was next seen healthy; None if not yet."""
    recoveries: int = 0
    """The number of brief recoveries; above zero, the platform flapped."""
    is_over: bool = False
    """Whether the recovery has lasted."""

    @property
    def end(self) -> datetime:
        """The recovery or, so far, the last unhealthy sample."""
        return self.recovered_at or self.until

    @property
    def lasted(self) -> timedelta:
        """The time from its start to its end, so far."""
        return self.end - self.start

    @property
    def is_cut_off(self) -> bool:
        """Whether the incident ended because the platform was disconnected, which leaves its recovery unknown."""
        return self.is_over and self.recovered_at is None

    @property
    def is_ongoing(self) -> bool:
        """Whether the platform has not recovered yet."""
        return not self.is_over and self.recovered_at is None

    def failures(self, health_s: float) -> tuple[datetime, datetime | None]:
        """The period whose failed runs count for it, without an end until recovery.

        It began after the last healthy sample: up to `health_s`, the seconds between polls, before its start.
        """
        return self.start - timedelta(seconds=health_s), None if self.is_ongoing else self.end

    @property
    def word(self) -> str:
        return self.words[0]


def incidents(
    spans: Sequence[HealthSpan], healthy_words: Collection[str], hold: timedelta, *, connected: bool = True
) -> tuple[Incident, ...]:
    """One platform's incidents, newest first, from its spans, oldest first.

    An incident continues after a recovery shorter than `hold`. Disconnecting the platform finishes it.
    """
    outages: list[Incident] = []
    for span in spans:
        rating = level(span.status, healthy_words)
        if rating is None:
            continue
        last = outages[-1] if outages else None
        bad_s = (span.end - span.start).total_seconds() if rating == "bad" else 0.0
        if rating != "well":
            if last is None or (last.recovered_at is not None and span.start - last.recovered_at >= hold):
                outages.append(Incident(span.platform, span.start, span.end, (span.status,), rating, bad_s))
            else:
                outages[-1] = replace(
                    last,
                    until=span.end,
                    words=(span.status, *(word for word in last.words if word != span.status)),
                    worst="bad" if "bad" in (rating, last.worst) else "impaired",
                    bad_s=last.bad_s + bad_s,
                    recovered_at=None,
                    recoveries=last.recoveries + (last.recovered_at is not None),
                )
        elif last is not None and last.recovered_at is None:
            outages[-1] = replace(last, recovered_at=span.start)
    if not outages:
        return ()
    newest = outages[-1]
    has_held = newest.recovered_at is not None and spans[-1].end - newest.recovered_at >= hold
    over = [replace(outage, is_over=True) for outage in reversed(outages[:-1])]
    return (replace(newest, is_over=has_held or not connected), *over)


def flips(spans: Sequence[HealthSpan], healthy_words: Collection[str], since: datetime) -> int:
    """How often one platform switched between healthy and unhealthy since a time."""
    moments = [(span.start, how == "well") for span in spans if (how := level(span.status, healthy_words)) is not None]
    return sum(before != after and at >= since for (_, before), (at, after) in pairwise(moments))


class PlatformHistory(Struct, frozen=True):
    """The past of one platform."""

    history: tuple[HealthLevel | None, ...]
    uptimes: tuple[Uptime, ...]
    """One for each of `WINDOWS`."""
    flips: int = 0
    """Changes between healthy and unhealthy within `FLAPPING`."""
    incidents: tuple[Incident, ...] = ()
    """Newest first."""


NOTHING_SEEN: Final = PlatformHistory((), (Uptime(0, 0),) * len(WINDOWS))


def past_of(
    spans: Sequence[HealthSpan],
    now: datetime,
    healthy_words: Collection[str],
    hold: timedelta,
    *,
    connected: bool = True,
) -> PlatformHistory:
    """One platform's past from its spans, oldest first; see `incidents` for `hold`."""
    return PlatformHistory(
        slices(spans, now, SLICES, SLICE, healthy_words),
        tuple(uptime(spans, window, now, healthy_words) for _, window in WINDOWS),
        flips(spans, healthy_words, now - FLAPPING),
        incidents(spans, healthy_words, hold, connected=connected),
    )


def link_past(polls: Sequence[PollSpan], now: datetime, hold: timedelta, gap: timedelta) -> PlatformHistory:
    """Our link's past, from the polls of runs, newest first; only unanswered polls make incidents."""
    # Spans, oldest first; each one extends to the next, unless the gap is too long.
    # A refused token is an answer too; without a token there is no request.
    words: dict[str | None, str] = {None: _WELL, "rate_limited": "slow", "token": NO_STATUS}
    spans: list[HealthSpan] = []
    for poll in reversed(polls):
        kind = error_kind(poll.error_kind)
        usual = _WELL if kind.concerns == "token" else kind.word.removeprefix("service ")
        word = words.get(poll.error_kind, usual)
        spans.append(HealthSpan(OUR_LINK, word, poll.first_at, poll.last_at))
    joined = [
        replace(span, end=after.start) if timedelta(0) <= after.start - span.end <= gap else span
        for span, after in pairwise(spans)
    ]
    past = past_of((*joined, *spans[-1:]), now, {_WELL}, hold)
    return replace(past, incidents=tuple(incident for incident in past.incidents if incident.worst == "bad"))
