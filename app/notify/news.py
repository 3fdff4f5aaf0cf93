"""The news of a bot: the current problems in cache, ledger and state, and which of them `[notify] on` selects."""

import shlex
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from app.config import NotifySettings
from app.config.settings import DEFAULT_ROUTE
from app.notify.incidents import IncidentReader
from app.notify.notifications import move_notifications, state_notifications
from app.notify.plan import Present
from app.text import plural, safe_text
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records.alert import Alert
from storage.records.decision import BY_HAND, FINISHED_OUTCOMES, Decision
from storage.records.following import StatusChange, Watermark
from storage.state import State

LATEST: Final = timedelta(days=1)
"""Changes that are older, because no bot was at work, are not told."""
RULES: Final = "automations"
"""The word in `[notify] on` that selects alerts about automations."""


class News(Struct, frozen=True):
    """The result of one look."""

    present: Present
    alerts: tuple[Alert, ...]
    changes: tuple[StatusChange, ...]
    """The changes of status since the last look; empty at the first look."""


@dataclass(slots=True)
class NewsReader:
    """Reads one profile's cache and ledger; changes of status only since the last look."""

    cache: Cache
    ledger: Ledger
    incidents: IncidentReader
    notify: NotifySettings
    profile: str
    _watermark: Watermark | None = None
    _completed: dict[str, datetime] = field(default_factory=dict)

    async def read(self, now: datetime, since: datetime) -> News:
        """The current problems, and those that began since then.

        Raises:
            StorageError: Cache or ledger cannot be read.
        """
        ahead = await self.cache.run_clock_ahead()
        earliest = max(since, now - LATEST)
        found = await self.cache.following.changes(self._watermark or Watermark(), since=earliest + ahead)
        for change in found.changes:
            if change.new == "completed":
                self._completed[change.repository] = change.at - ahead
        stuck, links = await self.cache.following.stuck_runs(), await self.cache.links()
        incidents = [each for each in await self.incidents.read(now) if not each.is_over]
        present = Present(
            unwell=frozenset(each.platform for each in incidents),
            stuck=frozenset(each.run_id for each in stuck),
            unknown=frozenset(each.action_id for each in await self.ledger.unresolved()),
            failing=frozenset(each.subject for each in links if each.is_failing),
            completed=dict(self._completed),
        )
        link = next(each for each in links if each.subject == "runs")
        states = state_notifications(self.notify, self.profile, now, stuck=stuck, incidents=incidents, link=link)
        news = [*move_notifications(found.changes, self.notify.on, self.profile), *states]
        alerts = []
        for each in (one for one in news if not one.after):
            facts = (each.group, "", DEFAULT_ROUTE, each.level, each.title, each.about)
            # Runs are dated by the service's clock.
            at = each.at - ahead if each.kind in {"run", "stuck"} else each.at
            alerts.append(Alert(*facts, key=each.key, body=each.body, at=at))
        changes = found.changes if self._watermark is not None else ()
        self._watermark = found.watermark
        return News(present, tuple(each for each in alerts if each.at >= earliest), changes)


async def rule_alerts(state: State, since: datetime, command_line: str = "runwarden") -> tuple[Alert, ...]:
    """Alerts about automations that wait for approval, reached a limit or paused themselves, since then.

    `command_line` begins a command that works on the same files.

    Raises:
        StorageError: The state cannot be read.
    """
    run, alerts = f"{command_line} automations", list[Alert]()
    for each in await state.open_decisions(outcome="waiting"):
        text = f"{run} approve {each.decision_id} sends: {each.request_json or each.reason}"
        alerts.append(_rule_alert(each, f"approval:{each.decision_id}", "waits for approval", text))
    for newest, count in await state.limited(since):
        # A day's worth is told once, however often its limit holds it back.
        text = f"{newest.reason}; held back {plural(count, 'time')}: {run} log {shlex.quote(newest.rule)}"
        alerts.append(_rule_alert(newest, f"limited:{newest.decided_at:%Y-%m-%d}", "reached its limit", text))
    for rule in (await state.rule_states()).values():
        if rule.paused is not None and not rule.paused.startswith(BY_HAND):
            for last in await state.journal(rule.rule, limit=1, outcomes=FINISHED_OUTCOMES):
                text = f"{rule.paused}. Once it is mended: {run} resume {shlex.quote(rule.rule)}"
                alerts.append(_rule_alert(last, f"paused:{last.decision_id}", "paused itself", text))
    return tuple(each for each in alerts if each.at >= since)


def _rule_alert(decision: Decision, key: str, what: str, text: str) -> Alert:
    return Alert(
        key=f"rule:{decision.rule}:{key}",
        group=f"rule:{decision.rule}",
        source="",
        route=DEFAULT_ROUTE,
        level="warning",
        title=safe_text(f"{decision.rule} {what}", limit=120),
        body=safe_text(text, limit=400),
        at=decision.decided_at,
        about={},
    )
