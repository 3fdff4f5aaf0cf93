"""Describes a rule in plain sentences: its trigger, its action and its limits, with warnings."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from typing import Final

from cronsim import CronSim

from app.automations.fire_times import fire_times
from app.automations.rule import (
    UNLIMITED,
    DoAgent,
    DoCancel,
    DoContinue,
    DoNotify,
    DoRetry,
    DoSend,
    DoStart,
    OnHealth,
    OnInterval,
    OnProposal,
    OnRun,
    OnSchedule,
    OnStuck,
    Overlap,
    Rule,
    Scope,
    is_quiet,
    lasts,
)
from app.engine.text import shorten
from app.engine.times import span
from storage.records import FINAL_STATUSES, STATUS_BY_NAME, STATUS_ORDER
from storage.records.health import HEALTH_KEPT
from storage.records.results import SEVERITIES

_OVERLAPS: Final[Mapping[Overlap, str]] = {
    "skip": "not while its last run is active",
    "queue": "one waits while its last run is active",
    "allow": "even while its last run is active",
}
_TIMES_EXAMINED: Final = 1_500
"""How many fire times are examined for warnings: more than a day has minutes."""
SHORTEST_CATCH_UP: Final = timedelta(minutes=1)


def sentence(rule: Rule, now: datetime) -> str:
    match rule.on:
        case OnSchedule(cron, zone, jitter):
            late = f", up to {_duration(jitter)} later" if jitter else ""
            when = f"{CronSim(cron, now).explain()} ({zone}){late}"
        case OnInterval(every):
            when = f"Every {_duration(every)}"
        case OnRun(to, was, scope, finding, budget):
            status = STATUS_BY_NAME.get(to)
            becomes = status.becomes if status and status.becomes else f"is {to}"
            if finding is not None:
                worse = " or worse" if finding != SEVERITIES[0] else ""
                becomes = f"ends with a finding: {finding}{worse}"
            if budget is not None:
                becomes = f"ends and has used {budget:.0%} of its budget"
            when = f"When a run{_scope(scope)} {becomes}{f' after {was}' if was else ''}"
        case OnStuck(scope):
            when = f"When a run{_scope(scope)} is stuck"
        case OnHealth(health, lasting, platforms):
            host = f"code host {' or '.join(platforms)}" if platforms else "a code host"
            bad = f"unhealthy{f' for {_duration(lasting)}' if lasting else ''}"
            when = f"When {host} is {'healthy again' if health == 'recovered' else bad}"
        case OnProposal():
            when = "When a program proposes it"
        case _:
            when = f"When the outcome of a write has been unknown for {_duration(rule.on.older)}"
    match rule.do:
        case DoStart(instructions, repository):
            then = f"start a run on {repository}: {_quote(instructions)}"
        case DoAgent(agent, repository):
            then = f"start the agent {agent} on {repository}"
        case DoContinue(instructions):
            then = f"continue it: {_quote(instructions)}"
        case DoRetry():
            then = "start it again with its own instructions"
        case DoCancel():
            then = "cancel it"
        case DoNotify(route):
            then = f"notify {route}"
        case DoSend(kind):
            then = f"send its {kind}"
        case _:
            then = f"run {' '.join(rule.do.argv)}"
    approval = ", once it is approved" if rule.needs_approval else ""
    return f"{when}, {then}{approval}."


def limits(rule: Rule) -> str:
    limit = rule.limit
    spans = (limit.per_conversation, "a conversation"), (limit.per_hour, "an hour"), (limit.per_day, "a day")
    limits = ", ".join(f"{count} {span_of}" for count, span_of in spans if count < UNLIMITED)
    parts = [
        f"at most {limits}" if limits else "as often as it comes",
        _OVERLAPS[rule.overlap],
        f"at most {_duration(rule.catch_up)} late",
    ]
    if rule.quiet is not None:
        parts.append(f"not from {rule.quiet.start:%H:%M} to {rule.quiet.end:%H:%M}")
    if rule.pause_after:
        parts.append(f"pauses after {rule.pause_after} failures in a row")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def warnings(rule: Rule, rules: Sequence[Rule], now: datetime, silent: Collection[str] = ()) -> Iterator[str]:
    """Probable mistakes: a rule that can never act, rules that trigger each other, or a silent route."""
    if isinstance(rule.do, DoNotify) and rule.do.route in silent:
        fix = "Give the route a channel"
        if rule.do.route == "default":
            fix = "Set notify.desktop or notify.command"
        yield f"It reaches no one: all channels of the route {rule.do.route!r} are off. {fix}, or use another route."
    times: Sequence[datetime] = ()
    match rule.on:
        case OnSchedule():
            year = takewhile(lambda at: at < now + timedelta(days=400), fire_times(rule.on, rule.name, now))
            times = list(islice(year, _TIMES_EXAMINED))
        case OnInterval(every):
            times = [now + n * every for n in range(1, _TIMES_EXAMINED)]
    if times and all(is_quiet(rule, at) for at in times):
        yield "It never acts: its quiet hours cover every one of its times."
    for hours, most, word in ((24, rule.limit.per_day, "day"), (1, rule.limit.per_hour, "hour")):
        # The largest number of times within one span of this length.
        ends = (bisect_left(times, at + timedelta(hours=hours)) for at in times)
        if (count := max((end - n for n, end in enumerate(ends)), default=0)) > most:
            yield f"It comes {count} times {'an' if word == 'hour' else 'a'} {word}, and limit.per_{word} is {most}."
            break
    if isinstance(rule.do, DoCancel) and isinstance(rule.on, OnRun) and rule.on.to in FINAL_STATUSES:
        yield "It never cancels anything: the run has already finished."
    match rule.on:
        case OnRun(to=to, was=was):
            for status in filter(None, (to, was)):
                if status not in STATUS_ORDER:
                    yield f"{status!r} is not a status that the API specifies: {', '.join(STATUS_ORDER)}."
            if to == was:
                yield "It never acts: no run changes to the status that it already has."
        case OnHealth(lasting=lasting) if lasting >= HEALTH_KEPT:
            yield f"It never acts: only the last {HEALTH_KEPT.days} days of the code hosts' health are kept."
    if rule.catch_up < SHORTEST_CATCH_UP and not lasts(rule):
        yield f"It may never act: catch_up is {_duration(rule.catch_up)}, and events are often noticed later than that."
    if rule.needs_approval and rule.approval_expires < SHORTEST_CATCH_UP:
        yield f"It can hardly be approved in time: approval_expires is {_duration(rule.approval_expires)}."
    fed = [other.name for other in rules if other.is_on and _feeds(rule, other)]
    if rule.name in fed:
        yield f"It can trigger itself, until limit.per_conversation ({rule.limit.per_conversation}) stops it."
    for other in rules:
        if other.name in fed and other.name > rule.name and _feeds(other, rule):
            yield f"It and {other.name!r} can trigger each other, until limit.per_conversation stops them."


def _feeds(rule: Rule, other: Rule) -> bool:
    """Whether a run started by `rule` could trigger `other`."""
    if not isinstance(other.on, OnRun | OnStuck):
        return False
    repositories = other.on.scope.repositories
    match rule.do:
        case DoStart(_, repository) | DoAgent(_, repository):
            return "{" in repository or not repositories or any(fnmatchcase(repository, glob) for glob in repositories)
        case DoContinue() | DoRetry() | DoCancel():
            return True
        case _:
            return False


def _scope(scope: Scope) -> str:
    repositories = f" in {' or '.join(scope.repositories)}" if scope.repositories else ""
    branches = f" on {' or '.join(scope.branches)}" if scope.branches else ""
    labels = " and ".join(f"{name}={' or '.join(globs)}" for name, globs in scope.labels)
    return f"{repositories}{branches}{f' labelled {labels}' if labels else ''}"


def _quote(text: str) -> str:
    return f"“{shorten(' '.join(text.split()), 60)}”"


def _duration(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return span(seconds, pads_hours=False)
