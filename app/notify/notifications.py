"""Notifications: what changed of runs, code hosts and our own link, in words, under keys that make each unique."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct, field

from app.config import NotifySettings
from app.health import Incident
from app.text import SafeText, safe_text
from app.times import clock_time, span
from storage.records import LinkState
from storage.records.alert import Level
from storage.records.following import StatusChange, StuckRun

NotificationKind = Literal["run", "stuck", "health", "link"]

_FAILURES_TOLD: Final = 2
"""One lost answer is no trouble yet."""
ONE_BY_ONE: Final = 3
"""More notifications of a kind than this are condensed into one."""

_LEVELS: Final[tuple[Level, ...]] = ("information", "warning", "error")
_MANY: Final[dict[NotificationKind, str]] = {
    "run": "runs moved",
    "stuck": "runs are stuck",
    "health": "hosts",
    "link": "links",
}
REFUSALS: Final = frozenset({"not_authorized", "forbidden", "token", "no_token"})
"""Errors of the token, while the link is up. A second look changes nothing, so they are told at once."""
_TOKEN_WORDS: Final = {
    "not_authorized": "The service refuses the token (401)",
    "forbidden": "The token may not do this (403)",
}


class Notification(Struct, frozen=True):
    """An event, or a state that began or ended."""

    key: str
    """The same in every process that notices it, and after a restart."""
    kind: NotificationKind
    level: Level
    title: SafeText
    body: SafeText
    at: datetime
    about: Mapping[str, str] = field(default_factory=dict)
    """Facts by name, as received: run_id, repository, branch, status, platform."""
    after: tuple[str, ...] = ()
    """For the end of a state, the keys of its beginning: told only if one of them was. Empty: always told."""
    is_lasting: bool = False
    """It tells of a lasting state, not of an event, and is told even if it is late."""
    is_followed: bool = False
    """It concerns a followed run, and is never condensed into a summary."""

    @property
    def group(self) -> str:
        """The inbox's key of its subject."""
        match self.kind:
            case "run":
                status = self.about["status"]
                return f"{'' if status == 'failed' else 'run:'}{status}:{self.about['repository']}"
            case "stuck":
                return f"stuck:{self.about['run_id']}"
            case "health":
                return f"host:{self.about['platform']}"
            case "link":
                return "link:runs"


def condensed(news: Sequence[Notification]) -> tuple[Notification, ...]:
    """The notifications in their order, with many of a kind condensed into one summary at the end."""
    notifications: list[Notification] = []
    many: dict[tuple[NotificationKind, str], list[Notification]] = {}
    for one in news:
        if one.is_followed:
            notifications.append(one)
        else:
            many.setdefault((one.kind, one.about.get("status", "") if one.kind == "run" else ""), []).append(one)
    for (kind, status), members in many.items():
        if len(members) <= ONE_BY_ONE:
            notifications += members
            continue
        newest = max(members, key=lambda one: one.at)
        what = f"runs {status}" if kind == "run" and status else _MANY[kind]
        repositories = ", ".join(dict.fromkeys(one.about.get("repository", "") for one in reversed(members)))
        summary = Notification(
            key=newest.key,
            kind=kind,
            level=max((one.level for one in members), key=_LEVELS.index),
            title=safe_text(f"{len(members)} {what}", limit=120),
            body=safe_text(f"in {repositories}" if repositories else newest.body, limit=200),
            at=newest.at,
            about={"status": newest.about["status"]} if "status" in newest.about else {},
        )
        notifications.append(summary)
    return tuple(notifications)


def move_notifications(moves: Sequence[StatusChange], on: Collection[str], profile: str) -> tuple[Notification, ...]:
    """One notification for each move that the settings ask for."""
    return tuple(_move(move, profile) for move in wanted(moves, on))


def wanted(moves: Sequence[StatusChange], on: Collection[str]) -> list[StatusChange]:
    """The moves that the settings ask for."""
    return [move for move in moves if move.new in on or (move.is_pinned and "pinned" in on)]


def missed_notification(moves: Sequence[StatusChange], on: Collection[str], now: datetime) -> Notification | None:
    """One notification for the moves before this watch began; None: the settings ask for none of them."""
    missed = wanted(moves, on)
    if not missed:
        return None
    counts = Counter(move.new for move in missed)
    parts = ", ".join(f"{count} {safe_text(status, limit=30)}" for status, count in counts.most_common())
    newest = max(move.at for move in missed)
    return Notification(
        key=f"missed:{newest.isoformat()}",
        kind="run",
        level="warning" if "failed" in counts else "information",
        title=safe_text(f"While you were away: {parts}", limit=120),
        body=safe_text(f"the last one at {clock_time(newest, now)}"),
        at=newest,
    )


def _move(move: StatusChange, profile: str) -> Notification:
    took = ""
    if move.is_final and move.at > move.active_since:
        took = f" after {span((move.at - move.active_since).total_seconds())}"
    level: Level = "error" if move.new == "failed" else "information"
    return Notification(
        # To the microsecond: a run that was continued may fail a second time.
        key=f"run:{move.run_id}:{move.new}:{move.at.isoformat()}",
        kind="run",
        level=level,
        title=safe_text(f"Run {move.new}{took}: {move.repository}", limit=120),
        body=safe_text(f"{move.branch_name} · {move.run_id} · {profile}", limit=200),
        at=move.at,
        about={**_about(move.run_id, move.repository, move.new), "branch": move.branch_name},
        is_followed=move.is_pinned,
    )


