"""The plan: which messages a situation calls for now, and over which routes. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from app.engine.text import safe_text
from app.engine.times import span
from app.notify.alerts import counted, places, together, worst
from app.profiles import NotifySettings
from app.profiles.settings import DEFAULT_ROUTE
from app.profiles.values import LONGEST_WAIT
from storage.records.alert import Alert, Message, MessagePhase, Plan, Settled, ToldProblem
from storage.records.inbox import Mark

ENDING: Final = frozenset({"failed", "host", "stuck", "action", "link"})
"""Kinds of alerts about problems, which end. All other alerts are about single events."""
OVER: Final = {
    "failed": "Runs complete again: {}",
    "host": "Code host {} has recovered",
    "stuck": "No longer stuck: {}",
    "action": "Outcome known: {}",
    "link": "The link to the service is back ({})",
}
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class Present(Struct, frozen=True):
    """The current problems, as far as known."""

    unwell: frozenset[str] = frozenset()
    """Code hosts whose incident is not over."""
    stuck: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    """Actions whose outcome is unknown."""
    failing: frozenset[str] = frozenset()
    """Subjects of failing polls: their problems cannot be known."""
    completed: Mapping[str, datetime] = field(default_factory=dict)
    """When a run last completed, by its repository's label."""

    def has(self, group: str, newest_at: datetime) -> bool | None:
        """Whether the problem that `group` names still exists; None if a failing link hides the answer."""
        kind, _, what = group.partition(":")
        match kind:
            case "link":
                return what in self.failing
            case "action":
                return what in self.unknown
            case "host":
                return None if "health" in self.failing else what in self.unwell
            case _ if "runs" in self.failing:
                return None
            case "failed":
                return self.completed.get(what, newest_at) <= newest_at
            case _:
                return what in self.stuck


class Situation(Struct, frozen=True):
    """Everything that the next messages depend on, at one moment."""

    now: datetime
    present: Present = field(default_factory=Present)
    waiting: tuple[Alert, ...] = ()
    told: tuple[ToldProblem, ...] = ()
    last_made: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """When the last message was made, by route and batch."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Marks on the inbox's items, by group."""

    def is_snoozed(self, one: Alert | ToldProblem) -> bool:
        """Whether a person put it off, and nothing new happened since."""
        at = one.newest_at if isinstance(one, ToldProblem) else one.at
        return any(mark.hides(at, self.now) for mark in self._marks(one))

    def is_muted(self, one: Alert | ToldProblem) -> bool:
        """Whether a person never wants to hear of it again."""
        return any(mark.is_muted for mark in self._marks(one))

    def is_acknowledged(self, problem: ToldProblem) -> bool:
        """Whether a person marked all that was told of it as done."""
        # A run that is stuck, and a write, are one thing each; a repository fails again and again.
        since = _LONG_AGO if problem.kind in {"stuck", "action"} else problem.newest_at
        return any(mark.done_until is not None and mark.done_until >= since for mark in self._marks(problem))

    def _marks(self, one: Alert | ToldProblem) -> list[Mark]:
        return [self.marks[key] for key in one.keys if key in self.marks]


def plan(at: Situation, notify: NotifySettings) -> Plan:
    """The messages due now, the end of alerts, and the new state of told problems."""
    settled: dict[str, Settled] = {}
    unrouted: list[Alert] = []
    batches: dict[tuple[str, tuple[str, ...]], list[Alert]] = defaultdict(list)
    for alert in at.waiting:
        match _verdict(alert, at, notify):
            case "hold":
                pass
            case "tell":
                routes = routes_of(alert, notify, at.now)
                if not routes:
                    unrouted.append(alert)
                elif awake := tuple(route for route in routes if not notify.is_quiet(route, at.now)):
                    batches[alert.batch, awake].append(alert)
            case outcome:
                settled[alert.key] = outcome
    before = {problem.key: problem for problem in at.told}
    told, messages = dict(before), list[Message]()
    for (batch, routes), alerts in batches.items():
        # A person waits for a message that was asked for.
        is_asked = any(each.key.startswith(f"automation:{each.source}:asked:") for each in alerts)
        waits_since = min(each.entered_at or at.now for each in alerts)
        last = at.last_made.get((routes[0], batch))
        is_first_due = at.now >= waits_since + notify.group_wait
        if not (is_asked or (is_first_due and (last is None or at.now >= last + notify.group_interval))):
            continue
        settled |= dict.fromkeys((alert.key for alert in alerts), "told")
        for route in routes:
            one = together(alerts)
            groups = tuple(dict.fromkeys(each.group for each in alerts))
            text = (one.level, one.title, one.body)
            messages.append(Message(route, batch, "new", *text, groups, dict(one.about), len(alerts)))
            for alert in (each for each in alerts if each.kind in ENDING):
                key = alert.group, alert.source, route
                told[key] = _counted(told.get(key), alert, route, at, notify)
    # What was told just now is neither over nor told again.
    lasting = [problem for problem in at.told if told[problem.key] is problem]
    over, again = _over(lasting, at, notify), []
    for problem in (each for each in lasting if each not in over):
        route_of = notify.route(problem.route)
        is_due = route_of.repeat is not None and at.now >= problem.last_at + route_of.repeat
        is_put_off = at.is_acknowledged(problem) or at.is_snoozed(problem) or notify.is_quiet(problem.route, at.now)
        is_there = at.present.has(problem.group, problem.newest_at) is True
        if is_due and is_there and not is_put_off and at.now - problem.first_at <= route_of.give_up:
            again.append(problem)
    told |= {problem.key: replace(problem, last_at=at.now) for problem in again}
    return Plan(
        (*messages, *_messages("over", over, at), *_messages("again", again, at)),
        settled,
        tuple(problem for key, problem in told.items() if problem is not before.get(key)),
        tuple(over),
        tuple(unrouted),
    )


