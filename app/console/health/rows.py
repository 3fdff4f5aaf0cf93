"""The rows of the Health tab: code hosts now and over time, our link and the token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import floor
from typing import Final

from app.console.health.history import FLAPPING, REFUSALS, WINDOWS, PlatformHistory, goes_on
from app.console.session.feeds import link_of
from app.health import Incident, Uptime
from app.text import SafeText, safe_text
from app.times import age, ago, clock_time, span
from storage.records import LinkState, PlatformHealth
from storage.records.insights import FailedRuns
from storage.records.service_traits import Wait
from widgets.badges import Badge, health_badge, run_badge
from widgets.frame.freshness import PollTiming, freshness, trouble_word
from widgets.health import HealthShare, HostFacts, IncidentFacts

OUR_LINK: Final = "our link"
PERMISSION: Final = "Runs need Administrator scope; the organization needs API access."
WAIT: Final = "Polls go on by themselves; r asks now."
_LINK_ADVICE: Final = {
    "unreachable": f"Look at your network, then at base_url in the configuration. {WAIT}",
    "timed_out": f"The service is slow, or something between here and there swallows the answer. {WAIT}",
    "not_found": "Correct base_url in the configuration: it ends in the version, such as /v1.",
    "rate_limited": "Others of the organization ask as well. Polls pause for as long as the service asked.",
    "unusable_answer": f"Something that is not the service may be answering: look at base_url. {WAIT}",
}
_CONNECTING: Final = Badge("◌", "connecting…", "wait")
RENEW: Final = "Create an API token in the organization's settings, give it to this profile, then start again."
_HOST_ADVICE: Final = {
    "unauthorized": "The service may not enter this host any more: connect it again in the organization's settings.",
    "unreachable": "The service cannot reach this host: look at the host, its address and its firewall.",
}
_OTHER_ADVICE: Final = (
    "The service has trouble with this host: look at the host's own status; until then, runs on it may fail."
)
FLAPS: Final = 4
"""This many changes within `FLAPPING` are called flapping."""
CLEARLY_MORE: Final = 1.25
"""A longer window is shown only if this many times more of it was seen than of the shorter one."""
NAMED_FROM: Final = 0.5
"""The share of a window that must have been seen before its uptime is called that of the window."""

FailedByIncident = Mapping[tuple[str, datetime], FailedRuns]
"""The failed runs of each incident, by its platform and start."""


def link_row(
    links: tuple[LinkState, ...], past: PlatformHistory, timing: PollTiming, now: datetime, wait: Wait | None = None
) -> HostFacts:
    """The row of our link and its next poll; a service that refuses the token counts as answering."""
    runs = link_of(links, "runs")
    polls = " · ".join(f"{link.subject} {_poll(link, now)}" for link in links)
    row = HostFacts(
        "link", OUR_LINK, _CONNECTING, location=safe_text(polls), history=past.history, figures=figures(past.uptimes)
    )
    if runs is not None and runs.is_failing and runs.error_kind not in REFUSALS:
        since = f"since {clock_time(runs.failing_since, now)}" if runs.failing_since else ""
        if wait is not None and wait.until > now:
            since = f"{since} · waiting until {clock_time(wait.until, now)}".removeprefix(" · ")
        said, advice = safe_text(runs.error_message or "", limit=200), _LINK_ADVICE.get(runs.error_kind or "", WAIT)
        badge = Badge("✗", trouble_word(runs.error_kind), "bad")
        return replace(row, badge=badge, since=since, note=f"{said}\n{advice}".strip())
    if runs is None or (runs.last_ok_at is None and not runs.is_failing):
        return row
    if runs.is_failing:
        return replace(row, badge=Badge("✓", "answers", "good"), since="and refuses the token")
    badge = freshness(runs, timing, now, wait)
    return replace(row, badge=Badge("✓", "up", "good") if badge.tone == "good" else badge)


def token_row(links: tuple[LinkState, ...], now: datetime) -> HostFacts:
    """The row of the token: whether the service accepts it, with the scopes that this console needs."""
    runs = link_of(links, "runs")
    accepted = HostFacts("token", "token", Badge("✓", "accepted", "good"), since="It may list runs.")
    if runs is None or (runs.last_ok_at is None and runs.error_kind not in REFUSALS):
        return replace(accepted, badge=Badge("◌", "not known yet", "wait"), since="until the service answers")
    since = f"since {clock_time(runs.failing_since, now)}" if runs.failing_since else ""
    if runs.error_kind == "forbidden":
        badge = Badge("✗", "not permitted (403)", "bad")
        return replace(accepted, badge=badge, since=since, note=f"{PERMISSION} {RENEW}")
    if runs.error_kind in REFUSALS:
        word = "refused (401)" if runs.error_kind == "not_authorized" else "missing"
        note = RENEW if runs.error_kind == "not_authorized" else safe_text(runs.error_message or RENEW, limit=300)
        return replace(accepted, badge=Badge("✗", word, "bad"), since=since, note=note)
    if runs.is_failing and runs.last_ok_at is not None:
        said = f"when last asked, {ago(runs.last_ok_at, now)}; the link is down"
        return replace(accepted, since=said, is_stale=True)
    return accepted


def summary(
    hosts: Sequence[PlatformHealth], links: tuple[LinkState, ...], healthy_words: frozenset[str], now: datetime
) -> SafeText:
    """How many hosts are well, and when they were asked."""
    here = [host for host in hosts if host.connected]
    if not here:
        return safe_text("Code hosts, and what is between this console and the service")
    bad = sum(health_badge(host.status, healthy_words).tone != "good" for host in here)
    hosts_text = "1 code host" if len(here) == 1 else f"{len(here)} code hosts"
    health = link_of(links, "health")
    asked = "" if health is None or health.last_ok_at is None else f" · asked {ago(health.last_ok_at, now)}"
    return safe_text(f"{hosts_text}, {f'{bad} not well' if bad else 'all well'}{asked}")


def no_hosts(links: tuple[LinkState, ...]) -> HostFacts:
    """The row shown without code hosts."""
    health, row = link_of(links, "health"), HostFacts("", "code hosts", Badge("◌", "asking…", "wait"))
    if health is None or (health.last_ok_at is None and not health.is_failing):
        return row
    if health.last_ok_at is None:
        return replace(row, badge=Badge("◌", "not known", "wait"), note="The service has not answered yet; see below.")
    note = "Connect GitHub or GitLab in the organization's settings; it appears here by itself."
    return replace(row, badge=Badge("○", "none connected", "quiet"), note=note)


def host_row(
    host: PlatformHealth,
    past: PlatformHistory,
    healthy_words: frozenset[str],
    now: datetime,
    under_way: Mapping[str, int],
    *,
    is_stale: bool,
) -> HostFacts:
    """Return a code host's row; it is stale after a failed health poll.

    `under_way` counts its active runs by status.
    """
    badge = health_badge(host.status, healthy_words) if host.connected else Badge("⊘", "not connected", "quiet")
    where = " · ".join(safe_text(part, limit=120) for part in (host.host, host.group) if part)
    is_flapping = past.flips >= FLAPS and host.connected
    return HostFacts(
        f"host:{host.platform}",
        safe_text(host.platform, limit=30),
        badge,
        since=_since(host, now, is_stale=is_stale),
        location=safe_text(where),
        under_way=tuple((run_badge(status), count) for status, count in under_way.items()),
        history=past.history,
        figures=figures(past.uptimes),
        warning=f"⇄ flapping: {past.flips} changes in {span(FLAPPING.total_seconds())[:-3]}" if is_flapping else "",
        note=_note(host, badge, is_stale=is_stale),
        is_stale=is_stale or not host.connected,
        leads=True,
    )


def incident_facts(incident: Incident, failed: FailedByIncident, healthy_words: frozenset[str]) -> IncidentFacts:
    """Describe an incident in a line, with the number of runs that failed in it."""
    return IncidentFacts(
        incident_key(incident),
        health_badge(incident.word, healthy_words),
        safe_text(incident.platform, limit=30),
        incident.start,
        incident.lasted.total_seconds(),
        goes_on(incident),
        failed.get((incident.platform, incident.start), FailedRuns()).number,
        ", ".join(_remarks(incident)),
    )


def incident_key(incident: Incident) -> str:
    """The key of the incident's line."""
    return f"incident:{incident.platform}:{incident.start.isoformat()}"


