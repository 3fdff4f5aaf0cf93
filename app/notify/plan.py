"""The plan: which messages are due in a situation, and over which routes. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from app.engine.text import safe_text
from app.engine.times import clock_time, span
from app.health.facts import Incident
from app.notify.alerts import combine, highest_level, places, title_with_count
from app.profiles import NotifySettings
from app.profiles.settings import DEFAULT_ROUTE
from app.profiles.values import MAX_WAIT
from storage.records.alert import Alert, Message, MessagePhase, Plan, ReportedProblem, Settled
from storage.records.inbox import Mark
from storage.values import EPOCH

ENDING: Final = frozenset({"failed", "host", "stuck", "action", "link", "job"})
"""Kinds of alerts about problems, which are over at some point. All other alerts are about single events."""
OUTAGES: Final = frozenset({"host", "link", "job"})
"""Kinds that wake someone at night: they wait for nothing, and are reported even if they are over by then."""
OVER: Final = {
    "failed": "Runs complete again: {}",
    "host": "Code host {} has recovered",
    "stuck": "No longer stuck: {}",
    "action": "Outcome known: {}",
    "link": "The link to the service is back ({})",
    "job": 'Runwarden\'s job "{}" works again',
    "link:health": "The health of the code hosts can be read again",
}
BEGAN: Final = "began_at"
"""The fact with the start of a reported problem (RFC 3339)."""


class Situation(Struct, frozen=True):
    """Everything that decides which messages are due at one moment: known problems and earlier reports of them."""

    now: datetime
    incidents: tuple[Incident, ...] = ()
    """The code hosts' incidents, each host's newest first."""
    stuck: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    """Subjects of failing polls: their problems cannot be known. Also the jobs of the bot that fail."""
    completed: Mapping[str, datetime] = field(default_factory=dict)
    """When a run last completed, by repository."""
    waiting: tuple[Alert, ...] = ()
    problems: tuple[ReportedProblem, ...] = ()
    last_made: Mapping[tuple[str, str], tuple[datetime, bool]] = field(default_factory=dict)
    """When the last message was made, and whether one did not arrive yet, by route and batch."""
    marks: Mapping[str, Mark] = field(default_factory=dict)

    def has(self, group: str, newest_at: datetime) -> bool | None:
        """Whether the problem that `group` names still exists; None if a failing link hides the answer."""
        kind, _, subject = group.partition(":")
        match kind:
            case "link" | "job":
                return subject in self.failing
            case "action":
                return subject in self.unknown
            case "host":
                incident = self.incident(subject, newest_at)
                if "health" in self.failing:
                    return None
                return incident is not None and not incident.is_over
            case _ if "runs" in self.failing:
                return None
            case "failed":
                return self.completed.get(subject, newest_at) <= newest_at
            case _:
                return subject in self.stuck

    def incident(self, platform: str, at: datetime) -> Incident | None:
        """The incident of a host that began or was open at that time."""
        same_platform = (incident for incident in self.incidents if incident.platform == platform)
        return next((incident for incident in same_platform if incident.start <= at), None)

    def is_snoozed(self, subject: Alert | ReportedProblem) -> bool:
        """Whether it was snoozed and nothing new has happened since."""
        at = subject.newest_at if isinstance(subject, ReportedProblem) else subject.at
        return any(mark.hides(at, self.now) for mark in self.marks_on(subject))

    def is_acknowledged(self, problem: ReportedProblem) -> bool:
        """Whether every reported event of the problem was marked as done."""
        # A stuck run or a write is one event; a repository can fail again and again.
        since = EPOCH if problem.kind in {"stuck", "action"} else problem.newest_at
        return any(mark.done_until is not None and mark.done_until >= since for mark in self.marks_on(problem))

    def marks_on(self, subject: Alert | ReportedProblem) -> list[Mark]:
        return [self.marks[key] for key in subject.keys if key in self.marks]


_Batches = dict[tuple[str, tuple[str, ...]], list[Alert]]
"""Alerts that one message reports, by batch and routes."""


def plan(situation: Situation, notify: NotifySettings) -> Plan:
    """The messages that are due, the alerts that are settled, and the new state of reported problems."""
    settled: dict[str, Settled] = {}
    unrouted: list[Alert] = []
    recovered: list[Message] = []
    batches: _Batches = defaultdict(list)
    for alert in situation.waiting:
        match _verdict(alert, situation, notify):
            case "hold":
                pass
            case "send" | "recovered" as verdict:
                routes = routes_of(alert, notify, situation.now)
                awake = tuple(route for route in routes if not notify.is_quiet(route, situation.now))
                if not routes:
                    unrouted.append(alert)
                elif verdict == "send" and awake:
                    batches[alert.batch, awake].append(alert)
                elif verdict == "recovered":
                    # In quiet hours nobody wants reports of past problems.
                    settled[alert.key] = "notified" if awake else "over"
                    recovered += [_recovered_message(alert, route, situation) for route in awake]
            case outcome:
                settled[alert.key] = outcome
    due = {
        (batch, routes): alerts
        for (batch, routes), alerts in batches.items()
        if _is_message_due(batch, routes[0], alerts, situation, notify)
    }
    settled.update((alert.key, "notified") for alerts in due.values() for alert in alerts)
    before = {problem.key: problem for problem in situation.problems}
    reported = _add_reports(before, due, situation, notify)
    # A problem reported just now is neither over nor due for a reminder.
    lasting = [problem for problem in situation.problems if reported[problem.key] is problem]
    over = _over_problems(lasting, situation, notify)
    reminded = [problem for problem in lasting if problem not in over and _is_reminder_due(problem, situation, notify)]
    reported.update((problem.key, replace(problem, last_at=situation.now)) for problem in reminded)
    messages = [
        *_new_messages(due),
        *recovered,
        *_problem_messages("over", over, situation),
        *_problem_messages("again", reminded, situation),
    ]
    changed = tuple(problem for key, problem in reported.items() if problem is not before.get(key))
    return Plan(tuple(messages), settled, changed, tuple(over), tuple(unrouted))


def _is_message_due(
    batch: str, first_route: str, alerts: Sequence[Alert], situation: Situation, notify: NotifySettings
) -> bool:
    """Whether to report these alerts now, instead of waiting for more of their batch."""
    # A user asked for this message.
    if any(alert.key.startswith(f"automation:{alert.source}:asked:") for alert in alerts):
        return True
    now = situation.now
    wait = timedelta(0) if alerts[0].kind in OUTAGES else notify.group_wait
    if now < min(alert.entered_at or now for alert in alerts) + wait:
        return False
    # The first message about a subject is not held back by messages about other subjects.
    groups = {(problem.group, problem.source) for problem in situation.problems if problem.route == first_route}
    if any(alert.kind in ENDING and (alert.group, alert.source) not in groups for alert in alerts):
        return True
    last, _ = situation.last_made.get((first_route, batch), (None, False))
    return last is None or now >= last + notify.group_interval


def _new_messages(batches: _Batches) -> list[Message]:
    messages: list[Message] = []
    for (batch, routes), alerts in batches.items():
        combined = combine(alerts)
        groups = tuple(dict.fromkeys(alert.group for alert in alerts))
        level, title, body = combined.level, combined.title, combined.body
        for route in routes:
            about = dict(combined.about)
            messages.append(Message(route, batch, "new", level, title, body, groups, about, len(alerts)))
    return messages


def _add_reports(
    before: Mapping[tuple[str, str, str], ReportedProblem],
    batches: _Batches,
    situation: Situation,
    notify: NotifySettings,
) -> dict[tuple[str, str, str], ReportedProblem]:
    """The reported problems after these alerts are reported as well."""
    reported = dict(before)
    for (_, routes), alerts in batches.items():
        for route in routes:
            for alert in alerts:
                if alert.kind in ENDING:
                    key = alert.group, alert.source, route
                    reported[key] = _problem_after(reported.get(key), alert, route, situation, notify)
    return reported


def _is_reminder_due(problem: ReportedProblem, situation: Situation, notify: NotifySettings) -> bool:
    """Whether to report a problem again that still exists."""
    now = situation.now
    route = notify.route(problem.route)
    if route.repeat is None or now < problem.last_at + route.repeat or now - problem.first_at > route.give_up:
        return False
    is_handled = situation.is_acknowledged(problem) or situation.is_snoozed(problem)
    if is_handled or notify.is_quiet(problem.route, now):
        return False
    # Wait: the host has not been healthy long enough to report it.
    incident = situation.incident(problem.group.partition(":")[2], problem.newest_at)
    if problem.kind == "host" and incident is not None and not incident.is_ongoing:
        return False
    # A reminder that cannot be delivered is tried again, and must not arrive after a newer one.
    _, is_waiting = situation.last_made.get((problem.route, problem.batch), (None, False))
    return not is_waiting and situation.has(problem.group, problem.newest_at) is True


def _verdict(
    alert: Alert, situation: Situation, notify: NotifySettings
) -> Settled | Literal["send", "hold", "recovered"]:
    is_snoozed = situation.is_snoozed(alert)
    is_failure = alert.kind == "failed"
    # A snoozed event is never reported later, unlike a snoozed problem.
    if any(mark.is_muted for mark in situation.marks_on(alert)) or (is_snoozed and alert.kind not in ENDING):
        return "muted"
    waited = situation.now - (alert.entered_at or situation.now)
    is_there = None
    if alert.kind in ENDING:
        is_there = situation.has(alert.group, alert.at)
        was_reported = any(
            (problem.group, problem.source) == (alert.group, alert.source) for problem in situation.problems
        )
        if is_there is False and alert.kind in OUTAGES and not was_reported and not is_snoozed:
            return "recovered" if waited <= MAX_WAIT else "expired"
        # A failure is worth reporting for a while, even if another run has completed since.
        if is_there is False and (not is_failure or was_reported or waited > notify.group_interval):
            return "over"
        if is_snoozed or (is_there is None and not is_failure):
            return "hold"
    if waited > MAX_WAIT and (is_failure or not is_there):
        return "expired"
    return "send"


def _problem_after(
    before: ReportedProblem | None, alert: Alert, route: str, situation: Situation, notify: NotifySettings
) -> ReportedProblem:
    """The state of the alert's problem after the route reports the alert."""
    if before is None:
        about = {**alert.about, BEGAN: alert.at.isoformat()}
        facts = (alert.group, alert.source, route, alert.level, alert.title, about)
        return ReportedProblem(*facts, first_at=situation.now, last_at=situation.now, newest_at=alert.at)
    is_new = situation.is_acknowledged(before) or situation.now - before.first_at > notify.route(route).give_up
    return replace(
        before,
        level=highest_level((before.level, alert.level)),
        title=alert.title,
        about={**alert.about, BEGAN: before.about.get(BEGAN, before.newest_at.isoformat())},
        first_at=situation.now if is_new else before.first_at,
        last_at=situation.now,
        newest_at=max(before.newest_at, alert.at),
        count=before.count + 1,
    )


