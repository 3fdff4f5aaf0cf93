"""The dispatcher: turns each change into one message, and delivers it at least once, under one number."""

import asyncio
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from app.api.network import Network
from app.engine.text import plural
from app.health.incidents import IncidentReader
from app.notify.alerts import follow_up_alerts, move_alert, own_alert, select_changes, state_alerts
from app.notify.channels import send
from app.notify.plan import Situation, plan
from app.profiles import NotifySettings
from app.profiles.settings import DEFAULT_ROUTE
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records.alert import Alert, Delivery
from storage.records.decision import BY_HAND, FINISHED_OUTCOMES, Decision
from storage.records.following import StatusChange, StatusChanges, Watermark
from storage.state import OWN, State

BACKOFF: Final = (timedelta(seconds=15), timedelta(minutes=1), timedelta(minutes=5))
"""The wait after each failed attempt; one more failure gives the message up."""
CLAIMED_FOR: Final = timedelta(minutes=2)
"""How long a process owns an attempt: longer than the deadlines of all channels of a route."""

Say = Callable[..., None]
"""Writes one log line: an event's name, and its facts by name."""


@dataclass(slots=True)
class Dispatcher:
    """One profile's notifications, in one process at a time."""

    state: State
    cache: Cache
    ledger: Ledger
    incidents: IncidentReader
    notify: NotifySettings
    profile: str
    say: Say
    on_changes: Callable[[Sequence[StatusChange]], None] = lambda _: None
    """Called with new status changes, except those found at the first look."""
    command_line: str = "runwarden"
    broken: Callable[[], Mapping[str, str]] = dict
    """The jobs of this process that fail, with their reasons."""
    host_routes: tuple[str, ...] = ()
    """Routes for the alert that the code hosts are unobserved, if `[notify]` sends none."""
    network: Network = field(default_factory=Network)
    _broken_since: dict[str, datetime] = field(default_factory=dict)
    _since: datetime | None = None
    """When `[notify] on` was last changed."""
    _watermark: Watermark | None = None
    _completed: dict[str, datetime] = field(default_factory=dict)
    _unrouted: set[str] = field(default_factory=set)
    """Keys of alerts without a route, each of which is logged once."""

    async def make_messages(self, *, at_once: bool = False) -> bool:
        """Make the messages that are due and return whether there are any; `at_once`: do not wait to combine alerts."""
        now = self.state.clock()
        notifies = bool(self.notify.rules) or not self.notify.route(DEFAULT_ROUTE).is_silent
        if self._since is None:
            wishes = repr((sorted(self.notify.on), notifies))
            self._since = (await self.state.begin_rule(OWN, wishes, now)).since
        # Older changes, from a time without a bot, are not reported.
        since = max(self._since, now - timedelta(days=1))
        reports_hosts = notifies and "health" in self.notify.on
        situation, alerts, news = await self._read(now, since, () if reports_hosts else self.host_routes)
        if notifies:
            alerts += await follow_up_alerts(self.state, since, self.profile)
            if "automations" in self.notify.on:
                alerts += await rule_alerts(self.state, since, self.command_line)
        else:
            alerts = [alert for alert in alerts if alert.route != DEFAULT_ROUTE]
        if alerts:
            await self.state.enter_alerts(alerts, now)
        self.on_changes(news.changes if self._watermark is not None else ())
        self._watermark = news.watermark
        notify = replace(self.notify, group_wait=timedelta(0)) if at_once else self.notify
        return await self._carry_out(situation, notify)

    async def _carry_out(self, situation: Situation, notify: NotifySettings) -> bool:
        """Make the messages that are due in this situation, and log them; return whether there are any."""
        while True:
            basis = await self.state.newest_delivery()
            waiting = await self.state.waiting_alerts()
            problems = await self.state.reported_problems()
            if not waiting and not problems:
                return False
            last_made = await self.state.last_made()
            marks = await self.state.marks()
            situation = replace(situation, waiting=waiting, problems=problems, last_made=last_made, marks=marks)
            due = plan(situation, notify)
            # Plan again if another process has made messages or reported an alert in the meantime.
            if await self.state.apply_plan(due, situation.now, basis):
                break
        for message in due.messages:
            self.say("message", phase=message.phase, route=message.route, title=message.title, count=message.count)
        for alert in due.unrouted:
            if alert.key not in self._unrouted:
                self.say("unrouted", key=alert.key, title=alert.title, message="no [[notify.rules]] matches it now")
        self._unrouted = {alert.key for alert in due.unrouted}
        groups = {alert.key: alert.group for alert in waiting}
        quiet = Counter((groups[key], outcome) for key, outcome in due.settled.items() if outcome != "notified")
        for (group, outcome), count in quiet.items():
            self.say("not_notified", group=group, outcome=outcome, count=count)
        return bool(due.messages)

    async def _read(
        self, now: datetime, since: datetime, host_routes: Sequence[str]
    ) -> tuple[Situation, list[Alert], StatusChanges]:
        """The current problems, alerts for the ones that started since the last look, and new status changes."""
        news = await self.cache.changes(self._watermark or Watermark(), since=since)
        ahead = news.ahead
        completed = (change for change in news.changes if change.new == "completed")
        self._completed |= {change.repository: change.happened_at(ahead) for change in completed}
        hosts, links, stuck = await self.cache.states()
        incidents = await self.incidents.read(hosts, now)
        lasting = [incident for incident in incidents if not incident.is_over]
        broken = self.broken()
        self._broken_since = {job: self._broken_since.get(job, now) for job in broken}
        situation = Situation(
            now,
            incidents=incidents,
            stuck=frozenset(run.run_id for run in stuck),
            unknown=frozenset(action.action_id for action in await self.ledger.unresolved()),
            failing=frozenset([*broken, *(link.subject for link in links if link.is_failing)]),
            completed=dict(self._completed),
        )
        moved = await select_changes(news.changes, self.notify.on, self.ledger)
        alerts = [replace(move_alert(move, self.profile), at=move.happened_at(ahead)) for move in moved]
        facts = (self.notify, self.profile, now)
        states = state_alerts(*facts, stuck=stuck, incidents=lasting, links=links, host_routes=host_routes)
        begun = [state for state in states if not state.after]
        # Runs are dated by the service's clock.
        alerts += [replace(state, at=state.at - ahead) if state.about.get("run_id") else state for state in begun]
        for job, at in self._broken_since.items():
            if now - at >= timedelta(minutes=1):  # Files can be locked for a moment.
                key = f"job:{job}:{at.isoformat()}"
                title = f'Runwarden\'s job "{job}" fails: {self.profile}'
                alerts.append(own_alert(key, f"job:{job}", "error", title, broken[job], at, {}, is_lasting=True))
        return situation, [alert for alert in alerts if alert.at >= since], news

    async def deliver(self) -> None:
        """Deliver the messages that are due, each route independently of the others."""
        now = self.state.clock()
        await self.state.release_orphans(now)
        due = sorted(await self.state.due_deliveries(now), key=lambda delivery: delivery.message.route)
        routes = [list(group) for _, group in groupby(due, key=lambda delivery: delivery.message.route)]
        results = await asyncio.gather(*map(self._deliver, routes), return_exceptions=True)
        for failure in (result for result in results if result is not None):
            # Raise one failure instead of a group: callers catch a `StorageError`.
            raise failure

    async def _deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Deliver the messages of one route, with retries, and finally over the fallback route."""
        for delivery in deliveries:
            now = self.state.clock()
            message = delivery.message
            route = self.notify.route(message.route)
            trouble, fallback, due = "", "", None
            if now - delivery.made_at > route.give_up:
                outcome = "expired"
                trouble = "it expired before it could be sent"
            elif not await self.state.claim_delivery(delivery, now, now + CLAIMED_FOR):
                continue
            elif not (
                trouble := await send(self.notify, delivery, self.profile, self.network, self.command_line) or ""
            ):
                outcome = "delivered"
            elif delivery.attempts < len(BACKOFF):
                outcome = "delivery_failed"
                due = self.state.clock() + BACKOFF[delivery.attempts]
            else:
                has_own = message.route != DEFAULT_ROUTE and not self.notify.route(DEFAULT_ROUTE).is_silent
                outcome = "failed"
                fallback = route.fallback or (DEFAULT_ROUTE if has_own else "")
            await self.state.settle_delivery(
                delivery, None if due else outcome, self.state.clock(), error=trouble, due=due, fallback=fallback
            )
            about = {"delivery": delivery.number, "route": message.route, "title": message.title}
            details = {"attempt": delivery.attempts + 1, "message": trouble or None, "fallback": fallback or None}
            self.say(outcome, **about, **details)


async def rule_alerts(state: State, since: datetime, command_line: str) -> list[Alert]:
    """Alerts about automations that have waited for approval, reached a limit or paused themselves since then."""
    run = f"{command_line} automations"
    alerts = list[Alert]()
    for decision in await state.open_decisions(outcome="waiting"):
        text = f"{run} approve {decision.decision_id} sends: {decision.request_json or decision.reason}"
        alerts.append(_rule_alert(decision, f"approval:{decision.decision_id}", "waits for approval", text))
    for newest, count in await state.limited(since):
        # Report a limit once a day, however often it holds the rule back.
        text = f"{newest.reason}; held back {plural(count, 'time')}: {run} log {shlex.quote(newest.rule)}"
        alerts.append(_rule_alert(newest, f"limited:{newest.decided_at:%Y-%m-%d}", "reached its limit", text))
    for rule in (await state.rule_states()).values():
        if rule.paused is not None and not rule.paused.startswith(BY_HAND):
            for last in await state.journal(rule.rule, limit=1, outcomes=FINISHED_OUTCOMES):
                text = f"{rule.paused}. Once that is fixed: {run} resume {shlex.quote(rule.rule)}"
                alerts.append(_rule_alert(last, f"paused:{last.decision_id}", "paused itself", text))
    return [alert for alert in alerts if alert.at >= since]


def _rule_alert(decision: Decision, key: str, event: str, text: str) -> Alert:
    rule, at = decision.rule, decision.decided_at
    return own_alert(f"rule:{rule}:{key}", f"rule:{rule}", "warning", f"{rule} {event}", text, at, {})
