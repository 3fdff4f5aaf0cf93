"""What the Health room says of the code hosts: now, over time, and incident by incident."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import floor
from typing import Final

from app.health import Incident, Level, Uptime, flips, incidents, slices, uptime
from app.text import safe_text
from storage.records import HealthSpan, PlatformHealth
from widgets.badges import Badge, health_badge
from widgets.health import CardFacts, Figure, IncidentFacts
from widgets.times import age, ago, span

LONGEST_WINDOW: Final = timedelta(days=30)
WINDOWS: Final = (("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("30d", LONGEST_WINDOW))
SLICES: Final = 96
SLICE: Final = timedelta(days=1) / SLICES
FLAPS: Final = 4
"""So many changes within `FLAPPING` are called flapping."""
FLAPPING: Final = timedelta(minutes=15)
LONGEST_GAP: Final = timedelta(minutes=10)
"""Samples further apart say nothing of the time between them, unless they are meant to be that far apart."""

_ADVICE: Final = {
    "unauthorized": "The service may not enter this host any more: connect it again in the organization's settings.",
    "unreachable": "The service cannot reach this host: look at the host, its address and its firewall.",
}
_ELSE: Final = "The service has trouble with this host: look at the host's own status; until then, runs on it may fail."


@dataclass(frozen=True, slots=True)
class Past:
    """One platform's past, as it was when it was read."""

    history: tuple[Level | None, ...]
    uptimes: tuple[Uptime, ...]
    flips: int
    """Changes between well and unwell within `FLAPPING`."""
    incidents: tuple[Incident, ...]
    """Newest first."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How samples are read."""

    healthy_words: frozenset[str]
    hold: timedelta
    """A recovery that is shorter ends no incident."""
    longest_gap: timedelta

    def pasts(self, hosts: Sequence[PlatformHealth], spans: Sequence[HealthSpan], now: datetime) -> dict[str, Past]:
        """Each platform's past, by its name; those without any sample have an empty one."""
        own = {platform: tuple(group) for platform, group in groupby(spans, lambda span: span.platform)}
        return {host.platform: self._past(host, own.get(host.platform, ()), now) for host in hosts}

    def _past(self, host: PlatformHealth, spans: tuple[HealthSpan, ...], now: datetime) -> Past:
        words = self.healthy_words
        return Past(
            slices(spans, now, SLICES, SLICE, words),
            tuple(uptime(spans, window, now, words) for _, window in WINDOWS),
            flips(spans, words, now - FLAPPING),
            incidents(spans, words, self.hold, connected=host.connected),
        )


def host_card(
    host: PlatformHealth, past: Past, healthy_words: frozenset[str], now: datetime, *, is_stale: bool
) -> CardFacts:
    """A code host's card.

    Args:
        host: What is known of it.
        past: Its past.
        healthy_words: Statuses that mean that all is well.
        now: The time.
        is_stale: Whether the last health poll failed, so that this is what was true before.
    """
    badge = health_badge(host.status, healthy_words) if host.connected else Badge("⊘", "not connected", "quiet")
    where = " · ".join(safe_text(part, limit=120) for part in (host.host, host.group) if part)
    is_flapping = past.flips >= FLAPS and host.connected
    return CardFacts(
        title=safe_text(host.platform, limit=30),
        badge=badge,
        since=_since(host, now, is_stale=is_stale),
        fields=(("host", where),) if where else (),
        history=past.history,
        figures=tuple(_figure(name, up) for (name, _), up in zip(WINDOWS, past.uptimes, strict=True)),
        warning=f"⇄ flapping: {past.flips} changes in {span(FLAPPING.total_seconds())[:-3]}" if is_flapping else "",
        note=_note(host, badge, is_stale=is_stale),
        is_stale=is_stale or not host.connected,
    )


def incident_facts(pasts: dict[str, Past], healthy_words: frozenset[str], since: datetime) -> tuple[IncidentFacts, ...]:
    """All platforms' incidents that ended after `since` or go on, newest first; the first line is the most urgent."""
    found = [one for past in pasts.values() for one in past.incidents if (one.recovered_at or one.until) >= since]
    found.sort(key=lambda one: (not one.is_over and one.recovered_at is None, one.start), reverse=True)
    return tuple(_incident(one, healthy_words) for one in found)


def no_incidents(pasts: dict[str, Past]) -> str:
    """What stands in their place, with how much that says."""
    seen_s = max((past.uptimes[-1].known_s for past in pasts.values()), default=0.0)
    if not seen_s:
        return "Nothing was seen of the hosts yet."
    return f"None in the last 30 days, of which {span(seen_s)} were seen."


def _incident(incident: Incident, healthy_words: frozenset[str]) -> IncidentFacts:
    goes_on = not incident.is_over and incident.recovered_at is None
    notes: list[str] = []
    if len(incident.words) > 1:
        notes.append("also " + ", ".join(safe_text(word, limit=30) for word in incident.words[1:4]))
    if incident.recoveries:
        notes.append(f"flapped {incident.recoveries}x")
    if incident.recovered_at is None and incident.is_over:
        notes.append("then no longer connected")
    elif incident.recovered_at is not None and incident.recovered_at > incident.until:
        notes.append("its end was not seen")
    return IncidentFacts(
        health_badge(incident.word, healthy_words),
        safe_text(incident.platform, limit=30),
        incident.start,
        incident.lasted.total_seconds(),
        goes_on,
        ", ".join(notes),
    )


def _figure(name: str, up: Uptime) -> Figure:
    if up.share is None:
        return Figure(name, "-", "none")
    # Rounded down: 100% means that nothing at all was seen to be wrong.
    share = "100%" if up.share == 1 else f"{floor(up.share * 10_000) / 100:.2f}%"
    return Figure(name, share, span(up.known_s))


def _note(host: PlatformHealth, badge: Badge, *, is_stale: bool) -> str:
    if is_stale:
        return "No newer answer; the reason stands below. This is what was true then."
    if not host.connected:
        return "Connect it in the organization's settings; it comes back by itself."
    return "" if badge.tone == "good" else _ADVICE.get(host.status.casefold(), _ELSE)


def _since(host: PlatformHealth, now: datetime, *, is_stale: bool) -> str:
    checked = ago(host.checked_at, now)
    if is_stale:
        return f"when last asked, {checked}"
    lasts = age(host.since, now)
    return f"for {'a moment' if lasts == 'now' else lasts} · checked {checked}"
