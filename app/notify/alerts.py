"""Alerts about runs, code hosts and our link: their words, and the keys that make each unique."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, get_args

from msgspec.structs import replace

from app.api.errors import InternalError
from app.engine.text import safe_text
from app.engine.times import clock_time, span
from app.health.facts import Incident, unobserved_since
from app.profiles import NotifySettings
from app.profiles.settings import DEFAULT_ROUTE
from storage.ledger import Ledger
from storage.records import CANCELLED, ActionFilter, LinkState
from storage.records.alert import Alert, AlertSubject, Level
from storage.records.decision import WHEN_ENDED, Outcome
from storage.records.error_kinds import error_kind
from storage.records.following import StatusChange, StuckRun
from storage.state import State

LINK: Final = "link:runs"
"""The group of alerts about the link to the service."""
LISTED: Final = 5
"""Repositories that one message names."""
_FOLLOW_UPS: Final[Mapping[Outcome, tuple[Level, str]]] = {
    "done": ("information", "The run has ended, and the waiting continuation was sent"),
    "failed": ("warning", "The waiting continuation was not sent"),
    "expired": ("warning", "The waiting continuation was not sent"),
    "unknown": ("warning", "The outcome of the waiting continuation is unknown"),
}


def own_alert(
    key: str,
    group: str,
    level: Level,
    title: str,
    body: str,
    at: datetime,
    about: Mapping[str, str],
    *,
    after: tuple[str, ...] = (),
    is_lasting: bool = False,
) -> Alert:
    """An alert that `[notify] on` asks for, with texts that are safe and short enough."""
    subject = (group, "", DEFAULT_ROUTE, level, safe_text(title, limit=120), about)
    return Alert(*subject, key=key, body=safe_text(body, limit=400), at=at, after=after, is_lasting=is_lasting)


async def select_changes(moves: Sequence[StatusChange], on: Collection[str], ledger: Ledger) -> list[StatusChange]:
    """The changes that the settings ask for, except cancellations from this machine: their author knows."""
    changes = [move for move in moves if move.new in on or (move.is_pinned and "pinned" in on)]
    if not any(move.new == CANCELLED for move in changes):
        return changes
    sent = await ledger.actions(ActionFilter(["run.cancel"], ["confirmed"]))
    never = datetime.min.replace(tzinfo=UTC)
    settled_at = {action.result_id: action.settled_at for action in reversed(sent) if action.settled_at is not None}
    return [move for move in changes if move.new != CANCELLED or settled_at.get(move.run_id, never) < move.after]


def move_alert(move: StatusChange, profile: str) -> Alert:
    took = ""
    if move.is_final and move.at > move.active_since:
        took = f" after {span((move.at - move.active_since).total_seconds())}"
    alert = own_alert(
        # To the microsecond: a run that was continued may fail a second time.
        f"run:{move.run_id}:{move.new}:{move.at.isoformat()}",
        f"{'' if move.new == 'failed' else 'run:'}{move.new}:{move.repository}",
        "error" if move.new == "failed" else "information",
        f"Run {move.new}{took}: {move.repository}",
        f"{move.branch_name} · {move.run_id} · {profile}",
        move.at,
        {"run_id": move.run_id, "repository": move.repository, "status": move.new, "branch": move.branch_name},
    )
    return replace(alert, is_followed=move.is_pinned)


def state_alerts(
    notify: NotifySettings,
    profile: str,
    now: datetime,
    *,
    stuck: Sequence[StuckRun],
    incidents: Sequence[Incident],
    links: Sequence[LinkState],
    host_routes: Sequence[str] = (),
) -> list[Alert]:
    """`host_routes` get the alert that the hosts are unobserved, instead of those that `[notify] on` asks for."""
    hold = timedelta(seconds=notify.hold_s)
    states = list[Alert]()
    if "stuck" in notify.on:
        states += [_stuck_alert(run, profile) for run in stuck]
    if "health" in notify.on:
        states += [_host_alert(incident, hold, now, profile) for incident in incidents if incident.lasted >= hold]
    link = next(link for link in links if link.subject == "runs")
    if "link" in notify.on and (alert := _link_alert(link, hold, now, profile)) is not None:
        return [*states, alert]
    routes = host_routes or ((DEFAULT_ROUTE,) if "health" in notify.on else ())
    if routes and (since := unobserved_since(links, now)) is not None:
        title = f"Code hosts unobserved since {clock_time(since, now)}"
        body = f"their health cannot be read · {profile}"
        key = f"link:health:{since.isoformat()}"
        about = {"status": "unobserved"}
        alert = own_alert(key, "link:health", "warning", title, body, since, about, is_lasting=True)
        states += [replace(alert, route=route, key=f"{key}:{route}") for route in routes]
    return states


def _stuck_alert(run: StuckRun, profile: str) -> Alert:
    for_s = (run.last_seen_at - run.active_since).total_seconds()
    usual = "much longer than usual"
    if run.p95_s:
        usual = f"95 of 100 there end within {span(run.p95_s)}"
    title = f"Run stuck: {run.repository}, {run.status} for {span(for_s)}"
    body = f"{usual} · {run.run_id} · {profile}"
    group = f"stuck:{run.run_id}"
    at = run.active_since
    about = {"run_id": run.run_id, "repository": run.repository, "status": run.status}
    return own_alert(f"{group}:{at.isoformat()}", group, "warning", title, body, at, about, is_lasting=True)


def _link_alert(link: LinkState, hold: timedelta, now: datetime, profile: str) -> Alert | None:
    """The alert that the service does not answer, or refuses the token; a single lost answer is not reported."""
    kind = error_kind(link.error_kind)
    begun = link.failing_since
    is_refused = kind.concerns == "token"
    if not begun or not (is_refused or (now - begun >= hold and link.failures > 1)):
        return None
    title, note = "No link to the service", "no code host is blamed for it"
    if is_refused:
        title, note = kind.title, "create another and give it to this profile"
    elif link.error_kind == InternalError.kind:
        title = kind.title
    key = f"link:{'token' if is_refused else 'down'}:{begun.isoformat()}"
    body = f"since {clock_time(begun, now)}; {note} · {link.error_message or ''}".rstrip(" ·")
    about = {"status": "token refused" if is_refused else "down"}
    return own_alert(key, LINK, "error", f"{title}: {profile}", body, begun, about, is_lasting=True)


def link_back_alert(outage: Alert, link: LinkState, now: datetime, profile: str) -> Alert:
    """An alert that the link is back, or that the token is accepted again."""
    back = link.last_ok_at or now
    is_token = outage.key.startswith("link:token")
    title = "The link to the service is back"
    if is_token:
        title = "The service accepts the token again"
    lasted = f"after {span((back - outage.at).total_seconds())}"
    key = f"{outage.key}:over"
    about = {"status": "up"}
    return own_alert(key, LINK, "information", f"{title}: {profile}", lasted, back, about, after=(outage.key,))


def _host_alert(incident: Incident, hold: timedelta, now: datetime, profile: str) -> Alert:
    platform = incident.platform
    key = f"health:{incident.platform}:{incident.start.isoformat()}"
    begun = (f"{key}:impaired", f"{key}:bad")
    group = f"host:{platform}"
    about = {"platform": platform, "status": "well" if incident.is_over else incident.word}
    since = f"since {clock_time(incident.start, now)} · {profile}"
    if incident.is_over:
        state = "is no longer connected"
        if incident.recovered_at is not None:
            state = "has recovered"
        title = f"Code host {platform} {state}"
        body = f"after {span(incident.lasted.total_seconds())}, {since}"
        return own_alert(f"{key}:over", group, "information", title, body, incident.end, about, after=begun)
    is_bad = incident.worst == "bad" and incident.bad_s >= hold.total_seconds()
    state = f"is flapping: {' and '.join(incident.words[:3])}" if incident.recoveries else f"is {incident.word}"
    title = f"Code host {platform} {state}"
    level: Level = "error" if is_bad else "warning"
    # Healthy at the moment, so report the recovery only if the incident was reported.
    after = begun if incident.recovered_at is not None else ()
    return own_alert(begun[is_bad], group, level, title, since, incident.start, about, after=after, is_lasting=True)


async def follow_up_alerts(state: State, since: datetime, profile: str) -> list[Alert]:
    """Alerts for continuations that waited until a run finished, and were sent or given up since then."""
    alerts = list[Alert]()
    for decision in await state.journal(WHEN_ENDED, limit=LISTED * 10, outcomes=tuple(_FOLLOW_UPS)):
        level, title = _FOLLOW_UPS[decision.outcome]
        run_id = decision.occurrence.facts["run.id"]
        at = decision.settled_at or decision.decided_at
        key = f"when_ended:{decision.decision_id}"
        group = f"when_ended:{run_id}"
        body = " · ".join(filter(None, (decision.reason, run_id, profile)))
        if at >= since:
            about = {"run_id": run_id, "status": decision.outcome}
            alerts.append(own_alert(key, group, level, title, body, at, about))
    return alerts


def combine(alerts: Sequence[Alert]) -> Alert:
    """Combine several alerts into one: the newest, with their count, their repositories and the highest level."""
    newest = max(alerts, key=lambda alert: alert.at)
    body = " · ".join(filter(None, (places(alerts), newest.body)))
    level = highest_level(alert.level for alert in alerts)
    return replace(newest, level=level, title=title_with_count(newest.title, len(alerts)), body=body, is_followed=False)


def title_with_count(title: str, count: int) -> str:
    """The title of the newest of `count` alerts."""
    return title if count == 1 else f"{title} (and {count - 1:,} more)"


def places(group: Sequence[AlertSubject]) -> str:
    """The repositories or code hosts of several, the most frequent first."""
    if len(group) == 1:
        return ""
    named = (subject.about.get("repository") or subject.about.get("platform", "") for subject in group)
    names = Counter(filter(None, named)).most_common()
    places_and_counts = [safe_text(name, limit=80) + (f" {count:,}" if count > 1 else "") for name, count in names]
    more = ""
    if len(places_and_counts) > LISTED:
        more = f" and {len(places_and_counts) - LISTED:,} other places"
    return ", ".join(places_and_counts[:LISTED]) + more


def highest_level(levels: Iterable[Level]) -> Level:
    return max(levels, key=get_args(Level).index)