def _verdict(alert: Alert, at: Situation, notify: NotifySettings) -> Settled | Literal["tell", "hold"]:
    is_snoozed = at.is_snoozed(alert)
    is_failure = alert.kind == "failed"
    # An event, unlike a problem, is not told after it was put off.
    if at.is_muted(alert) or (is_snoozed and alert.kind not in ENDING):
        return "muted"
    waited, is_there = at.now - (alert.entered_at or at.now), None
    if alert.kind in ENDING:
        is_there = at.present.has(alert.group, alert.at)
        was_told = any((each.group, each.source) == (alert.group, alert.source) for each in at.told)
        # That a run failed stays worth telling for a while, though another one completed since.
        if is_there is False and (not is_failure or was_told or waited > notify.group_interval):
            return "over"
        if is_snoozed or (is_there is None and not is_failure):
            return "hold"
    return "expired" if waited > LONGEST_WAIT and (is_failure or not is_there) else "tell"


def _counted(
    before: ToldProblem | None, alert: Alert, route: str, at: Situation, notify: NotifySettings
) -> ToldProblem:
    """The state of the alert's problem once the route is told of the alert."""
    if before is None:
        facts = (alert.group, alert.source, route, alert.level, alert.title, alert.about)
        return ToldProblem(*facts, first_at=at.now, last_at=at.now, newest_at=alert.at)
    is_new = at.is_acknowledged(before) or at.now - before.first_at > notify.route(route).give_up
    return replace(
        before,
        level=worst((before.level, alert.level)),
        title=alert.title,
        about=alert.about,
        first_at=at.now if is_new else before.first_at,
        last_at=at.now,
        newest_at=max(before.newest_at, alert.at),
        count=before.count + 1,
    )


def _over(lasting: Sequence[ToldProblem], at: Situation, notify: NotifySettings) -> list[ToldProblem]:
    """Ended problems, each batch together: a storm ends in one message, or in one an interval."""
    is_there = {problem.key: at.present.has(problem.group, problem.newest_at) for problem in lasting}
    open_batches = {(each.route, each.batch) for each in lasting if is_there[each.key] is not False}
    over: list[ToldProblem] = []
    for problem in (each for each in lasting if is_there[each.key] is False):
        key = problem.route, problem.batch
        is_due = key not in open_batches or at.now >= at.last_made.get(key, problem.last_at) + notify.group_interval
        if is_due and not notify.is_quiet(problem.route, at.now):
            over.append(problem)
    return over


def _messages(phase: MessagePhase, problems: Iterable[ToldProblem], at: Situation) -> list[Message]:
    batches: dict[tuple[str, str], list[ToldProblem]] = defaultdict(list)
    for problem in problems:
        batches[problem.route, problem.batch].append(problem)
    messages: list[Message] = []
    for (route, batch), group in batches.items():
        newest = max(group, key=lambda problem: problem.newest_at)
        title = f"Still so: {newest.title}"
        level = worst(each.level for each in group)
        count = sum(p.count for p in group)
        if phase == "over":
            kind, _, what = newest.group.partition(":")
            title = OVER[kind].format(newest.about.get("repository") or safe_text(what, limit=80))
            title = f"{newest.source}: {title}" if newest.source else title
            level = "information"
        lasted = f"after {span((at.now - min(problem.first_at for problem in group)).total_seconds())}"
        body = " · ".join(filter(None, (places(group), lasted, f"{count:,} in all" if count > 1 else "")))
        groups = tuple(problem.group for problem in group)
        title = counted(title, len(group))
        messages.append(Message(route, batch, phase, level, title, body, groups, dict(newest.about), count))
    return messages


def routes_of(alert: Alert, notify: NotifySettings, now: datetime) -> tuple[str, ...]:
    """The names of the alert's routes at this time; empty: no rule matches it."""
    if alert.route != DEFAULT_ROUTE or not notify.rules:
        return (alert.route,)
    repository = alert.about.get("repository", "")
    time = now.astimezone().time()
    for rule in notify.rules:
        is_there = not rule.repository or any(fnmatchcase(repository, glob) for glob in rule.repository)
        is_meant = worst((rule.severity, alert.level)) == alert.level and (not rule.kind or alert.kind in rule.kind)
        if is_there and is_meant and (rule.hours is None or rule.hours.cover(time)):
            return rule.routes
    return ()
