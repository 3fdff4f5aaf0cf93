"""The inbox: made from cache, ledger and state when it is asked for, less what a person has dealt with."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Self

from app.automations.bot import LEASE, rules_of
from app.automations.observing import reason_of
from app.engine import Engine
from app.health import Incident
from app.notify.incidents import IncidentReader
from app.rules.rule import Rule
from app.run_document import as_received
from app.text import safe_text
from app.times import span
from storage.records import RunFilter, RunRow, RunSort
from storage.records.following import StuckRun
from storage.records.inbox import NO_TIME, InboxEntry, InboxItem, Kind, Mark
from storage.records.repository import DEFAULT_PLATFORM
from storage.state import State

LOOK_BACK: Final = timedelta(days=14)
"""Runs that failed longer ago are no longer news."""
MOST_RUNS: Final = 5_000
MOST_ENTRIES: Final = 50
"""So many of an item's runs are listed."""
SILENT_AFTER: Final = timedelta(minutes=10)
"""A bot that did not work for so long is missed; cron starts one more often."""
_LONGEST: Final = 200
_LONGEST_REASON: Final = 100
_NO_MARK: Final = Mark()
_ACTED: Final = ("done", "failed", "unknown")

Titled = Callable[[Sequence[InboxEntry]], str]


@dataclass(slots=True)
class _Cause:
    """What has one cause, before anything is left out."""

    key: str
    kind: Kind
    title: Titled
    entries: list[InboxEntry]
    cure: str = ""
    subject: str = ""


@dataclass(slots=True)
class Inbox:
    """One profile's inbox."""

    engine: Engine
    state: State | None
    """None: it cannot be used; everything waits then, and nothing can be put away."""
    rules: Sequence[Rule]
    _incidents: IncidentReader = field(init=False)
    _reasons: dict[tuple[str, datetime | None], str] = field(default_factory=dict)
    """Why runs failed, as the service says it, by run and its last change."""

    def __post_init__(self) -> None:
        engine, hold = self.engine, timedelta(seconds=self.engine.settings.notify.hold_s)
        words, health_s = engine.settings.console.health_ok, engine.profile.poll.health_s
        self._incidents = IncidentReader(engine.cache, words, health_s, hold)

    @classmethod
    def of(cls, engine: Engine) -> Self:
        """The inbox of an engine's profile."""
        state = engine.state if isinstance(engine.state, State) else None
        return cls(engine, state, rules_of(engine.settings.automations, engine.profile.name))

    async def items(self, *, with_done: bool = False) -> tuple[InboxItem, ...]:
        """What is not dealt with: the most severe first, of those the newest; new activity brings an item back.

        Raises:
            StorageError: A file cannot be read.
        """
        now, marks = self.engine.clock(), {} if with_done else await self._marks()
        incidents = await self._incidents.read(now)
        causes = [*await self._runs(now, incidents), *_hosts(incidents), *await self._states(now)]
        items = [item for cause in causes if (item := _item(cause, marks, now)) is not None]
        return tuple(sorted(items, key=lambda item: (item.rank, -item.at.timestamp(), item.key)))

    async def done(self, items: Iterable[InboxItem]) -> None:
        """Deal with the items as they are: what comes later brings them back.

        Raises:
            StorageError: The state cannot be written.
        """
        # A later failure may bear an earlier time than this one: each key has its own.
        await self._mark({entry.key: Mark(done_until=entry.at) for item in items for entry in item.newest})

    async def snooze(self, items: Iterable[InboxItem], until: datetime) -> None:
        """Put the items off until then; what comes before that brings them back sooner.

        Raises:
            StorageError: The state cannot be written.
        """
        marks = await self._marks()
        await self._mark(
            {
                entry.key: replace(marks.get(entry.key, _NO_MARK), snoozed_until=until, seen_until=entry.at)
                for item in items
                for entry in item.newest
            }
        )

    async def mute(self, items: Iterable[InboxItem]) -> None:
        """Take the items out for good, whatever comes later.

        Raises:
            StorageError: The state cannot be written.
        """
        await self._mark({item.key: Mark(is_muted=True) for item in items})

    async def undo(self) -> tuple[str, ...]:
        """Take back what was done last, in whichever console; the keys that it was about. Several levels.

        Raises:
            StorageError: The state cannot be written.
        """
        return await self.engine.usable_state().undo(self.engine.clock())

    async def _mark(self, marked: Mapping[str, Mark]) -> None:
        await self.engine.usable_state().mark(marked, self.engine.clock())

    async def _marks(self) -> Mapping[str, Mark]:
        return {} if self.state is None else await self.state.marks()

    async def _runs(self, now: datetime, incidents: Sequence[Incident]) -> list[_Cause]:
        cache, ahead = self.engine.cache, await self.engine.cache.run_clock_ahead()
        condition = RunFilter(statuses=("failed",), since=now + ahead - LOOK_BACK)
        rows = await cache.rows(condition, RunSort(), offset=0, limit=MOST_RUNS)
        await self._read_reasons(rows)
        failed: dict[str, _Cause] = {}
        for run in rows:
            host = _unwell(incidents, run.repository, _ended(run, ahead))
            reason = self._reasons.get((run.run_id, run.updated_at), "")
            about, why = (reason, f": {reason}" if reason else "")
            if host is not None:
                about, why = host.platform, f" while {host.platform} was {host.word}"
            key = _key("failed", run.repository, about)
            cause = failed.setdefault(key, _Cause(key, "failed", _failed(run.repository, why), []))
            cause.entries.append(_entry(key, run, ahead))
        stuck: dict[str, _Cause] = {}
        for one in await cache.following.stuck_runs():
            key = f"stuck:{one.repository}"
            cause = stuck.setdefault(key, _Cause(key, "stuck", _stuck(one), []))
            entry = InboxEntry(f"stuck:{one.run_id}", one.active_since - ahead, one.run_id, "", one.status)
            cause.entries.append(entry)
        return [*failed.values(), *stuck.values(), *await self._ended(ahead)]

    async def _read_reasons(self, rows: Sequence[RunRow]) -> None:
        new = [row.run_id for row in rows if (row.run_id, row.updated_at) not in self._reasons]
        details = await self.engine.cache.details(new) if new else {}
        known = {
            run_id: safe_text(reason_of(as_received(each.run.raw_json)), limit=_LONGEST_REASON)
            for run_id, each in details.items()
        }
        self._reasons = {
            (row.run_id, row.updated_at): known.get(row.run_id) or self._reasons.get((row.run_id, row.updated_at), "")
            for row in rows
        }

    async def _ended(self, ahead: timedelta) -> list[_Cause]:
        """The followed runs that have ended, but for those that failed."""
        found = []
        for row in [pin.row for pin in await self.engine.cache.following.pins() if pin.row is not None]:
            if row.is_final and row.status != "failed":
                key, title = f"ended:{row.run_id}", f"Followed run {row.status}: {row.repository}"
                found.append(_Cause(key, "ended", _always(title), [_entry(key, row, ahead)]))
        return found

    async def _states(self, now: datetime) -> list[_Cause]:
        found = []
        for action in await self.engine.ledger.unresolved():
            title, number = f"Unknown outcome: {action.kind} {action.subject}".rstrip(), action.action_id
            cure = f"runwarden actions resolve {number}"
            found.append(_single("unknown", f"action:{number}", title, action.created_at, number, cure))
        if self.state is None:
            return found
        for each in await self.state.open_decisions():
            if each.outcome == "waiting":
                title, number = f"{each.rule} waits for approval", str(each.decision_id)
                cure = f"runwarden automations approve {number}"
                found.append(_single("approval", f"approval:{number}", title, each.decided_at, number, cure))
        for delivery in await self.state.recent_deliveries(MOST_ENTRIES, "failed"):
            title, number = (
                f"Not delivered over {delivery.message.route}: {delivery.message.title}",
                str(delivery.number),
            )
            if delivery.made_at > now - LOOK_BACK:
                cure = f"runwarden notify test {delivery.message.route}"
                key = f"undelivered:{delivery.delivery_id}"
                found.append(_single("undelivered", key, title, delivery.made_at, number, cure))
        return [*found, *await self._automations(now, self.state)]

    async def _automations(self, now: datetime, state: State) -> list[_Cause]:
        found, states = [], await state.rule_states()
        for rule in self.rules:
            held = states.get(rule.name)
            if held is not None and held.paused and rule.is_on:
                # Not the last line: each time that is passed over while it is paused is one, and is no news.
                last = next(iter(await state.journal(rule.name, limit=1, outcomes=_ACTED)), None)
                at = held.since if last is None else last.decided_at
                title, cure = f"{rule.name} is paused: {held.paused}", f"runwarden automations resume '{rule.name}'"
                found.append(_single("paused", f"paused:{rule.name}", title, at, rule.name, cure))
        if any(rule.is_on for rule in self.rules):
            until = await state.lease_until(LEASE)
            if until is None or until < now - SILENT_AFTER:
                title = "Automations are configured, and no bot is at work"
                found.append(_single("bot", "bot", title, until or NO_TIME, "", "runwarden watch"))
        return found


