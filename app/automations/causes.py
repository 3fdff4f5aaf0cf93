"""Causes of inbox items: failures, stuck runs and everything else that waits, including what was marked as done."""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from app.automations.assembly import rules_of
from app.automations.bot import LEASE
from app.automations.observing import reason_of
from app.engine import Engine
from app.health import Incident
from app.notify.incidents import IncidentReader
from app.rules.rule import Rule
from app.run_document import as_received
from app.text import plural, safe_text
from app.times import span
from storage.records import RunFilter, RunRow, RunSort
from storage.records.decision import FINISHED_OUTCOMES
from storage.records.following import StuckRun
from storage.records.inbox import NO_TIME, InboxEntry, InboxKind
from storage.records.repository import DEFAULT_PLATFORM
from storage.state import State

LOOK_BACK: Final = timedelta(days=14)
"""Runs that failed longer ago are no longer news."""
MOST_RUNS: Final = 5_000
MOST_MESSAGES: Final = 100
SILENT_AFTER: Final = timedelta(minutes=10)
"""A bot that was idle this long is missed; cron starts one more often."""
_LONGEST_REASON: Final = 100
_RUNS_AT_ONCE: Final = 50
"""A screen that reads in between does not wait for more than these."""

Titled = Callable[[Sequence[InboxEntry]], str]


@dataclass(slots=True)
class Cause:
    """The waiting items that have one cause."""

    key: str
    kind: InboxKind
    title: Titled
    """Makes the title from the entries that are not done, newest first."""
    entries: list[InboxEntry]
    cure: str = ""
    """The cure, as a command without its program."""
    subject: str = ""
    group: str = ""
    """The key of marks on all causes in a repository, such as those by a notification's number."""


@dataclass(slots=True)
class Causes:
    """Reads the causes from one profile's files."""

    engine: Engine
    state: State | None
    automations: Callable[[], Sequence[Rule]]
    """The rules as they are configured now."""
    _incidents: IncidentReader = field(init=False)
    _reasons: dict[tuple[str, datetime | None], str] = field(default_factory=dict)
    """Why runs failed, as the service says it, by run and its last change."""

    def __post_init__(self) -> None:
        engine, hold = self.engine, timedelta(seconds=self.engine.settings.notify.hold_s)
        words, health_s = engine.settings.console.health_ok, engine.profile.poll.health_s
        self._incidents = IncidentReader(engine.cache, words, health_s, hold)

    async def read(self, now: datetime) -> list[Cause]:
        """Read all causes of the present.

        Raises:
            StorageError: A file cannot be read.
        """
        incidents = await self._incidents.read(now)
        found = [*await self._runs(now, incidents), *_hosts(incidents), *await self._writes()]
        if self.state is not None:
            found += [*await self._automations(now, self.state), *await self._deliveries(now, self.state)]
        return found

    async def _runs(self, now: datetime, incidents: Sequence[Incident]) -> list[Cause]:
        cache, ahead = self.engine.cache, await self.engine.cache.run_clock_ahead()
        condition = RunFilter(statuses=("failed",), since=now + ahead - LOOK_BACK)
        rows = await cache.rows(condition, RunSort(), offset=0, limit=MOST_RUNS)
        await self._read_reasons(rows)
        failed: dict[str, Cause] = {}
        for run in rows:
            host = _unwell(incidents, run.repository, _ended(run, ahead))
            reason = self._reasons.get((run.run_id, run.updated_at), "")
            about, why = (reason, f": {reason}" if reason else "")
            if host is not None:
                about, why = host.platform, f" while {host.platform} was {host.word}"
            key = _key("failed", run.repository, about)
            new = Cause(key, "failed", _failed(run.repository, why), [], group=_key("failed", run.repository, ""))
            cause = failed.setdefault(key, new)
            cause.entries.append(_entry(key, run, ahead))
        stuck: dict[str, Cause] = {}
        for one in await cache.following.stuck_runs():
            key = f"stuck:{one.repository}"
            cause = stuck.setdefault(key, Cause(key, "stuck", _stuck(one), []))
            entry = InboxEntry(f"stuck:{one.run_id}", one.active_since - ahead, one.run_id, "", one.status)
            cause.entries.append(entry)
        return [*failed.values(), *stuck.values(), *await self._ended(ahead)]

    async def _read_reasons(self, rows: Sequence[RunRow]) -> None:
        new = [row.run_id for row in rows if (row.run_id, row.updated_at) not in self._reasons]
        known: dict[str, str] = {}
        for at in range(0, len(new), _RUNS_AT_ONCE):
            details = await self.engine.cache.details(new[at : at + _RUNS_AT_ONCE])
            known |= {
                run_id: safe_text(reason_of(as_received(each.run.raw_json)), limit=_LONGEST_REASON)
                for run_id, each in details.items()
            }
        self._reasons = {
            (row.run_id, row.updated_at): known.get(row.run_id) or self._reasons.get((row.run_id, row.updated_at), "")
            for row in rows
        }

    async def _ended(self, ahead: timedelta) -> list[Cause]:
        """The followed runs that have ended, except failed ones."""
        found = []
        for row in [pin.row for pin in await self.engine.cache.following.pins() if pin.row is not None]:
            if row.is_final and row.status != "failed":
                key, title = f"ended:{row.run_id}", f"Followed run {row.status}: {row.repository}"
                found.append(Cause(key, "ended", _always(title), [_entry(key, row, ahead)]))
        return found

    async def _writes(self) -> list[Cause]:
        found = []
        for action in await self.engine.ledger.unresolved():
            title, number = f"Unknown outcome: {action.kind} {action.subject}".rstrip(), action.action_id
            cure = f"actions resolve {number}"
            found.append(_single("unknown", f"action:{number}", title, action.created_at, number, cure))
        return found

    async def _automations(self, now: datetime, state: State) -> list[Cause]:
        rules = [rule for rule in rules_of(self.automations(), self.engine.profile.name) if rule.is_on]
        found = [*await _approvals(state), *await _paused(rules, state), *await _limited(rules, now, state)]
        return [*found, *await _silence(now, state)] if rules else found

    async def _deliveries(self, now: datetime, state: State) -> list[Cause]:
        """The messages that a route did not take."""
        lost = [
            each for each in await state.recent_deliveries(MOST_MESSAGES, "failed") if each.made_at > now - LOOK_BACK
        ]
        found = []
        for route, group in groupby(sorted(lost, key=lambda each: each.message.route), lambda each: each.message.route):
            deliveries, key = list(group), f"undelivered:{route}"
            entries = [InboxEntry(key, one.made_at) for one in deliveries]
            title = _undelivered(route, max(deliveries, key=lambda one: one.made_at).message.title)
            found.append(Cause(key, "undelivered", title, entries, f"notify test {shlex.quote(route)}", route))
        return found


