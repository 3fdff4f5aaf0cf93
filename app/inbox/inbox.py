"""The inbox: open causes without those marked as done, snoozed or muted; shared by all consoles of a data folder."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from msgspec.structs import replace

from app.actions.actions import retry_key
from app.automations.acting import describe_request
from app.automations.bot import LEASE, rules_of
from app.automations.occurrences import reason_of
from app.automations.rule import Rule
from app.engine.engine import Engine
from app.engine.text import plural, safe_text
from app.engine.times import clock_time, day, rfc3339, span
from app.health.facts import Incident, unobserved_since
from app.health.incidents import IncidentReader
from app.runs.document import as_received
from storage.records import RunFilter, RunRow, RunSort
from storage.records.action import WRITE_KINDS
from storage.records.decision import FINISHED_OUTCOMES
from storage.records.following import StuckRun
from storage.records.inbox import NO_TIME, InboxEntry, InboxItem, InboxKind, Mark
from storage.records.results import OpenQuestion
from storage.records.run import DEFAULT_PLATFORM
from storage.state import State

LOOK_BACK: Final = timedelta(days=14)
"""Runs that failed longer ago are not listed."""
MAX_RUNS: Final = 5_000
SILENT_AFTER: Final = timedelta(minutes=10)
"""A bot that was idle for this long is reported as missing; cron would have started it by then."""
_RUNS_AT_ONCE: Final = 50
"""Few, so that other reads need not wait long."""
_DAY: Final = timedelta(days=1)
_NO_MARK: Final = Mark()


@dataclass(slots=True)
class Cause:
    """Open events with the same cause."""

    key: str
    kind: InboxKind
    one: str
    """The title for one event."""
    many: str = ""
    """The title for several events, without the number in front of it. If it is empty, `one` is used."""
    entries: list[InboxEntry] = field(default_factory=list)
    fix: str = ""
    """The arguments of the command that resolves the cause; for approvals, without the decisions."""
    subject: str = ""
    choices: tuple[str, ...] = ()


_OutagePeriod = tuple[str, datetime, datetime | None, Cause]
"""A code host's name, the period in which its outage can make runs fail, and the outage; no end: it still can."""


