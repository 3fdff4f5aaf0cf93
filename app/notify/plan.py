"""The plan: which messages a situation calls for now, and over which routes. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final, Literal

from app.config import NotifyRoute, NotifyRule, NotifySettings
from app.config.notify import DEFAULT_ROUTE, LONGEST, SEVERITIES
from app.notify.situation import ENDING, Situation
from app.text import plural, safe_text
from app.times import span
from storage.records.alert import Alert, Level, Message, MessagePhase, Plan, Settled, ToldProblem

LISTED: Final = 5
"""Places that one message names."""
GroupingVerdict = Settled | Literal["tell", "hold"]
ToldKey = tuple[str, str, str]
"""Group, source and route."""
OVER: Final = {
    "failed": "Runs complete again: {}",
    "host": "Code host {} is well again",
    "stuck": "No longer stuck: {}",
    "action": "Outcome known: {}",
    "link": "The link to the service is back ({})",
}
AHEAD: Final[Mapping[MessagePhase, str]] = {"again": "Still so: ", "escalated": "Not acknowledged: "}


def plan(at: Situation, notify: NotifySettings) -> Plan:
    """The messages due now, and the new state of told problems."""
    first = told_first(at, notify)
    fresh = {key_of(problem) for problem in first.told if problem.last_at == at.now}
    counted = {key_of(problem): problem for problem in first.told}
    going_on = [counted.get(key_of(problem), problem) for problem in at.told if key_of(problem) not in fresh]
    over = list(_over(going_on, at, notify))
    reminders, changed = _reminders([problem for problem in going_on if problem not in over], at, notify)
    return replace(
        first,
        messages=(*first.messages, *_messages("over", ((problem.route, problem) for problem in over), at), *reminders),
        told=tuple({**counted, **changed}.values()),
        over=tuple(over),
    )


def _over(going_on: Sequence[ToldProblem], at: Situation, notify: NotifySettings) -> Iterable[ToldProblem]:
    """Ended problems, each batch together: a storm ends in one message, or in one an interval."""
    is_there = {key_of(problem): at.present.has(problem.group, problem.newest_at) for problem in going_on}
    lasting = {(problem.route, problem.batch) for problem in going_on if is_there[key_of(problem)] is not False}
    for problem in (each for each in going_on if is_there[key_of(each)] is False):
        key = (problem.route, problem.batch)
        last = at.last_made.get(key, problem.last_at)
        is_due = key not in lasting or at.now >= last + notify.group_interval
        if is_due and not is_quiet(problem.route, notify, at.now):
            yield problem


def _reminders(
    lasting: Sequence[ToldProblem], at: Situation, notify: NotifySettings
) -> tuple[list[Message], dict[ToldKey, ToldProblem]]:
    again: list[tuple[str, ToldProblem]] = []
    escalated: list[tuple[str, ToldProblem]] = []
    changed: dict[ToldKey, ToldProblem] = {}
    for problem in lasting:
        route, age = notify.route(problem.route), at.now - problem.first_at
        if age > route.give_up or not _needs_a_person(problem, at) or is_quiet(problem.route, notify, at.now):
            continue
        if route.escalate_after is not None and age >= route.escalate_after and not problem.is_escalated:
            changed[key_of(problem)] = replace(problem, is_escalated=True)
            beyond = replace(problem, route=route.escalate_to, first_at=at.now, last_at=at.now, is_escalated=False)
            changed[key_of(beyond)] = beyond
            escalated.append((route.escalate_to, problem))
        if route.repeat is not None and at.now >= problem.last_at + route.repeat:
            changed[key_of(problem)] = replace(changed.get(key_of(problem), problem), last_at=at.now)
            again.append((problem.route, problem))
    return [*_messages("again", again, at), *_messages("escalated", escalated, at)], changed


def _needs_a_person(problem: ToldProblem, at: Situation) -> bool:
    is_there = at.present.has(problem.group, problem.newest_at)
    return is_there is True and not at.is_acknowledged(problem) and not at.is_silenced(problem)


def _messages(phase: MessagePhase, members: Iterable[tuple[str, ToldProblem]], at: Situation) -> Iterable[Message]:
    batches: dict[tuple[str, str], list[ToldProblem]] = defaultdict(list)
    for route, problem in members:
        batches[route, problem.batch].append(problem)
    return [_message(phase, route, batch, group, at) for (route, batch), group in batches.items()]


def _message(phase: MessagePhase, route: str, batch: str, group: Sequence[ToldProblem], at: Situation) -> Message:
    newest = max(group, key=lambda problem: problem.newest_at)
    title, count = f"{AHEAD.get(phase, '')}{newest.title}", sum(problem.count for problem in group)
    if phase == "over":
        kind, _, what = newest.group.partition(":")
        title = OVER[kind].format(newest.about.get("repository") or safe_text(what, limit=80))
        title = f"{newest.source}: {title}" if newest.source else title
    inhibited = sum(problem.inhibited for problem in group)
    parts = [
        places([problem.about.get("repository", "") for problem in group]) if len(group) > 1 else "",
        f"after {span((at.now - min(problem.first_at for problem in group)).total_seconds())}",
        f"{count:,} in all" if count > 1 else "",
        f"{plural(inhibited, 'run')} failed there" if inhibited else "",
    ]
    return Message(
        route,
        batch,
        phase,
        "information" if phase == "over" else worst(problem.level for problem in group),
        titled(title, len(group)),
        " · ".join(filter(None, parts)),
        tuple(problem.group for problem in group),
        dict(newest.about),
        count,
    )


def told_first(at: Situation, notify: NotifySettings) -> Plan:
    """The messages about new alerts, and the new state of each waiting alert."""
    verdicts = {each.key: _verdict(each, at, notify) for each in at.waiting}
    batches: dict[tuple[str, tuple[str, ...]], list[Alert]] = defaultdict(list)
    unrouted: list[Alert] = []
    for alert in (each for each in at.waiting if verdicts[each.key] == "tell"):
        routes = routes_of(alert, notify, at.now)
        if not routes:
            unrouted.append(alert)
        elif awake := tuple(route for route in routes if not is_quiet(route, notify, at.now)):
            batches[alert.batch, awake].append(alert)
    settled: dict[str, Settled] = {key: each for key, each in verdicts.items() if each not in {"tell", "hold"}}  # type: ignore[misc] # narrowed by the condition
    inhibited = Counter(at.inhibitor(each) for each in at.waiting if verdicts[each.key] in {"inhibited", "hold"})
    told = _counted(at, Counter(at.inhibitor(each) for each in at.waiting if verdicts[each.key] == "inhibited"))
    messages: list[Message] = []
    for (batch, routes), alerts in batches.items():
        if not _is_due(batch, routes[0], alerts, at, notify):
            continue
        settled |= dict.fromkeys((each.key for each in alerts), "told")
        messages += [_news(route, batch, alerts, inhibited) for route in routes]
        for route in routes:
            known = {**{key_of(each): each for each in at.told}, **told}
            told |= _remembered(known, replace(notify.route(route), name=route), alerts, at)
    return Plan(tuple(messages), settled, tuple(told.values()), (), tuple(unrouted))


def _verdict(alert: Alert, at: Situation, notify: NotifySettings) -> GroupingVerdict:
    waited = at.now - (alert.entered_at or at.now)
    if alert.key in at.elsewhere:
        return "told"
    if at.is_muted(alert):
        return "muted"
    if alert.kind in ENDING and (found := _of_problem(alert, waited, at, notify)) != "tell":
        return found
    lasts = alert.kind in ENDING and alert.kind != "failed" and at.present.has(alert.group, alert.at)
    if waited > LONGEST and not lasts:
        return "expired"
    # An event, unlike a problem, is not told after the silence.
    return "muted" if alert.kind not in ENDING and at.is_silenced(alert) else "tell"


def _of_problem(alert: Alert, waited: timedelta, at: Situation, notify: NotifySettings) -> GroupingVerdict:
    is_there, is_failure = at.present.has(alert.group, alert.at), alert.kind == "failed"
    is_late = waited > notify.group_interval or any(_is_of(problem, alert) for problem in at.told)
    # That a run failed stays worth telling for a while, though another one completed since.
    if is_there is False and (is_late or not is_failure):
        return "over"
    if (is_there is None and not is_failure) or at.is_silenced(alert):
        return "hold"
    host = at.inhibitor(alert)
    if host is None:
        return "tell"
    if any(problem.group == host for problem in at.told):
        return "inhibited"
    # If no one is told of the host's problem, the failures of its runs are told.
    return "hold" if waited <= notify.group_interval else "tell"


def _is_of(problem: ToldProblem, alert: Alert) -> bool:
    return (problem.group, problem.source) == (alert.group, alert.source)


def _is_due(batch: str, route: str, alerts: Sequence[Alert], at: Situation, notify: NotifySettings) -> bool:
    if any(each.key.startswith(f"automation:{each.source}:asked:") for each in alerts):
        return True  # A person waits for this message.
    waits_since = min(each.entered_at or at.now for each in alerts)
    last = at.last_made.get((route, batch))
    return at.now >= waits_since + notify.group_wait and (last is None or at.now >= last + notify.group_interval)


def _news(route: str, batch: str, alerts: Sequence[Alert], inhibited: Mapping[str | None, int]) -> Message:
    newest = max(alerts, key=lambda each: each.at)
    groups = tuple(dict.fromkeys(each.group for each in alerts))
    parts = [places([each.about.get("repository", "") for each in alerts])] if len(alerts) > 1 else []
    failures = sum(inhibited[group] for group in groups if group in inhibited)
    parts += [newest.body, f"{plural(failures, 'run')} failed there, told by this alone" if failures else ""]
    return Message(
        route,
        batch,
        "new",
        worst(each.level for each in alerts),
        titled(newest.title, len(alerts)),
        " · ".join(filter(None, parts)),
        groups,
        dict(newest.about),
        len(alerts),
    )


def titled(title: str, count: int) -> str:
    """The title of a message that stands for several."""
    return title if count == 1 else f"{title} (and {count - 1:,} more)"


def places(names: Sequence[str]) -> str:
    """The places, most frequent first."""
    counts = Counter(name for name in names if name).most_common()
    shown = [
        f"{safe_text(name, limit=80)} {count:,}" if count > 1 else safe_text(name, limit=80) for name, count in counts
    ]
    more = f" and {len(shown) - LISTED:,} other places" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more


def _counted(at: Situation, inhibited: Mapping[str | None, int]) -> dict[ToldKey, ToldProblem]:
    """The state of told hosts, with the number of failures that each of them explains."""
    return {
        key_of(problem): replace(problem, inhibited=problem.inhibited + inhibited[problem.group])
        for problem in at.told
        if problem.group in inhibited
    }


def _remembered(
    known: Mapping[ToldKey, ToldProblem], route: NotifyRoute, alerts: Sequence[Alert], at: Situation
) -> dict[ToldKey, ToldProblem]:
    """The route's state after these alerts; alerts without an end leave none."""
    found: dict[ToldKey, ToldProblem] = {}
    for each in (alert for alert in alerts if alert.kind in ENDING):
        key = (each.group, each.source, route.name)
        before = found.get(key) or known.get(key)
        if before is None:
            facts = (each.level, each.title, each.about)
            found[key] = ToldProblem(*key, *facts, first_at=at.now, last_at=at.now, newest_at=each.at)
            continue
        if at.is_acknowledged(before) or at.now - before.first_at > route.give_up:
            before = replace(before, first_at=at.now, is_escalated=False)
        found[key] = replace(
            before,
            level=worst((before.level, each.level)),
            title=each.title,
            about=each.about,
            last_at=at.now,
            newest_at=max(before.newest_at, each.at),
            count=before.count + 1,
        )
    return found