def _over_problems(
    lasting: Sequence[ReportedProblem], situation: Situation, notify: NotifySettings
) -> list[ReportedProblem]:
    """Problems that are over, held back until their batch is over, or for one interval, to share one message."""
    is_there = {problem.key: situation.has(problem.group, problem.newest_at) for problem in lasting}
    open_batches = {(problem.route, problem.batch) for problem in lasting if is_there[problem.key] is not False}
    over: list[ReportedProblem] = []
    for problem in (problem for problem in lasting if is_there[problem.key] is False):
        key = problem.route, problem.batch
        last, is_waiting = situation.last_made.get(key, (problem.last_at, False))
        interval_over = situation.now >= last + notify.group_interval
        is_due = key not in open_batches or interval_over or problem.kind in OUTAGES
        # The end must not arrive before the beginning, which may still be on its way.
        if is_due and not is_waiting and not notify.is_quiet(problem.route, situation.now):
            over.append(problem)
    return over


def _problem_messages(phase: MessagePhase, problems: Iterable[ReportedProblem], situation: Situation) -> list[Message]:
    batches: dict[tuple[str, str], list[ReportedProblem]] = defaultdict(list)
    for problem in problems:
        batches[problem.route, problem.batch].append(problem)
    messages: list[Message] = []
    for (route, batch), group in batches.items():
        newest = max(group, key=lambda problem: problem.newest_at)
        title = f"Ongoing: {newest.title}"
        level = highest_level(problem.level for problem in group)
        count = sum(problem.count for problem in group)
        # When the problems began, as far as the alerts say.
        began = min(
            datetime.fromisoformat(problem.about[BEGAN]) if problem.about.get(BEGAN) else problem.first_at
            for problem in group
        )
        lasted = f"after {span((situation.now - began).total_seconds())}"
        if phase == "over":
            kind, _, subject = newest.group.partition(":")
            name = newest.about.get("repository") or safe_text(subject, limit=80)
            title = OVER.get(newest.group, OVER[kind]).format(name)
            level = "information"
            if kind == "host":
                incident = situation.incident(subject, newest.newest_at)
                change = ": its incident is no longer on record"
                if incident is not None:
                    lasted = _between(incident, situation.now)
                    has_recovered = incident.recovered_at is not None
                    change = " is no longer connected: its state is unknown"
                    if has_recovered:
                        change = " has recovered"
                title = f"Code host {name}{change}"
            title = f"{newest.source}: {title}" if newest.source else title
        body = " · ".join(filter(None, (places(group), lasted, f"{count:,} in all" if count > 1 else "")))
        groups = tuple(problem.group for problem in group)
        title = title_with_count(title, len(group))
        messages.append(Message(route, batch, phase, level, title, body, groups, dict(newest.about), count))
    return messages


