"""Occurrences: reads possible triggers from the cache and the ledger, and finds those that match a rule."""

import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Final

from msgspec import Struct

from app.automations.fire_times import upcoming
from app.automations.rule import OnHealth, OnRun, OnStuck, OnUnknownAction, Rule, Scope
from app.engine.text import shorten
from app.engine.times import rfc3339
from app.health.facts import Incident
from app.health.incidents import IncidentReader
from app.notify.watch import RECENT
from app.runs.document import as_received
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import CANCELLED, Action, Run, StatusTransition
from storage.records.decision import Occurrence, RuleState
from storage.records.following import StatusChange, StuckRun, Watermark
from storage.records.results import SEVERITIES, RunTurns
from storage.values import EPOCH

log = logging.getLogger(__name__)

LOOK_BACK: Final = timedelta(days=2)
"""Missed times longer ago than this, and than the rule's catch-up window, are not even counted."""
MAX_CHANGES: Final = 20_000
"""The most changes of status in one look; if there are more, the oldest are skipped."""
HISTORY: Final = timedelta(days=31)
"""Runs older than this when first seen are history."""
MAX_QUESTIONS: Final = 20
"""The most requests to the service in one look, so that a storm of failures does not cause a storm of requests."""
_REASONS: Final = ("reason", "failure_reason", "status_reason", "error", "error_message", "message")
"""Keys under which a service may give a reason (the API specifies none): a text, or an object with one of these."""


class Seen(Struct, frozen=True):
    """The possible triggers of rules at one moment."""

    now: datetime
    changes: tuple[StatusChange, ...] = ()
    """The new changes of status, oldest first."""
    ahead: timedelta = timedelta(0)
    """How far the times of runs are ahead of our clock."""
    stuck: tuple[StuckRun, ...] = ()
    incidents: tuple[Incident, ...] = ()
    unknown: tuple[Action, ...] = ()
    watermark: Watermark = Watermark()


