"""The policy: decides alone whether a rule acts on an occurrence, and gives the reason if it does not."""

from collections.abc import Iterator
from datetime import datetime

from app.automations.rule import OnHealth, OnStuck, OnUnknownAction, Rule
from app.engine.times import span
from storage.records.decision import Occurrence, RuleHistory, Verdict


def decide(rule: Rule, occurrence: Occurrence, past: RuleHistory, now: datetime) -> Verdict:
    """Decide whether to act on the occurrence, given the rule's history."""
    return next(_objections(rule, occurrence, past, now), Verdict("acting"))


def lasts(rule: Rule) -> bool:
    """Whether the trigger is a lasting state instead of an event; a state is checked again after quiet hours."""
    return isinstance(rule.on, OnStuck | OnHealth | OnUnknownAction)


def is_quiet(rule: Rule, now: datetime) -> bool:
    """Whether the rule has quiet hours now."""
    return rule.quiet is not None and rule.quiet.cover(now.astimezone().time())


def _objections(rule: Rule, occurrence: Occurrence, past: RuleHistory, now: datetime) -> Iterator[Verdict]:
    late, limit = now - occurrence.at, rule.limit
    if past.paused is not None:
        yield Verdict("skipped", f"the rule is paused: {past.paused}")
    if late > rule.catch_up and not lasts(rule):
        allowed = span(rule.catch_up.total_seconds(), pads_hours=False)
        yield Verdict("skipped", f"{span(late.total_seconds())} late; catch_up is {allowed}")
    if is_quiet(rule, now):
        yield Verdict("skipped", "in quiet hours")
    if past.in_conversation >= limit.per_conversation:
        yield Verdict("limited", f"{past.in_conversation} in this conversation: limit.per_conversation")
    if past.last_hour >= limit.per_hour:
        yield Verdict("limited", f"{past.last_hour} in the last hour: limit.per_hour")
    if past.last_day >= limit.per_day:
        yield Verdict("limited", f"{past.last_day} in the last 24 hours: limit.per_day")
    if past.active_run is not None and rule.overlap == "skip":
        yield Verdict("skipped", f"its run {past.active_run} is still active; overlap is skip")
    if past.active_run is not None and rule.overlap == "queue":
        if past.has_queued:
            yield Verdict("skipped", "one is queued already; overlap is queue")
        yield Verdict("queued", f"waits for its run {past.active_run}")
    if rule.needs_approval:
        yield Verdict("waiting", f"waits for approval until {now + rule.approval_expires:%Y-%m-%d %H:%M} UTC")
