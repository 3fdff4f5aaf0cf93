"""A card for one thing that can be well or not: its state, since when, and what led to it."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from textual.content import Content
from textual.widgets import Static

from app.text import safe_text
from storage.records import HealthChange, PlatformHealth
from widgets.badges import STYLES, Badge, health_badge
from widgets.times import age, ago, clock_time, span

CHANGES: Final = 5
"""Changes a card shows."""
LABEL: Final = 9


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says."""

    title: str
    badge: Badge
    since: str = ""
    """Behind the state: `for 12m`."""
    fields: tuple[tuple[str, str], ...] = ()
    """Name and value."""
    changes: tuple[tuple[str, str, Badge], ...] = ()
    """When, how long, and to what; newest first."""
    note: str = ""
    """What to do, or what this does not mean."""
    is_stale: bool = False
    """What it says was true once."""


class Card(Static):
    """One card."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id, markup=False)
        self._facts: CardFacts | None = None

    def show(self, facts: CardFacts) -> None:
        """Takes the facts; paints only if they read differently."""
        if facts == self._facts:
            return
        self._facts = facts
        self.border_title = Content(facts.title)
        for tone in ("good", "warn", "bad", "wait"):
            self.set_class(facts.badge.tone == tone and not facts.is_stale, f"-{tone}")
        self.update(card_content(facts))


def card_content(facts: CardFacts) -> Content:
    """The card's text."""
    quiet = STYLES["quiet"]
    state_style = quiet if facts.is_stale else f"{facts.badge.style} bold"
    parts: list[tuple[str, str]] = [(facts.badge.text, state_style), ("  ", ""), (facts.since, quiet)]
    for name, value in facts.fields:
        parts += [(f"\n{name:<{LABEL}}", quiet), (value, "")]
    if facts.note:
        parts += [(f"\n{facts.note}", quiet)]
    if facts.changes:
        parts.append(("\n", ""))
    for when, lasted, badge in facts.changes:
        parts += [
            (f"\n{when:<13}", quiet),
            (f"{badge.text:<16}", quiet if facts.is_stale else badge.style),
            (lasted, quiet),
        ]
    return Content.assemble(*parts)


def host_card(host: PlatformHealth, healthy_words: Collection[str], now: datetime, *, is_stale: bool) -> CardFacts:
    """A code host's card.

    Args:
        host: What is known of it.
        healthy_words: Statuses that mean that all is well.
        now: The time.
        is_stale: Whether the last health poll failed, so that this is what was true before.
    """
    badge = health_badge(host.status, healthy_words) if host.connected else Badge("⊘", "not connected", "quiet")
    fields = [("checked", ago(host.checked_at, now))]
    if host.host:
        fields.append(("host", safe_text(host.host, limit=120)))
    if host.group:
        fields.append(("group", safe_text(host.group, limit=120)))
    return CardFacts(
        title=safe_text(host.platform, limit=30),
        badge=badge,
        since="when last asked" if is_stale else f"for {_for(host.since, now)}",
        fields=tuple(fields),
        changes=_changes(host.history[:CHANGES], healthy_words, now) if len(host.history) > 1 else (),
        note="No newer answer: see the link below." if is_stale else "",
        is_stale=is_stale or not host.connected,
    )


def _for(since: datetime, now: datetime) -> str:
    text = age(since, now)
    return "a moment" if text == "now" else text


def _changes(
    history: tuple[HealthChange, ...], healthy_words: Collection[str], now: datetime
) -> tuple[tuple[str, str, Badge], ...]:
    found: list[tuple[str, str, Badge]] = []
    end = now
    for index, change in enumerate(history):
        badge = (
            health_badge(change.new, healthy_words) if change.new is not None else Badge("⊘", "disconnected", "quiet")
        )
        lasted = span((end - change.at).total_seconds())
        found.append((clock_time(change.at, now), lasted if index else f"{lasted} so far", badge))
        end = change.at
    return tuple(found)
