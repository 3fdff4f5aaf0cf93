"""What the Health room says of our own side: the link and the token, never mixed with the hosts."""

from datetime import datetime
from typing import Final

from app.console.session import link_of
from app.text import safe_text
from storage.records import LinkState
from widgets.badges import Badge
from widgets.frame.freshness import PollTiming, freshness, trouble_word
from widgets.health import CardFacts
from widgets.times import ago, clock_time

REFUSALS: Final = frozenset({"not_authorized", "forbidden", "token"})
"""Errors that are the token's, not the link's."""
PERMISSION: Final = "Runs need Administrator scope; the organization needs API access."
WAIT: Final = "Polls go on by themselves; r asks now."
_ADVICE: Final = {
    "unreachable": f"Look at your network, then at base_url in the configuration. {WAIT}",
    "timed_out": f"The service is slow, or something between here and there swallows the answer. {WAIT}",
    "not_found": "Correct base_url in the configuration: it ends in the version, such as /v1.",
    "rate_limited": "Others of the organization ask as well. Polls pause for as long as the service asked.",
    "unusable_answer": f"Something that is not the service may be answering: look at base_url. {WAIT}",
}
RENEW: Final = "Create an API token in the organization's settings, give it to this profile, then start again."


def link_card(links: tuple[LinkState, ...], patience: PollTiming, now: datetime) -> CardFacts:
    """Whether the service answers at all; one that refuses the token does answer."""
    runs = link_of(links, "runs")
    fields = tuple((link.subject, _poll(link, now)) for link in links)
    if runs is not None and runs.is_failing and runs.error_kind not in REFUSALS:
        since = f"since {clock_time(runs.failing_since, now)}" if runs.failing_since else ""
        note = f"{safe_text(runs.error_message or '', limit=200)}\n{_ADVICE.get(runs.error_kind or '', WAIT)}".strip()
        return CardFacts(
            "our link to the service", Badge("✗", trouble_word(runs.error_kind), "bad"), since, fields, note=note
        )
    if runs is None or (runs.last_ok_at is None and not runs.is_failing):
        return CardFacts("our link to the service", Badge("◌", "connecting…", "wait"), fields=fields)
    if runs.is_failing:
        return CardFacts("our link to the service", Badge("✓", "answers", "good"), "and refuses the token", fields)
    badge = freshness(runs, patience, now)
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