def _recovered_message(alert: Alert, route: str, situation: Situation) -> Message:
    """One message about an outage that was over before it could be reported, with its start and end."""
    name = safe_text(alert.group.partition(":")[2], limit=80)
    incident = situation.incident(name, alert.at) if alert.kind == "host" else None
    title = f"{alert.title}, over by now"
    body = alert.body
    if incident is not None:
        ending = "" if incident.recovered_at is not None else " until it was disconnected"
        title = f"Code host {name} was {incident.word} for {span(incident.lasted.total_seconds())}{ending}"
        title = f"{alert.source}: {title}" if alert.source else title
        body = f"{_between(incident, situation.now).partition(', ')[2]} · {alert.body}"
    return Message(route, alert.batch, "over", alert.level, title, body, (alert.group,), dict(alert.about))


def _between(incident: Incident, now: datetime) -> str:
    lasted = span(incident.lasted.total_seconds())
    return f"after {lasted}, from {clock_time(incident.start, now)} to {clock_time(incident.end, now)}"


def routes_of(alert: Alert, notify: NotifySettings, now: datetime) -> tuple[str, ...]:
    """The names of the alert's routes at this time; empty if no rule matches."""
    if alert.route != DEFAULT_ROUTE or not notify.rules:
        return (alert.route,)
    repository = alert.about.get("repository", "")
    time = now.astimezone().time()
    for rule in notify.rules:
        is_there = not rule.repository or any(fnmatchcase(repository, glob) for glob in rule.repository)
        is_meant = highest_level((rule.severity, alert.level)) == alert.level and (
            not rule.kind or alert.kind in rule.kind
        )
        if is_there and is_meant and (rule.hours is None or rule.hours.cover(time)):
            return rule.routes
    return ()