def _single(kind: Kind, key: str, title: str, at: datetime, subject: str, cure: str = "") -> _Cause:
    return _Cause(key, kind, _always(title), [InboxEntry(key, at)], cure, subject)


def _always(title: str) -> Titled:
    return lambda _: title


def _hosts(incidents: Iterable[Incident]) -> list[_Cause]:
    return [
        _single("host", f"host:{one.platform}", f"Code host {one.platform} is {one.word}", one.start, one.platform)
        for one in incidents
        if not one.is_over
    ]


def _key(kind: Kind, repository: str, about: str) -> str:
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
    """What its code host suffered from when a run ended."""
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


def _item(cause: _Cause, marks: Mapping[str, Mark], now: datetime) -> InboxItem | None:
    """What is left of the cause; None: nothing."""
    if marks.get(cause.key, _NO_MARK).is_muted:
        return None
    held = [(entry, marks.get(entry.key, _NO_MARK)) for entry in cause.entries]
    undone = [(entry, mark) for entry, mark in held if not mark.is_done(entry.at)]
    # What was put off comes back with the first news of the same cause.
    if all(mark.hides(entry.at, now) for entry, mark in undone):
        return None
    entries = sorted((entry for entry, _ in undone), key=lambda entry: entry.at, reverse=True)
    newest = {entry.key: entry for entry in reversed(entries)}
    return InboxItem(
        key=cause.key,
        kind=cause.kind,
        title=safe_text(cause.title(entries), limit=_LONGEST),
        at=entries[0].at,
        count=len(entries),
        cure=safe_text(cause.cure or _cure(entries[0]), limit=_LONGEST),
        subject=cause.subject,
        entries=tuple(entries[:MOST_ENTRIES]),
        newest=tuple(newest.values()),
        back=_back([mark for _, mark in held], now),
    )


def _cure(entry: InboxEntry) -> str:
    return f"runwarden runs show {entry.run_id}" if entry.run_id else ""


def _back(marks: Iterable[Mark], now: datetime) -> str:
    """Why something that was put away is here again."""
    said = ""
    for mark in marks:
        if mark.snoozed_until is not None:
            return "put off until now" if mark.snoozed_until <= now else "again, sooner than it was put off to"
        if mark.done_until is not None:
            said = "again, after it was dealt with"
    return said
