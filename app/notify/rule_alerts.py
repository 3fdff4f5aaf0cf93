"""Alerts about the automations themselves: waiting approvals, reached limits, and rules that paused."""

import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from app.config.notify import DEFAULT_ROUTE
from app.text import plural, safe_text
from storage.records.alert import Alert
from storage.records.decision import BY_HAND, FINISHED_OUTCOMES, Decision
from storage.state import State

RULES: Final = "automations"
"""The word in `[notify] on` that selects alerts about automations."""
_LONGEST: Final = 400


async def rule_alerts(state: State, since: datetime, command_line: str = "runwarden") -> tuple[Alert, ...]:
    """Approvals that are waited for, limits reached and rules that paused themselves, since then.

    `command_line` begins a command that works on the same files.

    Raises:
        StorageError: The state cannot be read.
    """
    automations = f"{command_line} automations"
    alerts = [_approval(each, automations) for each in await state.open_decisions(outcome="waiting")]
    alerts += _limits(await state.limited(since), automations)
    for rule in (await state.rule_states()).values():
        if rule.paused is not None and not rule.paused.startswith(BY_HAND):
            for last in await state.journal(rule.rule, limit=1, outcomes=FINISHED_OUTCOMES):
                text = f"{rule.paused}. Once it is mended: {automations} resume {shlex.quote(rule.rule)}"
                alerts.append(_alert(last, f"paused:{last.decision_id}", "paused itself", text))
    return tuple(each for each in alerts if each.at >= since)


def _approval(decision: Decision, automations: str) -> Alert:
    text = f"{automations} approve {decision.decision_id} sends: {decision.request_json or decision.reason}"
    return _alert(decision, f"approval:{decision.decision_id}", "waits for approval", text)


def _limits(limited: tuple[tuple[Decision, int], ...], automations: str) -> Iterator[Alert]:
    for newest, count in limited:
        # A day's worth is told once, however often its limit holds it back.
        text = f"{newest.reason}; held back {plural(count, 'time')}: {automations} log {shlex.quote(newest.rule)}"
        yield _alert(newest, f"limited:{newest.decided_at:%Y-%m-%d}", "reached its limit", text)


def _alert(decision: Decision, key: str, what: str, text: str) -> Alert:
    return Alert(
        key=f"rule:{decision.rule}:{key}",
        group=f"rule:{decision.rule}",
        source="",
        route=DEFAULT_ROUTE,
        level="warning",
        title=safe_text(f"{decision.rule} {what}", limit=120),
        body=safe_text(text, limit=_LONGEST),
        at=decision.decided_at,
        about={},
    )