@dataclass(slots=True)
class Inbox:
    """One profile's inbox: the open causes in its files."""

    engine: Engine
    automations: Callable[[], Sequence[Rule]]
    _incidents: IncidentReader
    _reasons: dict[tuple[str, datetime | None], str] = field(default_factory=dict)
    """The service's reasons for failures, by run and the time of its last change."""

    @classmethod
    def of(cls, engine: Engine, automations: Callable[[], Sequence[Rule]] | None = None) -> Self:
        """Create the inbox of an engine's profile; if its state cannot be used, all items are open.

        `automations` returns the current rules, if they may have changed since the engine was opened.
        """
        incidents = IncidentReader.of(engine.cache, engine.settings, engine.profile)
        return cls(engine, automations or (lambda: engine.settings.automations), incidents)

    async def items(self, *, with_done: bool = False) -> tuple[InboxItem, ...]:
        """The open items, the most severe and then the newest first; new events bring items back."""
        now = self.engine.clock()
        marks = {} if with_done else await self._marks()
        causes = await self._causes(now)
        command_line = self.engine.settings.command_line
        items = [item for cause in causes if (item := _item(cause, marks, now, command_line)) is not None]
        return tuple(sorted(items, key=lambda item: (item.rank, -item.at.timestamp(), item.key)))

    async def mark_done(self, items: Sequence[InboxItem]) -> None:
        """Mark the items as done; later events bring them back."""
        whole = await self._keys_to_mark(items)
        marks = {key: Mark(done_until=at) for key, at in whole.items()}
        await self.engine.usable_state().mark(marks, self.engine.clock())

    async def snooze(self, items: Sequence[InboxItem], until: datetime) -> None:
        """Snooze the items until this time; new events bring them back sooner."""
        marks = await self._marks()
        whole = await self._keys_to_mark(items)
        snoozed = {
            key: replace(marks.get(key, _NO_MARK), snoozed_until=until, seen_until=at) for key, at in whole.items()
        }
        await self.engine.usable_state().mark(snoozed, self.engine.clock())

    async def mute(self, items: Sequence[InboxItem]) -> None:
        """Hide the items permanently, even if more events follow: of a host that is down, its next outages as well."""
        keys = {key for item in items for key in (item.key, *(entry.key for entry in item.entries))}
        keys |= {entry.group for item in items for entry in item.entries if not entry.run_id}
        await self.engine.usable_state().mark(dict.fromkeys(keys - {""}, Mark(is_muted=True)), self.engine.clock())

    async def undo(self) -> tuple[str, ...]:
        """Undo the last change made by any console and return its keys; a further call undoes the one before."""
        return await self.engine.usable_state().undo(self.engine.clock())

    async def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return any(mark != _NO_MARK for mark in (await self._marks()).values())

    async def _marks(self) -> Mapping[str, Mark]:
        if isinstance(self.engine.state, State):
            return await self.engine.state.marks()
        return {}

    async def _keys_to_mark(self, items: Sequence[InboxItem]) -> Mapping[str, datetime]:
        """The keys to mark, with their newest events: of all entries, and of each group whose items are all chosen."""
        chosen = {item.key for item in items}
        others = {entry.group for item in await self.items() if item.key not in chosen for entry in item.entries}
        entries = sorted((entry for item in items for entry in item.entries), key=lambda entry: entry.at)
        return {key: entry.at for entry in entries for key in (entry.key, entry.group) if key and key not in others}

    async def _causes(self, now: datetime) -> list[Cause]:
        hosts, links, stuck = await self.engine.cache.states()
        causes = await self._run_causes(now, await self._incidents.read(hosts, now), stuck)
        if (since := unobserved_since(links, now)) is not None:
            title = f"Code hosts unobserved for {span((now - since).total_seconds())}: their health cannot be read"
            causes.append(_single("host", "link:health", title, since, "health", "health"))
        for action in await self.engine.ledger.unresolved():
            title = f"Unknown outcome: {WRITE_KINDS[action.kind].words} {action.subject}".rstrip()
            number = action.action_id
            fix = f"actions resolve {number}"
            causes.append(_single("unknown", f"action:{number}", title, action.created_at, number, fix))
        if not isinstance(state := self.engine.state, State):
            return causes
        undelivered: dict[str, Cause] = {}
        for delivery in await state.recent_deliveries(100, "failed"):
            if delivery.made_at > now - LOOK_BACK:
                route = delivery.message.route
                newest = delivery.message.title
                key = f"undelivered:{route}"
                fix = f"notify test {shlex.quote(route)}"
                many = f"messages not delivered over {route}, latest: {newest}"
                cause = Cause(key, "undelivered", f"Not delivered over {route}: {newest}", many, [], fix, route)
                undelivered.setdefault(route, cause).entries.append(InboxEntry(key, delivery.made_at))
        return [*causes, *await self._automation_causes(now, state), *undelivered.values()]

    async def _run_causes(
        self, now: datetime, incidents: Sequence[Incident], stuck_runs: Sequence[StuckRun]
    ) -> list[Cause]:
        """Outages of code hosts, failed runs, questions of agents, stuck runs, and followed runs that ended."""
        cache = self.engine.cache
        ahead = (await cache.budget()).clock_ahead
        runs = await self._failed_runs(now + ahead - LOOK_BACK)
        reasons = await self._read_reasons(runs)
        health_s = self.engine.profile.poll.health_s
        recent = [incident for incident in incidents if incident.until > now - LOOK_BACK]
        outages = [(incident.platform, *incident.failures(health_s), _outage(incident, now)) for incident in recent]
        questions = await cache.questions()
        failures: dict[str, Cause] = {}
        asking: list[Cause] = []
        for run in runs:
            group = f"failed:{run.repository}"
            if (question := questions.get(run.run_id)) is not None:
                asking.append(_question(run, question, ahead))
            elif (outage := _outage_during(run, outages, ahead)) is not None:
                about = f"{run.repository}  {run.branch_name}"
                outage.entries.append(_entry(outage.key, run, ahead, about, group))
            else:
                failure = _failure(run, reasons[run.run_id], group)
                entry = _entry(failure.key, run, ahead, run.branch_name, group)
                failures.setdefault(failure.key, failure).entries.append(entry)
        open_outages = [outage for *_, outage in outages if outage.entries]
        followed = await self._followed_ends(ahead)
        return [*open_outages, *failures.values(), *asking, *_stuck_causes(stuck_runs, ahead), *followed]

    async def _failed_runs(self, since: datetime) -> tuple[RunRow, ...]:
        condition = RunFilter(statuses=("failed",), since=since)
        runs = await self.engine.cache.rows(condition, RunSort(), offset=0, limit=MAX_RUNS)
        # A retried failure needs no attention: the retry is a separate run.
        handled = await self.engine.ledger.results([*map(retry_key, runs)])
        return tuple(run for run in runs if retry_key(run) not in handled)

    async def _read_reasons(self, runs: Sequence[RunRow]) -> dict[str, str]:
        """The service's reasons for failures by run id; only those that changed are read from the cache."""
        changes = {run.run_id: (run.run_id, run.updated_at) for run in runs}
        # Separate, since another read may be in progress.
        reasons = dict(self._reasons)
        new = [run_id for run_id, change in changes.items() if change not in reasons]
        for start in range(0, len(new), _RUNS_AT_ONCE):
            details = await self.engine.cache.details(new[start : start + _RUNS_AT_ONCE])
            for run_id, detail in details.items():
                reason = reason_of(as_received(detail.run.raw_json))
                reasons[changes[run_id]] = safe_text(reason, limit=100)
        self._reasons = {change: reasons.get(change, "") for change in changes.values()}
        return {run_id: reasons.get(change, "") for run_id, change in changes.items()}

    async def _followed_ends(self, ahead: timedelta) -> list[Cause]:
        causes: list[Cause] = []
        for pin in await self.engine.cache.pins():
            run = pin.row
            if run is not None and run.is_final and run.status != "failed":
                key = f"ended:{run.run_id}"
                title = f"Followed run {run.status}: {run.repository}"
                causes.append(Cause(key, "ended", title, entries=[_entry(key, run, ahead, run.branch_name)]))
        return causes

    async def _automation_causes(self, now: datetime, state: State) -> list[Cause]:
        """Requests that wait for approval, paused rules, rules at their limit, and a missing bot."""
        rules = [rule for rule in rules_of(self.automations(), self.engine.profile.name) if rule.is_on]
        names = {rule.name for rule in rules}
        causes = [*await self._approvals(state), *await self._paused_rules(rules, state)]
        for newest, count in await state.limited(now - LOOK_BACK):
            if newest.rule in names:
                title = f"{newest.rule} reached its limit, {plural(count, 'time')}: {newest.reason}"
                key = f"limited:{newest.rule}"
                fix = f"automations log {shlex.quote(newest.rule)}"
                causes.append(_single("limited", key, title, newest.decided_at, newest.rule, fix))
        until = await state.lease_until(LEASE)
        is_approved = bool(await state.open_decisions(outcome="approved"))
        if (rules or is_approved) and (until is None or until < now - SILENT_AFTER):
            reason = "A request is approved" if is_approved else "Automations are configured"
            title = f"{reason}, but no bot is running"
            causes.append(_single("bot", "bot", title, until or NO_TIME, "", "watch"))
        return causes

    async def _approvals(self, state: State) -> list[Cause]:
        waiting = await state.open_decisions(outcome="waiting")
        details = await self.engine.cache.details([decision.run_id for decision in waiting])
        causes: dict[str, Cause] = {}
        for decision in waiting:
            run_id = decision.run_id
            rule = decision.rule
            words = describe_request(decision, details.get(run_id))
            about = f"Approve {words}" if words else f"{rule} waits for approval"
            many = f"requests of {rule} wait for approval"
            cause = Cause(f"approval:{rule}", "approval", "", many, fix="automations approve", subject=rule)
            number = decision.decision_id
            entry = InboxEntry(f"approval:{number}", decision.decided_at, "", run_id, about, decision_id=number)
            causes.setdefault(rule, cause).entries.append(entry)
        return [*causes.values()]

    async def _paused_rules(self, rules: Sequence[Rule], state: State) -> list[Cause]:
        causes: list[Cause] = []
        states = await state.rule_states()
        for name in (rule.name for rule in rules):
            stored = states.get(name)
            if stored is not None and stored.paused:
                # Ignore skipped occurrences: a paused rule keeps adding them to its journal.
                last = next(iter(await state.journal(name, limit=1, outcomes=FINISHED_OUTCOMES)), None)
                at = stored.since if last is None else last.decided_at
                title = f"{name} is paused: {stored.paused}"
                fix = f"automations resume {shlex.quote(name)}"
                causes.append(_single("paused", f"paused:{name}", title, at, name, fix))
        return causes