def key_of(problem: ToldProblem) -> ToldKey:
    """The key of a told problem."""
    return problem.group, problem.source, problem.route


def routes_of(alert: Alert, notify: NotifySettings, now: datetime) -> tuple[str, ...]:
    """The names of the alert's routes at this time; empty: no rule matches it."""
    if alert.route != DEFAULT_ROUTE or not notify.rules:
        return (alert.route,)
    return next((rule.routes for rule in notify.rules if _matches(rule, alert, now)), ())


def is_quiet(route: str, notify: NotifySettings, now: datetime) -> bool:
    """Whether the channels of `[notify]` itself, if those are meant, have to be quiet."""
    return route == DEFAULT_ROUTE and notify.quiet is not None and notify.quiet.cover(now.astimezone().time())


def worst(levels: Iterable[Level]) -> Level:
    """The most severe of the levels."""
    return max(levels, key=SEVERITIES.index)


def _matches(rule: NotifyRule, alert: Alert, now: datetime) -> bool:
    repository = alert.about.get("repository", "")
    return (
        worst((rule.severity, alert.level)) == alert.level
        and (not rule.kinds or alert.kind in rule.kinds)
        and (not rule.repositories or any(fnmatchcase(repository, glob) for glob in rule.repositories))
        and (rule.hours is None or rule.hours.cover(now.astimezone().time()))
    )