@dataclass(slots=True)
class Observer:
    """Reads one profile's cache and ledger, and asks the service for what a run's row does not contain."""

    cache: Cache
    ledger: Ledger
    incidents: IncidentReader
    ask_reason: Callable[[str], Awaitable[str]] | None = None
    """Asks the service for a reason that is missing in its list; returns an empty text if there is none."""
    ask_turns: Callable[[str], Awaitable[RunTurns | None]] | None = None
    """Asks the service for the run's turns; returns None if it does not answer."""
    questions: int = MAX_QUESTIONS
    """How many more requests may be sent."""
    watermark: Watermark = field(default_factory=Watermark)
    """The changes of status up to here have been decided."""
    _file: int = 0
    """The cache file that the watermark belongs to."""

    async def observe(self, now: datetime) -> Seen:
        """The possible triggers of rules now; of the changes of status, those since the watermark."""
        cache = self.cache
        if self._file != cache.opened:
            self._file, self.watermark = cache.opened, Watermark()
        self.questions = MAX_QUESTIONS
        batch = await cache.changes(self.watermark, since=now - HISTORY, limit=MAX_CHANGES)
        # Fetched history and a first look need no warning: nothing in them had to be decided.
        if self.watermark.transition and sum(change.after > EPOCH for change in batch.changes) >= MAX_CHANGES:
            log.warning("more than %s runs changed at once: the oldest were passed over", MAX_CHANGES)
        hosts, _, stuck = await cache.states()
        incidents = await self.incidents.read(hosts, now)
        unknown = await self.ledger.unresolved()
        return Seen(now, batch.changes, batch.ahead, stuck, incidents, unknown, batch.watermark)

    async def news_from(self, rule: Rule, state: RuleState) -> datetime | None:
        """The service's time since which occurrences are news to the rule, or None if it cannot look yet.

        Before the rule's first look, this is the time of the newest cached run; the first look finds only history.
        """
        if state.news_from is not None or not isinstance(rule.on, OnRun | OnStuck | OnHealth):
            return state.news_from or state.since
        cache = self.cache
        subject = "health" if isinstance(rule.on, OnHealth) else "runs"
        (answered_at,) = (link.last_ok_at for link in await cache.links() if link.subject == subject)
        if answered_at is None or answered_at < state.since:
            return None
        return await cache.newest_creation() or EPOCH

    async def meets(self, on: OnRun, occurrence: Occurrence) -> bool | None:
        """Whether a run that changed its status meets a rule's conditions, or None if that is not known yet."""
        run_id = occurrence.facts["run.id"]
        if on.to in {"failed", CANCELLED} and occurrence.facts["run.status"] == "failed":
            if self.ask_reason is not None and await self.cache.questions_due():
                return None
            detail = await self.cache.detail(run_id)
            if detail is not None and occurrence.identity not in map(_identity, detail.transitions):
                return None  # The cache has learned since then that the run was cancelled.
            # A run whose agent asks a question needs an answer, which no rule can give.
            if on.to == CANCELLED or run_id in await self.cache.questions():
                return False
        if not on.needs_results:
            return True
        if not self.questions or self.ask_turns is None:
            return None
        self.questions -= 1
        if (results := await self.ask_turns(run_id)) is None:
            return None
        if on.finding is None:
            return on.budget is not None and (results.budget_used or 0.0) >= on.budget
        heavy = SEVERITIES[: SEVERITIES.index(on.finding) + 1]
        findings = results.turns[-1].findings if results.turns else None
        return any(finding.severity in heavy for finding in findings or ())

    async def reason(self, run_id: str) -> str:
        """The service's reason for the run's outcome, from its list or its results."""
        reason = reason_of(await self._read_document(run_id))
        if not reason and self.questions and self.ask_reason is not None:
            self.questions -= 1
            reason = await self.ask_reason(run_id)
        return shorten(reason, 1_000) or "no reason given"

    async def is_labelled(self, run_id: str, scope: Scope) -> bool:
        """Whether the run's metadata, as the service returns it or else as this machine sent it, match the scope."""
        metadata = (await self._read_document(run_id)).get("metadata")
        if not isinstance(metadata, dict):
            turns = [turn for turn in await self.ledger.for_run(run_id) if turn.result_id == run_id]
            metadata = as_received(turns[-1].body_json).get("metadata") if turns else None
        labels = metadata if isinstance(metadata, dict) else {}
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in labels.items()}
        return all(name in texts and _matches(globs, texts[name]) for name, globs in scope.labels)

    async def _read_document(self, run_id: str) -> dict[str, object]:
        detail = await self.cache.detail(run_id)
        return {} if detail is None else as_received(detail.run.raw_json)


def reason_of(received: dict[str, object]) -> str:
    """The service's reason for a run's outcome, from the run as received, or empty if there is none."""
    for name in _REASONS:
        match received.get(name):
            case str(text) if text.strip():
                return text.strip()
            case dict(inner) if reason := reason_of(inner):
                return reason
    return ""


def due_times(rule: Rule, since: datetime, last_due: datetime | None, now: datetime) -> list[datetime]:
    """The times of a schedule or interval that have passed since it began or last decided."""
    after = max(since, last_due or since, now - max(LOOK_BACK, rule.catch_up))
    return list(takewhile(lambda at: at <= now, upcoming(rule, since, after)))


