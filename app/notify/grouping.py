"""Grouping: which waiting alerts are told now, and in how few messages; a storm is one. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, Literal

from app.config import NotifyRoute, NotifySettings
from app.config.notify import LONGEST
from app.notify.routing import is_quiet, routes_of, worst
from app.notify.situation import ENDING, Situation
from app.text import plural, safe_text
from storage.records.alert import Alert, Message, Plan, Settled, ToldProblem

LISTED: Final = 5
"""Places that one message names."""
GroupingVerdict = Settled | Literal["tell", "hold"]
ToldKey = tuple[str, str, str]
"""Group, source and route."""


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
    # An event is over when the silence ends.
    return "muted" if alert.kind not in ENDING and at.is_silenced(alert) else "tell"


def _of_problem(alert: Alert, waited: timedelta, at: Situation, notify: NotifySettings) -> GroupingVerdict:
    is_there, is_failure = at.present.has(alert.group, alert.at), alert.kind == "failed"
    is_late = waited > notify.group_interval or any(_is_of(told, alert) for told in at.told)
    # That a run failed stays worth telling for a while, though another one completed since.
    if is_there is False and (is_late or not is_failure):
        return "over"
    if (is_there is None and not is_failure) or at.is_silenced(alert):
        return "hold"
    host = at.inhibitor(alert)
    if host is None:
        return "tell"
    if any(told.group == host for told in at.told):
        return "inhibited"
    # Where the host itself is told to no one, its runs' failures are.
    return "hold" if waited <= notify.group_interval else "tell"


def _is_of(told: ToldProblem, alert: Alert) -> bool:
    return (told.group, told.source) == (alert.group, alert.source)


def _is_due(batch: str, route: str, alerts: Sequence[Alert], at: Situation, notify: NotifySettings) -> bool:
    if any(each.key.startswith(f"automation:{each.source}:asked:") for each in alerts):
        return True  # A person waits for it.
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
    """The state of told hosts, with the failures that they stand for."""
    return {
        key_of(told): replace(told, inhibited=told.inhibited + inhibited[told.group])
        for told in at.told
        if told.group in inhibited
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


def key_of(told: ToldProblem) -> ToldKey:
    """The key of a told problem."""
    return told.group, told.source, told.route
