"""An entry of the activity log in words: as a line of the table, and as the facts beside it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from app.text import SafeText, safe_block, safe_text
from app.times import ago, span, stamp
from storage.records import Action, ActionState
from storage.records.activity import ANSWERED, FAILED, PollSpan
from widgets.badges import Badge, Tone, action_badge
from widgets.forms.pages import reason
from widgets.frame.freshness import trouble_word
from widgets.line_table import Line, Part

WHAT: Final = {
    "run.start": "start run",
    "run.continue": "continue run",
    "agent.start": "start agent",
    "organization.create": "create organization",
    "gitlab.onboard": "onboard project",
    "poll.runs": "poll runs",
    "poll.health": "poll health",
}
"""Kinds in words; other kinds are shown as they are."""
_SENT_AGAIN: Final = Badge("↻", "sent again", "quiet")
_ANSWERED: Final = Badge("✓", ANSWERED, "good")
_FAILED: Final = Badge("✗", FAILED, "bad")
NO_ACTOR: Final[Part] = (SafeText(), "quiet")
_BODY_CHARACTERS: Final = 20_000
_BODY_LINES: Final = 400
_SHORTEST_S: Final = 60
"""The shortest span of polls whose length is shown."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: a write, or a span of polls with the same outcome."""

    source: Action | PollSpan
    about: SafeText
    """Its subject, in one line."""

    @property
    def key(self) -> str:
        """Identifies the entry across updates."""
        return self.source.action_id if isinstance(self.source, Action) else f"poll-{self.source.span_id}"

    @property
    def at(self) -> datetime:
        """When it began."""
        return self.source.created_at if isinstance(self.source, Action) else self.source.first_at

    @property
    def unknown(self) -> Action | None:
        """The action, if a person still has to find out its outcome."""
        source = self.source
        is_unknown = isinstance(source, Action) and source.state == "unknown" and source.resolution is None
        return source if is_unknown and isinstance(source, Action) else None

    def cells(self, now: datetime) -> Line:
        """Outcome, kind, subject, result, actor and age."""
        badge, source = badge_of(self), self.source
        first: Part = (safe_text(badge.text), badge.tone)
        when: Part = (safe_text(ago(self.at, now)), "quiet")
        if isinstance(source, PollSpan):
            tone: Tone = "quiet" if source.error_kind is None else "plain"
            return first, (what(source.kind), "quiet"), (_polls(source, now), tone), _result(source), NO_ACTOR, when
        actor: Part = (safe_text(source.actor, limit=60), "quiet")
        return first, (what(source.kind), "plain"), (self.about, "plain"), _result(source), actor, when

    def facts(self, now: datetime) -> tuple[tuple[str, Part], ...]:
        """Everything known about the entry; our names, possibly foreign values."""
        source = self.source
        return tuple(_poll_facts(source, now) if isinstance(source, PollSpan) else _action_facts(self, source))


def what(kind: str) -> SafeText:
    """A kind in words."""
    return safe_text(WHAT.get(kind, kind), limit=40)


def outcome_badge(outcome: str) -> Badge:
    """The badge of an outcome, as a filter names it."""
    if outcome in {ANSWERED, FAILED}:
        return _ANSWERED if outcome == ANSWERED else _FAILED
    # Any other outcome is a state of the ledger.
    return action_badge(cast("ActionState", outcome))


def badge_of(entry: Entry) -> Badge:
    """The entry's outcome."""
    source = entry.source
    if isinstance(source, PollSpan):
        return outcome_badge(source.outcome)
    return _SENT_AGAIN if source.resolution == "sent_again" else action_badge(source.state)


def sent(entry: Entry) -> tuple[SafeText, ...]:
    """The body that was sent, as indented JSON; empty for polls."""
    if isinstance(entry.source, PollSpan):
        return ()
    body = entry.source.body_json
    # Show a body that is not JSON as it is: the ledger holds what was sent.
    with suppress(ValueError, RecursionError):
        body = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    return safe_block(body, limit=_BODY_CHARACTERS, lines=_BODY_LINES)


def _polls(source: PollSpan, now: datetime) -> SafeText:
    count = "1 poll" if source.polls == 1 else f"{source.polls:,} polls"
    lasted_s = (source.last_at - source.first_at).total_seconds()
    over = f" in {span(lasted_s)}" if source.polls > 1 and lasted_s >= _SHORTEST_S else ""
    if source.error_kind is not None:
        return safe_text(f"{trouble_word(source.error_kind)}, {count}{over}")
    return safe_text(f"{count}{over}, the last {ago(source.last_at, now)}" if source.polls > 1 else count)


def _result(source: Action | PollSpan) -> Part:
    if isinstance(source, PollSpan):
        return safe_text(source.error_message or ""), "quiet"
    if source.error is not None:
        return safe_text(reason(source.error)), "warn" if source.state == "unknown" else "quiet"
    return safe_text(source.result_id or "", limit=120), "plain"


def _poll_facts(source: PollSpan, now: datetime) -> Iterator[tuple[str, Part]]:
    badge = outcome_badge(source.outcome)
    yield "outcome", (safe_text(badge.text), badge.tone)
    yield "asked for", (safe_text(source.subject), "plain")
    count = "once" if source.polls == 1 else f"{source.polls:,} times, each with this outcome"
    yield "polls", (safe_text(count), "plain")
    yield "from", (safe_text(stamp(source.first_at)), "plain")
    if source.polls > 1:
        lasted = span((source.last_at - source.first_at).total_seconds())
        yield "to", (safe_text(f"{stamp(source.last_at)}, {ago(source.last_at, now)}"), "plain")
        yield "for", (safe_text(lasted), "plain")
    if source.error_kind is not None:
        yield "reason", (safe_text(trouble_word(source.error_kind)), "bad")
        yield "message", (safe_text(source.error_message or "-"), "plain")
    if source.http_status is not None:
        yield "HTTP", (safe_text(str(source.http_status)), "plain")


def _action_facts(entry: Entry, action: Action) -> Iterator[tuple[str, Part]]:
    badge = badge_of(entry)
    found_out = ", as a person found out" if action.resolution in {"created", "not_created"} else ""
    yield "outcome", (safe_text(f"{badge.text}{found_out}"), badge.tone)
    yield "what", (what(action.kind), "plain")
    if entry.about:
        yield "about", (entry.about, "plain")
    if action.result_id:
        yield "made", (safe_text(action.result_id), "plain")
    if action.error is not None:
        yield "reason", (safe_text(reason(action.error)), "warn" if action.state == "unknown" else "bad")
    if entry.unknown is not None:
        yield (
            "to do",
            (safe_text("Find out whether it took effect, then press v. It is never sent again by itself."), "warn"),
        )
    if action.superseded_by:
        yield "sent again", (safe_text(action.superseded_by), "plain")
    yield "asked", (safe_text(f"{stamp(action.created_at)} by {action.actor}"), "plain")
    yield "sent", (safe_text(stamp(action.sending_at) if action.sending_at else "never"), "plain")
    if action.settled_at is not None:
        since = action.sending_at or action.created_at
        took = span((action.settled_at - since).total_seconds())
        yield "settled", (safe_text(f"{stamp(action.settled_at)}, after {took}"), "plain")
    yield "action", (safe_text(action.action_id), "quiet")
    if action.key != action.action_id:
        yield "key", (safe_text(action.key, limit=200), "quiet")