def _item(cause: Cause, marks: Mapping[str, Mark], now: datetime, command_line: str) -> InboxItem | None:
    """The open part of the cause, or None."""
    marked = [(entry, [marks.get(key, _NO_MARK) for key in (entry.key, entry.group)]) for entry in cause.entries]
    undone = [(entry, own) for entry, own in marked if not any(mark.is_done(entry.at) for mark in own)]
    # A snoozed item comes back with the first new event of the same cause.
    is_hidden = all(any(mark.hides(entry.at, now) for mark in own) for entry, own in undone)
    if is_hidden or marks.get(cause.key, _NO_MARK).is_muted:
        return None
    entries = sorted((entry for entry, _ in undone), key=lambda entry: entry.at, reverse=True)
    runs = sum(bool(entry.run_id) for entry in entries)
    oldest = entries[-1].at
    lasts = cause.kind == "host" and runs < len(entries)
    fix = cause.fix or (f"runs view {entries[0].run_id}" if runs else "")
    title = cause.one if len(entries) == 1 or not cause.many else f"{len(entries):,} {cause.many}"
    if cause.kind == "approval":
        fix = " ".join((cause.fix, *(str(entry.decision_id) for entry in reversed(entries))))
        title = title or entries[0].about
    elif cause.kind == "host" and runs:
        title = f"{title}, {plural(runs, 'run')} failed"
    elif cause.kind == "failed" and NO_TIME < oldest < entries[0].at - _DAY:
        title = f"{title}, since {day(oldest, now)}"
    return InboxItem(
        key=cause.key,
        kind=cause.kind,
        title=safe_text(title, limit=200),
        at=entries[0].at,
        count=runs or len(entries),
        # Long enough for commands with paths: a shortened command cannot be pasted.
        fix=safe_text(f"{command_line} {fix}", limit=1000) if fix else "",
        choices=cause.choices,
        subject=cause.subject,
        entries=tuple(entries),
        is_old=now - entries[0].at > _DAY and not lasts,
        back=_why_back([mark for _, own in marked for mark in own], now),
    )