async def _approvals(state: State) -> list[Cause]:
    """The decisions that wait for a person."""
    found = []
    for each in await state.open_decisions(outcome="waiting"):
        title, number = f"{each.rule} waits for approval", str(each.decision_id)
        cure = f"automations approve {number}"
        found.append(_single("approval", f"approval:{number}", title, each.decided_at, number, cure))
    return found


async def _paused(rules: Iterable[Rule], state: State) -> list[Cause]:
    """The rules that are paused."""
    found, states = [], await state.rule_states()
    for rule in rules:
        held = states.get(rule.name)
        if held is not None and held.paused:
            # The last line does not count: every time that is skipped while the rule is paused writes one.
            last = next(iter(await state.journal(rule.name, limit=1, outcomes=FINISHED_OUTCOMES)), None)
            at = held.since if last is None else last.decided_at
            title, cure = f"{rule.name} is paused: {held.paused}", f"automations resume {shlex.quote(rule.name)}"
            found.append(_single("paused", f"paused:{rule.name}", title, at, rule.name, cure))
    return found


async def _limited(rules: Iterable[Rule], now: datetime, state: State) -> list[Cause]:
    """The rules that a limit held back."""
    found, names = [], {rule.name for rule in rules}
    for newest, count in await state.limited(now - LOOK_BACK):
        if newest.rule in names:
            title = f"{newest.rule} reached its limit, {plural(count, 'time')}: {newest.reason}"
            key, cure = f"limited:{newest.rule}", f"automations log {shlex.quote(newest.rule)}"
            found.append(_single("limited", key, title, newest.decided_at, newest.rule, cure))
    return found


async def _silence(now: datetime, state: State) -> list[Cause]:
    """The missing bot, if none was at work lately."""
    until = await state.lease_until(LEASE)
    if until is not None and until >= now - SILENT_AFTER:
        return []
    title = "Automations are configured, and no bot is at work"
    return [_single("bot", "bot", title, until or NO_TIME, "", "watch")]


def _single(kind: InboxKind, key: str, title: str, at: datetime, subject: str, cure: str = "") -> Cause:
    return Cause(key, kind, _always(title), [InboxEntry(key, at)], cure, subject)


def _always(title: str) -> Titled:
    return lambda _: title


def _hosts(incidents: Iterable[Incident]) -> list[Cause]:
    return [
        _single("host", f"host:{one.platform}", f"Code host {one.platform} is {one.word}", one.start, one.platform)
        for one in incidents
        if not one.is_over
    ]


def _key(kind: InboxKind, repository: str, about: str) -> str:
    # Without digits: most reasons that differ in them alone have one cause.
    slug = re.sub(r"[^a-z]+", "-", about.casefold())[:40].strip("-")
    return f"{kind}:{repository}:{slug}" if slug else f"{kind}:{repository}"


def _failed(repository: str, why: str) -> Titled:
    def title(entries: Sequence[InboxEntry]) -> str:
        return f"{_runs(len(entries))} failed in {repository}{why}"

    return title


def _stuck(longest: StuckRun) -> Titled:
    took = span((longest.last_seen_at - longest.active_since).total_seconds())

    def title(entries: Sequence[InboxEntry]) -> str:
        if len(entries) == 1:
            return f"A run is stuck in {longest.repository}: {entries[0].status} for {took}"
        return f"{_runs(len(entries))} are stuck in {longest.repository}, the longest for {took}"

    return title


def _runs(count: int) -> str:
    return "A run" if count == 1 else f"{count:,} runs"


def _unwell(incidents: Iterable[Incident], repository: str, at: datetime) -> Incident | None:
    """The trouble of its code host when a run ended."""
    named, colon, _ = repository.partition(":")
    platform = named if colon else DEFAULT_PLATFORM
    own = (one for one in incidents if one.platform == platform)
    return next((one for one in own if one.start <= at and (not one.is_over or at <= one.until)), None)


def _entry(key: str, run: RunRow, ahead: timedelta) -> InboxEntry:
    return InboxEntry(key, _ended(run, ahead), run.run_id, run.branch_name, run.status)


def _ended(run: RunRow, ahead: timedelta) -> datetime:
    # A run without any readable time is old: it cannot come back as news again and again.
    at = run.updated_at or run.created_at
    return NO_TIME if at is None else at - ahead


def _undelivered(route: str, newest: str) -> Titled:
    def title(entries: Sequence[InboxEntry]) -> str:
        if len(entries) == 1:
            return f"Not delivered over {route}: {newest}"
        return f"{len(entries):,} messages not delivered over {route}, the newest: {newest}"

    return title
