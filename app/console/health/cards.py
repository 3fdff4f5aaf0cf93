"""What the cards of the Health tab say: of the code hosts, now and over time; of our link, and of the token."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import floor
from typing import Final

from app.console.session import link_of
from app.health import Incident, Level, Uptime, flips, incidents, slices, uptime
from app.text import safe_text
from app.times import age, ago, clock_time, span
from storage.records import HealthSpan, LinkState, PlatformHealth
from storage.records.budget import Wait
from widgets.badges import Badge, health_badge
from widgets.frame.freshness import PollTiming, freshness, trouble_word
from widgets.health import CardFacts, Figure, IncidentFacts

REFUSALS: Final = frozenset({"not_authorized", "forbidden", "token"})
"""Errors that are the token's, not the link's."""
PERMISSION: Final = "Runs need Administrator scope; the organization needs API access."
WAIT: Final = "Polls go on by themselves; r asks now."
_LINK_ADVICE: Final = {
    "unreachable": f"Look at your network, then at base_url in the configuration. {WAIT}",
    "timed_out": f"The service is slow, or something between here and there swallows the answer. {WAIT}",
    "not_found": "Correct base_url in the configuration: it ends in the version, such as /v1.",
    "rate_limited": "Others of the organization ask as well. Polls pause for as long as the service asked.",
    "unusable_answer": f"Something that is not the service may be answering: look at base_url. {WAIT}",
}
RENEW: Final = "Create an API token in the organization's settings, give it to this profile, then start again."


def link_card(links: tuple[LinkState, ...], patience: PollTiming, now: datetime, wait: Wait | None = None) -> CardFacts:
    """Whether the service answers at all, and when it is asked next; one that refuses the token does answer."""
    runs = link_of(links, "runs")
    fields = tuple((link.subject, _poll(link, now)) for link in links)
    if runs is not None and runs.is_failing and runs.error_kind not in REFUSALS:
        since = f"since {clock_time(runs.failing_since, now)}" if runs.failing_since else ""
        if wait is not None and wait.until > now:
            since = f"{since} · waiting until {clock_time(wait.until, now)}".removeprefix(" · ")
        note = (
            f"{safe_text(runs.error_message or '', limit=200)}\n{_LINK_ADVICE.get(runs.error_kind or '', WAIT)}".strip()
        )
        return CardFacts(
            "our link to the service", Badge("✗", trouble_word(runs.error_kind), "bad"), since, fields, note=note
        )
    if runs is None or (runs.last_ok_at is None and not runs.is_failing):
        return CardFacts("our link to the service", Badge("◌", "connecting…", "wait"), fields=fields)
    if runs.is_failing:
        return CardFacts("our link to the service", Badge("✓", "answers", "good"), "and refuses the token", fields)
    badge = freshness(runs, patience, now, wait)
    word = "up" if badge.tone == "good" else badge.word
    return CardFacts(
        "our link to the service", Badge("✓" if word == "up" else badge.glyph, word, badge.tone), fields=fields
    )


def token_card(links: tuple[LinkState, ...], now: datetime) -> CardFacts:
    """Whether the service accepts the token, and lets it do what this console asks."""
    runs = link_of(links, "runs")
    title = "token"
    if runs is None or (runs.last_ok_at is None and runs.error_kind not in REFUSALS):
        return CardFacts(title, Badge("◌", "not known yet", "wait"), note="Known as soon as the service answers.")
    since = f"since {clock_time(runs.failing_since, now)}" if runs.failing_since else ""
    if runs.error_kind == "forbidden":
        return CardFacts(title, Badge("✗", "not permitted (403)", "bad"), since, note=f"{PERMISSION} {RENEW}")
    if runs.error_kind in REFUSALS:
        word = "refused (401)" if runs.error_kind == "not_authorized" else "missing"
        note = RENEW if runs.error_kind == "not_authorized" else safe_text(runs.error_message or RENEW, limit=300)
        return CardFacts(title, Badge("✗", word, "bad"), since, note=note)
    if runs.is_failing and runs.last_ok_at is not None:
        return CardFacts(
            title,
            Badge("✓", "accepted", "good"),
            f"when last asked, {ago(runs.last_ok_at, now)}",
            note="Says nothing new while the link is down.",
            is_stale=True,
        )
    return CardFacts(title, Badge("✓", "accepted", "good"), note="It may list runs.")


def no_hosts(links: tuple[LinkState, ...]) -> CardFacts:
    """What stands where host cards would be."""
    health = link_of(links, "health")
    if health is None or (health.last_ok_at is None and not health.is_failing):
        return CardFacts("", Badge("◌", "asking…", "wait"))
    if health.last_ok_at is None:
        return CardFacts("", Badge("◌", "not known", "wait"), note="The service has not answered yet; see below.")
    note = "Connect GitHub or GitLab in the organization's settings; it appears here by itself."
    return CardFacts("", Badge("○", "none connected", "quiet"), note=note)


def _poll(link: LinkState, now: datetime) -> str:
    if link.failing_since is not None:
        polls = f"{link.failures} polls" if link.failures > 1 else "1 poll"
        return f"{trouble_word(link.error_kind)} since {clock_time(link.failing_since, now)}, {polls}"
    return f"answered {ago(link.last_ok_at, now)}" if link.last_ok_at is not None else "not asked yet"


LONGEST_WINDOW: Final = timedelta(days=30)
WINDOWS: Final = (("24h", timedelta(days=1)), ("7d", timedelta(days=7)), ("30d", LONGEST_WINDOW))
SLICES: Final = 96
SLICE: Final = timedelta(days=1) / SLICES
FLAPS: Final = 4
"""So many changes within `FLAPPING` are called flapping."""
FLAPPING: Final = timedelta(minutes=15)
LONGEST_GAP: Final = timedelta(minutes=10)
"""Samples further apart say nothing of the time between them, unless they are meant to be that far apart."""

_HOST_ADVICE: Final = {
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
    """A code host's card; stale after a health poll that failed, when it shows what was true before."""
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
    return "" if badge.tone == "good" else _HOST_ADVICE.get(host.status.casefold(), _ELSE)


def _since(host: PlatformHealth, now: datetime, *, is_stale: bool) -> str:
    checked = ago(host.checked_at, now)
    if is_stale:
        return f"when last asked, {checked}"
    lasts = age(host.since, now)
    return f"for {'a moment' if lasts == 'now' else lasts} · checked {checked}"