def _why_back(marks: Sequence[Mark], now: datetime) -> str:
    """Why an item with these marks is open again; empty if it was open all the time."""
    if snoozed := [mark.snoozed_until for mark in marks if mark.snoozed_until is not None]:
        if max(snoozed) <= now:
            return "snoozed until now"
        return "back before its snooze ended"
    if any(mark.done_until is not None for mark in marks):
        return "again after it was done"
    return ""


def _single(kind: InboxKind, key: str, title: str, at: datetime, subject: str, fix: str) -> Cause:
    return Cause(key, kind, title, "", [InboxEntry(key, at)], fix, subject)


def _outage(incident: Incident, now: datetime) -> Cause:
    """One outage of a code host; after recovery it stays an item only if it broke runs."""
    key = f"host:{incident.platform}:{rfc3339(incident.start)}"
    start = clock_time(incident.start, now)
    title = f"{incident.platform} {incident.word} since {start}"
    fix = "health"
    if incident.is_cut_off:
        title = f"{incident.platform} is no longer connected; {incident.word} when last seen, since {start}"
    elif incident.recovered_at is not None:
        title = f"{incident.platform} {incident.word} from {start} to {clock_time(incident.recovered_at, now)}"
        fix = f"inbox retry {shlex.quote(key)}"
    is_listed = not incident.is_over or incident.is_cut_off
    entries = [InboxEntry(key, incident.start, f"host:{incident.platform}")] if is_listed else []
    return Cause(key, "host", title, "", entries, fix, incident.platform)


def _outage_during(run: RunRow, outages: Sequence[_OutagePeriod], ahead: timedelta) -> Cause | None:
    """The outage of the run's code host in which it failed."""
    named, colon, _ = run.repository.partition(":")
    platform = named if colon else DEFAULT_PLATFORM
    at = _end_time(run, ahead)
    for host, start, end, outage in outages:
        if host == platform and start <= at and (end is None or at <= end):
            return outage
    return None


def _failure(run: RunRow, reason: str, group: str) -> Cause:
    """The cause of a run's failure, without its entries."""
    predicate = f"failed in {run.repository}: {reason}" if reason else f"failed in {run.repository}"
    # Reasons that differ only in digits usually have the same cause.
    slug = re.sub(r"[^a-z]+", "-", reason.casefold())[:40].strip("-")
    key = f"{group}:{slug}" if slug else group
    return Cause(key, "failed", f"A run {predicate}", f"runs {predicate}")


def _question(run: RunRow, question: OpenQuestion, ahead: timedelta) -> Cause:
    key = f"question:{run.run_id}"
    title = f"{run.repository} asks: {' '.join(question.question.split())}"
    fix = f"runs continue {shlex.quote(run.run_id)} ANSWER"
    entries = [_entry(key, run, ahead, run.branch_name)]
    return Cause(key, "question", title, "", entries, choices=question.choices, fix=fix)


def _stuck_causes(stuck_runs: Sequence[StuckRun], ahead: timedelta) -> list[Cause]:
    """One cause for each repository; its title is that of the repository's first run."""
    causes: dict[str, Cause] = {}
    for run in stuck_runs:
        took = span((run.last_seen_at - run.active_since).total_seconds())
        cause = Cause(
            f"stuck:{run.repository}",
            "stuck",
            f"A run is stuck in {run.repository}: {run.status} for {took}",
            f"runs are stuck in {run.repository}, the longest for {took}",
        )
        entry = InboxEntry(f"stuck:{run.run_id}", run.active_since - ahead, run_id=run.run_id, status=run.status)
        causes.setdefault(cause.key, cause).entries.append(entry)
    return [*causes.values()]


def _entry(key: str, run: RunRow, ahead: timedelta, about: str, group: str = "") -> InboxEntry:
    return InboxEntry(key, _end_time(run, ahead), group, run.run_id, about, run.status)


def _end_time(run: RunRow, ahead: timedelta) -> datetime:
    # Treat a run without a readable time as old, so that it does not come back as new again and again.
    at = run.updated_at or run.created_at
    return NO_TIME if at is None else at - ahead