def _stuck(run: StuckRun, profile: str) -> Notification:
    for_s = (run.last_seen_at - run.active_since).total_seconds()
    usual = f"95 of 100 there end within {span(run.p95_s)}" if run.p95_s else "much longer than usual"
    return Notification(
        key=f"stuck:{run.run_id}:{run.active_since.isoformat()}",
        kind="stuck",
        level="warning",
        title=safe_text(f"Run stuck: {run.repository}, {run.status} for {span(for_s)}", limit=120),
        body=safe_text(f"{usual} · {run.run_id} · {profile}", limit=200),
        at=run.active_since,
        about=_about(run.run_id, run.repository, run.status),
        is_lasting=True,
    )


def _about(run_id: str, repository: str, status: str) -> dict[str, str]:
    return {"run_id": run_id, "repository": repository, "status": status}


def state_notifications(
    notify: NotifySettings,
    profile: str,
    now: datetime,
    *,
    stuck: Sequence[StuckRun],
    incidents: Sequence[Incident],
    link: LinkState,
) -> list[Notification]:
    """The lasting states that the settings ask for: stuck runs, incidents that held (and their ends), and our link."""
    hold, states = timedelta(seconds=notify.hold_s), list[Notification]()
    if "stuck" in notify.on:
        states += [_stuck(run, profile) for run in stuck]
    if "health" in notify.on:
        held = (incident for incident in incidents if incident.lasted >= hold)
        states += [_over(one, now, profile) if one.is_over else _begun(one, hold, now, profile) for one in held]
    if "link" in notify.on and (down := _link(link, hold, now, profile)) is not None:
        states.append(down)
    return states


def _link(link: LinkState, hold: timedelta, now: datetime, profile: str) -> Notification | None:
    """Our link is down, or the token refused; None: it is well, or has not been down for long enough."""
    if link.failing_since is None:
        return None
    is_refused = link.error_kind in REFUSALS
    if not is_refused and (now - link.failing_since < hold or link.failures < _FAILURES_TOLD):
        return None
    title = (
        _TOKEN_WORDS.get(link.error_kind or "", "There is no usable token") if is_refused else "No link to the service"
    )
    since = f"since {clock_time(link.failing_since, now)}"
    note = "no code host is blamed for it" if not is_refused else "create another and give it to this profile"
    return Notification(
        key=f"link:{'token' if is_refused else 'down'}:{link.failing_since.isoformat()}",
        kind="link",
        level="error",
        title=safe_text(f"{title}: {profile}", limit=120),
        body=safe_text(f"{since}; {note} · {link.error_message or ''}".rstrip(" ·"), limit=200),
        at=link.failing_since,
        about={"status": "token refused" if is_refused else "down"},
        is_lasting=True,
    )


def link_back_notification(outage: Notification, link: LinkState, now: datetime, profile: str) -> Notification:
    """The link is back, or the token is accepted again."""
    back = link.last_ok_at or now
    what = (
        "The service accepts the token again"
        if outage.key.startswith("link:token")
        else "The link to the service is back"
    )
    return Notification(
        key=f"{outage.key}:over",
        kind="link",
        level="information",
        title=safe_text(f"{what}: {profile}", limit=120),
        body=safe_text(f"after {span((back - outage.at).total_seconds())}"),
        at=back,
        about={"status": "up"},
        after=(outage.key,),
    )


def _keys(incident: Incident) -> tuple[str, str, str]:
    """The keys of its news: impaired, bad, over."""
    base = f"health:{incident.platform}:{incident.start.isoformat()}"
    return f"{base}:impaired", f"{base}:bad", f"{base}:over"


def _begun(incident: Incident, hold: timedelta, now: datetime, profile: str) -> Notification:
    impaired, bad, _ = _keys(incident)
    is_bad = incident.worst == "bad" and incident.bad_s >= hold.total_seconds()
    words = " and ".join(incident.words[:3])
    how = f"is flapping: {words}" if incident.recoveries else f"is {incident.word}"
    return Notification(
        key=bad if is_bad else impaired,
        kind="health",
        level="error" if is_bad else "warning",
        title=safe_text(f"Code host {incident.platform} {how}", limit=120),
        body=safe_text(f"since {clock_time(incident.start, now)} · {profile}", limit=200),
        at=incident.start,
        about={"platform": incident.platform, "status": incident.word},
        # Well for the moment: not told now, but its end is told if its beginning was.
        after=(impaired, bad) if incident.recovered_at is not None else (),
        is_lasting=True,
    )


def _over(incident: Incident, now: datetime, profile: str) -> Notification:
    impaired, bad, over = _keys(incident)
    how = "is well again" if incident.recovered_at is not None else "is no longer connected"
    return Notification(
        key=over,
        kind="health",
        level="information",
        title=safe_text(f"Code host {incident.platform} {how}", limit=120),
        body=safe_text(
            f"after {span(incident.lasted.total_seconds())}, since {clock_time(incident.start, now)} · {profile}",
            limit=200,
        ),
        at=incident.recovered_at or incident.until,
        about={"platform": incident.platform, "status": "well"},
        after=(impaired, bad),
    )