def no_incidents(pasts: dict[str, PlatformHistory]) -> str:
    """The text shown without incidents, with how much of the time was seen."""
    seen_s = max((past.uptimes[-1].known_s for past in pasts.values()), default=0.0)
    if not seen_s:
        return "Nothing was seen of the hosts yet."
    return f"None in the last 30 days, of which {span(seen_s)} were seen."


def figures(uptimes: Sequence[Uptime]) -> tuple[HealthShare, ...]:
    """The uptimes of `WINDOWS` that were seen; a window that was hardly seen more than a shorter one is left out."""
    found: list[HealthShare] = []
    seen_s = 0.0
    for (name, _), up in zip(WINDOWS, uptimes, strict=True):
        if up.share is not None and up.known_s > seen_s * CLEARLY_MORE:
            seen_s = up.known_s
            # Rounded down: 100% means that no failure at all was seen.
            share = "100%" if up.share == 1 else f"{floor(up.share * 10_000) / 100:.2f}%"
            found.append(HealthShare(name if up.known_share >= NAMED_FROM else "", share, span(up.known_s)))
    return tuple(found)


def _poll(link: LinkState, now: datetime) -> str:
    if link.failing_since is not None:
        polls = f"{link.failures} polls" if link.failures > 1 else "1 poll"
        return f"{trouble_word(link.error_kind)} since {clock_time(link.failing_since, now)}, {polls}"
    return f"answered {ago(link.last_ok_at, now)}" if link.last_ok_at is not None else "not asked yet"


def _note(host: PlatformHealth, badge: Badge, *, is_stale: bool) -> str:
    if is_stale:
        return "No newer answer; the reason stands below. This is what was true then."
    if not host.connected:
        return "Connect it in the organization's settings; it comes back by itself."
    return "" if badge.tone == "good" else _HOST_ADVICE.get(host.status.casefold(), _OTHER_ADVICE)


def _since(host: PlatformHealth, now: datetime, *, is_stale: bool) -> str:
    checked = ago(host.checked_at, now)
    if is_stale:
        return f"when last asked, {checked}"
    lasts = age(host.since, now)
    return f"for {'a moment' if lasts == 'now' else lasts} · checked {checked}"


def _remarks(incident: Incident) -> Iterator[str]:
    if len(incident.words) > 1:
        yield "also " + ", ".join(safe_text(word, limit=30) for word in incident.words[1:4])
    if incident.recoveries:
        yield f"flapped {incident.recoveries}x"
    if incident.recovered_at is None and incident.is_over:
        yield "then no longer connected"
    elif incident.recovered_at is not None and incident.recovered_at > incident.until:
        yield "its end was not seen"
