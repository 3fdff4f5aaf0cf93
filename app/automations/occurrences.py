"""Occurrences: triggers of a rule, found in the current cache and ledger. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct, field

from app.health import Incident
from app.rules.fire_times import due_times, fire_times, interval_times
from app.rules.rule import OnHealth, OnInterval, OnRun, OnSchedule, OnStuck, OnUnknownAction, Rule, Scope
from app.times import rfc3339
from storage.records import Action, Run
from storage.records.decision import Occurrence
from storage.records.following import StatusChange, StuckRun, Watermark

LOOK_BACK: Final = timedelta(days=2)
"""Points in time further back than this, and than the rule's own catch-up window, are not even counted."""
INCIDENT_RECENT: Final = timedelta(days=2)
"""How long after its end an incident may still trigger a rule."""


class Seen(Struct, frozen=True):
    """The possible triggers of rules at one moment."""

    now: datetime
    changes: tuple[StatusChange, ...] = ()
    """The newest changes of status, oldest first."""
    ahead: timedelta = timedelta(0)
    """How far the times of runs are ahead of our clock."""
    stuck: tuple[StuckRun, ...] = ()
    incidents: tuple[Incident, ...] = ()
    unknown: tuple[Action, ...] = ()
    """Actions whose outcome is unknown."""
    watermark: Watermark = field(default_factory=Watermark)
    """The watermark up to which `changes` reach."""


class Due(Struct, frozen=True):
    """The points in time of a rule that have come."""

    newest: Occurrence | None = None
    missed: int = 0
    """How many earlier times were passed over: one fire catches up for all."""


class Anchor(Struct, frozen=True):
    """The time from which on a rule's triggers count."""

    since: datetime
    """When its present definition was first seen."""
    last_due: datetime | None = None
    """The newest point in time that it decided on."""


def due(rule: Rule, anchor: Anchor, now: datetime) -> Due:
    """Which point in time a schedule or an interval has reached."""
    after = max(anchor.since, anchor.last_due or anchor.since, now - max(LOOK_BACK, rule.catch_up))
    match rule.on:
        case OnSchedule():
            times = fire_times(rule.on, rule.name, after)
        case OnInterval():
            times = interval_times(rule.on, anchor.since, after)
        case _:
            return Due()
    come = due_times(times, now)
    if not come:
        return Due()
    return Due(Occurrence(f"at:{rfc3339(come[-1])}", come[-1]), len(come) - 1)


def upcoming(rule: Rule, since: datetime, now: datetime) -> Iterator[datetime]:
    """The points in time that a schedule or an interval reaches next."""
    match rule.on:
        case OnSchedule():
            yield from fire_times(rule.on, rule.name, now)
        case OnInterval():
            yield from interval_times(rule.on, since, now)


def occurrences(rule: Rule, seen: Seen, since: datetime) -> Iterator[Occurrence]:
    """The triggers of a rule about runs, hosts or actions; changes of status only since then."""
    match rule.on:
        case OnRun(to, was, scope):
            for change in seen.changes:
                run_id, at = change.run_id, change.at - seen.ahead
                is_meant = change.new == to and was in {None, change.old} and at >= since
                if is_meant and is_within(scope, change.repository, change.branch_name):
                    facts = _facts(run_id, change.repository, change.branch_name, change.new, change.old or "")
                    # To the microsecond: a run that was continued may fail a second time.
                    yield Occurrence(f"run:{run_id}:{change.new}:{change.at.isoformat()}", at, run_id, facts)
        case OnStuck(scope):
            for run in seen.stuck:
                if is_within(scope, run.repository, run.branch_name):
                    identity = f"stuck:{run.run_id}:{run.active_since.isoformat()}"
                    facts = _facts(run.run_id, run.repository, run.branch_name, run.status)
                    yield Occurrence(identity, run.last_seen_at - seen.ahead, run.run_id, facts)
        case OnHealth() as on:
            for one in (incident for incident in seen.incidents if _matches(on.platforms, incident.platform)):
                identity, over_at = f"health:{one.platform}:{one.start.isoformat()}", one.recovered_at or one.until
                if on.is_over and one.is_over and over_at > seen.now - INCIDENT_RECENT:
                    facts = {"host.platform": one.platform, "host.status": "recovered"}
                    yield Occurrence(f"{identity}:over", over_at, "", facts)
                if not on.is_over and not one.is_over and one.lasted >= on.lasting:
                    facts = {"host.platform": one.platform, "host.status": one.word}
                    yield Occurrence(f"{identity}:bad", one.start, "", facts)
        case OnUnknownAction(older):
            for action in (each for each in seen.unknown if seen.now - each.created_at >= older):
                facts = {"action.id": action.action_id, "action.kind": action.kind, "action.subject": action.subject}
                yield Occurrence(f"action:{action.action_id}", action.created_at, "", facts)


def changed_since(occurrence: Occurrence, seen: Seen, run: Run | None) -> str:
    """What has changed since it triggered a rule, in words; empty: nothing known."""
    facts = occurrence.facts
    if run is not None and run.status != facts.get("run.status", run.status):
        return f"the run is {run.status} by now"
    if "action.id" in facts and facts["action.id"] not in {each.action_id for each in seen.unknown}:
        return "its outcome is known by now"
    if platform := facts.get("host.platform"):
        is_unwell = any(each.platform == platform and not each.is_over for each in seen.incidents)
        if is_unwell == (facts["host.status"] == "recovered"):
            return f"code host {platform} {'is not well again' if is_unwell else 'has recovered'} by now"
    return ""


def asked_for(now: datetime, run: Run | None) -> Occurrence:
    """The occurrence of a manual trigger, on this run if there is one."""
    identity = f"asked:{rfc3339(now)}"
    if run is None:
        return Occurrence(identity, now)
    return Occurrence(identity, now, run.run_id, _facts(run.run_id, run.repository.label, run.branch_name, run.status))


def _facts(run_id: str, repository: str, branch: str, status: str, was: str = "") -> dict[str, str]:
    names = ("run.id", "run.repository", "run.branch", "run.status", "run.was")
    return dict(zip(names, (run_id, repository, branch, status, was), strict=True))


def is_labelled(scope: Scope, labels: Mapping[str, str]) -> bool:
    """Whether a run's metadata is as the scope asks."""
    return all(name in labels and _matches(globs, labels[name]) for name, globs in scope.labels)


def is_within(scope: Scope, repository: str, branch: str) -> bool:
    """Whether a trigger concerns runs on this branch."""
    return _matches(scope.repositories, repository) and _matches(scope.branches, branch)


def _matches(globs: Iterable[str], text: str) -> bool:
    globs = tuple(globs)
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
