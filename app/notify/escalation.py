"""Escalation: told problems are told as over, again, or to others, until a person acknowledges them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.config import NotifySettings
from app.notify.grouping import ToldKey, key_of, places, titled, told_first
from app.notify.routing import is_quiet, worst
from app.notify.situation import Situation
from app.text import plural, safe_text
from app.times import span
from storage.records.alert import Message, Phase, Plan, ToldProblem

OVER: Final = {
    "failed": "Runs complete again: {}",
    "host": "Code host {} is well again",
    "stuck": "No longer stuck: {}",
    "action": "Outcome known: {}",
    "link": "The link to the service is back ({})",
}
AHEAD: Final[Mapping[Phase, str]] = {"again": "Still so: ", "escalated": "Not acknowledged: "}


def plan(at: Situation, notify: NotifySettings) -> Plan:
    """The messages due now, and the new state of told problems."""
    first = told_first(at, notify)
    fresh = {key_of(told) for told in first.told if told.last_at == at.now}
    counted = {key_of(told): told for told in first.told}
    going_on = [counted.get(key_of(told), told) for told in at.told if key_of(told) not in fresh]
    over = list(_over(going_on, at, notify))
    reminders, changed = _reminders([told for told in going_on if told not in over], at, notify)
    return replace(
        first,
        messages=(*first.messages, *_messages("over", ((told.route, told) for told in over), at), *reminders),
        told=tuple({**counted, **changed}.values()),
        over=tuple(over),
    )


def _over(going_on: Sequence[ToldProblem], at: Situation, notify: NotifySettings) -> Iterable[ToldProblem]:
    """Ended problems, each batch together: a storm ends in one message, or in one an interval."""
    is_there = {key_of(told): at.present.has(told.group, told.newest_at) for told in going_on}
    lasting = {(told.route, told.batch) for told in going_on if is_there[key_of(told)] is not False}
    for told in (each for each in going_on if is_there[key_of(each)] is False):
        place = (told.route, told.batch)
        last = at.last_made.get(place, told.last_at)
        is_due = place not in lasting or at.now >= last + notify.group_interval
        if is_due and not is_quiet(told.route, notify, at.now):
            yield told


def _reminders(
    lasting: Sequence[ToldProblem], at: Situation, notify: NotifySettings
) -> tuple[list[Message], dict[ToldKey, ToldProblem]]:
    again: list[tuple[str, ToldProblem]] = []
    escalated: list[tuple[str, ToldProblem]] = []
    changed: dict[ToldKey, ToldProblem] = {}
    for told in lasting:
        route, age = notify.route(told.route), at.now - told.first_at
        if age > route.give_up or not _needs_a_person(told, at) or is_quiet(told.route, notify, at.now):
            continue
        if route.escalate_after is not None and age >= route.escalate_after and not told.is_escalated:
            changed[key_of(told)] = replace(told, is_escalated=True)
            beyond = replace(told, route=route.escalate_to, first_at=at.now, last_at=at.now, is_escalated=False)
            changed[key_of(beyond)] = beyond
            escalated.append((route.escalate_to, told))
        if route.repeat is not None and at.now >= told.last_at + route.repeat:
            changed[key_of(told)] = replace(changed.get(key_of(told), told), last_at=at.now)
            again.append((told.route, told))
    return [*_messages("again", again, at), *_messages("escalated", escalated, at)], changed


def _needs_a_person(told: ToldProblem, at: Situation) -> bool:
    is_there = at.present.has(told.group, told.newest_at)
    return is_there is True and not at.is_acknowledged(told) and not at.is_silenced(told)


def _messages(phase: Phase, members: Iterable[tuple[str, ToldProblem]], at: Situation) -> Iterable[Message]:
    batches: dict[tuple[str, str], list[ToldProblem]] = defaultdict(list)
    for route, told in members:
        batches[route, told.batch].append(told)
    return [_message(phase, route, batch, group, at) for (route, batch), group in batches.items()]


def _message(phase: Phase, route: str, batch: str, group: Sequence[ToldProblem], at: Situation) -> Message:
    newest = max(group, key=lambda told: told.newest_at)
    title, count = f"{AHEAD.get(phase, '')}{newest.title}", sum(told.count for told in group)
    if phase == "over":
        kind, _, what = newest.group.partition(":")
        title = OVER[kind].format(newest.about.get("repository") or safe_text(what, limit=80))
        title = f"{newest.source}: {title}" if newest.source else title
    inhibited = sum(told.inhibited for told in group)
    parts = [
        places([told.about.get("repository", "") for told in group]) if len(group) > 1 else "",
        f"after {span((at.now - min(told.first_at for told in group)).total_seconds())}",
        f"{count:,} in all" if count > 1 else "",
        f"{plural(inhibited, 'run')} failed there" if inhibited else "",
    ]
    return Message(
        route,
        batch,
        phase,
        "information" if phase == "over" else worst(told.level for told in group),
        titled(title, len(group)),
        " · ".join(filter(None, parts)),
        tuple(told.group for told in group),
        dict(newest.about),
        count,
    )