def occurrences(rule: Rule, seen: Seen, since: datetime, news_from: datetime = EPOCH) -> Iterator[Occurrence]:
    """The occurrences for a rule about runs, hosts or actions; changes of status count from `since`, by our clock.

    A run that was first seen when it was already finished counts only if it started at `news_from` or later: an older
    one belongs to fetched history.
    """
    match rule.on:
        case OnRun(to=to, was=was, scope=scope):
            for change in seen.changes:
                run_id = change.run_id
                at = change.happened_at(seen.ahead)
                is_whole = change.old is None and change.is_final
                is_news = at >= since and not (is_whole and change.active_since < news_from)
                # A run shown as failed may have been cancelled: only the service knows.
                states = {"failed", CANCELLED} if to == CANCELLED else {to or change.new}
                is_meant = change.new in states and (to or change.is_final) and was in {None, change.old} and is_news
                if is_meant and is_within(scope, change.repository, change.branch_name):
                    facts = _facts(run_id, change.repository, change.branch_name, change.new, change.old or "")
                    yield Occurrence(_identity(change), at, run_id, facts)
        case OnStuck(scope):
            for run in seen.stuck:
                if is_within(scope, run.repository, run.branch_name):
                    identity = f"stuck:{run.run_id}:{run.active_since.isoformat()}"
                    facts = _facts(run.run_id, run.repository, run.branch_name, run.status)
                    yield Occurrence(identity, run.last_seen_at - seen.ahead, run.run_id, facts)
        case OnHealth(health, lasting, platforms):
            for incident in seen.incidents:
                if not _matches(platforms, incident.platform):
                    continue
                identity = f"health:{incident.platform}:{incident.start.isoformat()}"
                # A host that was disconnected while it was down has not recovered.
                over_at = incident.recovered_at if incident.is_over else None
                if health == "recovered" and over_at is not None and over_at > seen.now - RECENT:
                    facts = {"host.platform": incident.platform, "host.status": "recovered"}
                    yield Occurrence(f"{identity}:over", over_at, "", facts)
                if health == "not ok" and not incident.is_over and incident.lasted >= lasting:
                    facts = {"host.platform": incident.platform, "host.status": incident.word}
                    yield Occurrence(f"{identity}:bad", incident.start, "", facts)
        case OnUnknownAction(older):
            for action in seen.unknown:
                if seen.now - action.created_at >= older:
                    number = action.action_id
                    facts = {"action.id": number, "action.kind": action.kind, "action.subject": action.subject}
                    yield Occurrence(f"action:{number}", action.created_at, "", facts)


def changed_since(occurrence: Occurrence, seen: Seen, run: Run | None) -> str:
    """Describe the change since an occurrence that makes its action pointless; empty if none is known."""
    facts = occurrence.facts
    if run is not None and run.status != facts.get("run.status", run.status):
        return f"the run is {run.status} by now"
    if "action.id" in facts and facts["action.id"] not in {item.action_id for item in seen.unknown}:
        return "its outcome is known by now"
    if platform := facts.get("host.platform"):
        newest = next((item for item in seen.incidents if item.platform == platform), None)
        is_unwell = newest is not None and not newest.is_over
        if is_unwell == (facts["host.status"] == "recovered"):
            change = "has recovered"
            if is_unwell:
                change = "is unhealthy again"
            elif newest is not None and newest.recovered_at is None:
                change = "is no longer connected"
            return f"code host {platform} {change} by now"
    return ""


def manual_occurrence(now: datetime, run: Run | None) -> Occurrence:
    """The occurrence for a manual trigger, on this run if there is one."""
    identity = f"asked:{rfc3339(now)}"
    if run is None:
        return Occurrence(identity, now)
    return Occurrence(identity, now, run.run_id, _facts(run.run_id, run.repository.label, run.branch_name, run.status))


def _identity(change: StatusChange | StatusTransition) -> str:
    # To the microsecond: a run that was continued may fail a second time.
    return f"run:{change.run_id}:{change.new}:{change.at.isoformat()}"


def _facts(run_id: str, repository: str, branch: str, status: str, was: str = "") -> dict[str, str]:
    about = {"run.id": run_id, "run.repository": repository, "run.branch": branch}
    return {**about, "run.status": status, "run.was": was}


def is_within(scope: Scope, repository: str, branch: str) -> bool:
    return _matches(scope.repositories, repository) and _matches(scope.branches, branch)


def _matches(globs: tuple[str, ...], text: str) -> bool:
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
