"""What is said of a profile among others: its worst trouble first, and all is well only where all is."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.text import SafeText, safe_text
from storage.records import PlatformHealth
from widgets.badges import STYLES, Badge, Tone, health_badge
from widgets.frame.freshness import Patience, freshness
from widgets.frame.header_bar import Vitals
from widgets.times import age

Part = tuple[str, str]
"""Text and its style."""
_WORST_FIRST: Final[tuple[Tone, ...]] = ("bad", "warn", "wait", "good")
NEEDS_A_LOOK: Final[frozenset[Tone]] = frozenset({"bad", "warn"})


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What is known of a profile."""

    name: str
    address: str
    is_current: bool
    """The console shows it."""
    read_only: bool
    vitals: Vitals | None = None
    """None: not read yet."""
    problem: str = ""
    """Why nothing can be read of it: our own files. Empty: nothing keeps us from it."""
    note: Badge | None = None
    """Said of it in place of its worst trouble, where that is not looked for."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What facts are held against."""

    patience: Patience
    healthy_words: Collection[str]
    now: datetime


def worst(facts: ProfileFacts, by: Yardstick) -> Badge:
    """The profile's state in a few words."""
    if facts.problem:
        return Badge("✗", "our files are unusable", "bad")
    if facts.note is not None or facts.vitals is None:
        return facts.note or Badge("◌", "looking…", "wait")
    found = sorted(_states(facts.vitals, by), key=lambda badge: _WORST_FIRST.index(badge.tone))
    return found[0] if found else Badge("✓", "all is well", "good")


def link_words(facts: ProfileFacts, by: Yardstick) -> Part:
    """How fresh what is known is."""
    if facts.vitals is None:
        return "", ""
    badge = freshness(facts.vitals.runs_link, by.patience, by.now)
    # Where that is the worst of it, it stands there already.
    return ("", "") if badge == worst(facts, by) else (badge.text, badge.style)


def count_words(facts: ProfileFacts) -> tuple[Part, ...]:
    """How many runs are at work, wait, and failed today."""
    vitals = facts.vitals
    if vitals is None or not vitals.known:
        return ()
    counts: tuple[tuple[str, int, str, Tone], ...] = (
        ("●", vitals.working, "working", "busy"),
        ("○", vitals.queued, "queued", "wait"),
        ("✗", vitals.failed_today, "failed 24h", "bad"),
    )
    return tuple((f"{glyph} {n:,} {word}", STYLES[tone if n else "quiet"]) for glyph, n, word, tone in counts)


def host_words(facts: ProfileFacts, by: Yardstick) -> tuple[Part, ...]:
    """Its code hosts."""
    if facts.vitals is None:
        return ()
    is_stale = facts.vitals.health_is_stale
    return tuple(_host(host, by, is_stale=is_stale) for host in facts.vitals.health if host.connected)


def place_words(facts: ProfileFacts, *, with_address: bool = True) -> SafeText:
    """Where it is, and what may be done there; what is wrong with our files, where that is the trouble."""
    if facts.problem:
        return safe_text(facts.problem, limit=300)
    words = ((facts.address, with_address), ("on show", facts.is_current), ("read-only", facts.read_only))
    return safe_text(" · ".join(word for word, is_said in words if is_said), limit=300)


def _states(vitals: Vitals, by: Yardstick) -> Iterator[Badge]:
    fresh = freshness(vitals.runs_link, by.patience, by.now)
    if fresh.tone != "good":
        yield fresh
    for host in vitals.health:
        badge = health_badge(host.status, by.healthy_words)
        if host.connected and badge.tone != "good" and not vitals.health_is_stale:
            since = age(host.since, by.now)
            word = f"{safe_text(host.platform, limit=12)} {badge.word} {'just now' if since == 'now' else since}"
            yield Badge(badge.glyph, word, badge.tone)
    if vitals.failed_today:
        yield Badge("✗", f"{vitals.failed_today:,} failed in 24h", "warn")


def _host(host: PlatformHealth, by: Yardstick, *, is_stale: bool) -> Part:
    badge = health_badge(host.status, by.healthy_words)
    text = f"{safe_text(host.platform, limit=12)} {badge.glyph}"
    return (text if badge.tone == "good" else f"{text} {badge.word}"), STYLES["quiet"] if is_stale else badge.style
