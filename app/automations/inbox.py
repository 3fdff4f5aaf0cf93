"""The inbox: made from cache, ledger and state when it is asked for, less what a person has dealt with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from app.automations.bot import LEASE
from app.engine import Engine
from app.notify.incidents import IncidentReader
from app.rules.rule import Rule
from app.text import safe_text
from app.times import span
from storage.records import Run, RunFilter
from storage.records.decision import Decision
from storage.records.inbox import InboxItem, Kind, Mark
from storage.state import State

LOOK_BACK: Final = timedelta(days=14)
"""Runs that failed longer ago are no longer news."""
MOST_RUNS: Final = 5_000
SILENT_AFTER: Final = timedelta(minutes=10)
"""A bot that did not work for so long is missed; cron starts one more often."""
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Inbox:
    """One profile's inbox."""

    engine: Engine
    state: State
    rules: Sequence[Rule]

    async def items(self, *, with_done: bool = False) -> tuple[InboxItem, ...]:
        """What is not dealt with, newest first; new activity brings an item back.

        Raises:
            StorageError: A file cannot be read.
        """
        now, marks = self.engine.clock(), await self.state.marks()
        found = [*await self._runs(now, {} if with_done else marks), *await self._states(now)]
        left = [item for item in found if with_done or _is_open(item, marks.get(item.key), now)]
        return tuple(sorted(left, key=lambda item: item.at, reverse=True))

    async def _runs(self, now: datetime, marks: Mapping[str, Mark]) -> list[InboxItem]:
        cache, ahead = self.engine.cache, await self.engine.cache.run_clock_ahead()
        runs = await cache.runs(RunFilter(statuses=("failed",), since=now + ahead - LOOK_BACK), MOST_RUNS)
        labelled = sorted(runs, key=lambda run: run.repository.label)
        items = []
        for label, group in groupby(labelled, key=lambda run: run.repository.label):
            key = f"failed:{label}"
            item = _failed(key, label, [run for run in group if _is_news(run, ahead, marks.get(key))], ahead)
            items += [item] if item is not None else []
        for stuck in await cache.following.stuck_runs():
            took = span((stuck.last_seen_at - stuck.active_since).total_seconds())
            title = f"Run stuck in {stuck.repository}: {stuck.status} for {took}"
            items.append(_item(f"stuck:{stuck.run_id}", "stuck", title, stuck.active_since - ahead))
        return items

    async def _states(self, now: datetime) -> list[InboxItem]:
        engine, notify = self.engine, self.engine.settings.notify
        words, health_s = engine.settings.console.health_ok, engine.profile.poll.health_s
        reader = IncidentReader(engine.cache, words, health_s, timedelta(seconds=notify.hold_s))
        items = [
            _item(f"host:{one.platform}", "host", f"Code host {one.platform} is {one.word}", one.start)
            for one in await reader.read(now)
            if not one.is_over
        ]
        for action in await engine.ledger.unresolved():
            title = f"Unknown outcome: {action.kind} {action.subject}".rstrip()
            cure = f"runwarden actions resolve {action.action_id}"
            items.append(_item(f"action:{action.action_id}", "unknown", title, action.created_at, cure))
        waiting = [_approval(each) for each in await self.state.open_decisions() if each.outcome == "waiting"]
        return [*items, *waiting, *await self._automations(now)]

    async def _automations(self, now: datetime) -> list[InboxItem]:
        items, states = [], await self.state.rule_states()
        for rule in self.rules:
            held = states.get(rule.name)
            if held is not None and held.paused and rule.is_on:
                last = next(iter(await self.state.journal(rule.name, limit=1)), None)
                at = held.since if last is None else last.decided_at
                cure = f"runwarden automations resume '{rule.name}'"
                items.append(_item(f"paused:{rule.name}", "paused", f"{rule.name} is paused: {held.paused}", at, cure))
        if any(rule.is_on for rule in self.rules):
            until = await self.state.lease_until(LEASE)
            if until is None or until < now - SILENT_AFTER:
                title = "Automations are configured, and no bot is at work"
                items.append(_item("bot", "bot", title, until or now, "runwarden watch"))
        return items


def _failed(key: str, label: str, runs: Sequence[Run], ahead: timedelta) -> InboxItem | None:
    if not runs:
        return None
    newest = max(runs, key=lambda run: _ended(run, ahead))
    title = f"{len(runs)} runs failed in {label}" if len(runs) > 1 else f"A run failed in {label}"
    cure = f"runwarden runs show {newest.run_id}"
    return replace(_item(key, "failed", title, _ended(newest, ahead), cure), count=len(runs))


def _approval(decision: Decision) -> InboxItem:
    cure = f"runwarden automations approve {decision.decision_id}"
    title = f"{decision.rule} waits for approval"
    return _item(f"approval:{decision.decision_id}", "approval", title, decision.decided_at, cure)


def _item(key: str, kind: Kind, title: str, at: datetime, cure: str = "") -> InboxItem:
    return InboxItem(key, kind, safe_text(title, limit=_LONGEST), at, cure=safe_text(cure, limit=_LONGEST))


def _is_news(run: Run, ahead: timedelta, mark: Mark | None) -> bool:
    return mark is None or mark.done_until is None or _ended(run, ahead) > mark.done_until


def _ended(run: Run, ahead: timedelta) -> datetime:
    # A run without any readable time is old: it cannot come back as news again and again.
    at = run.updated_at or run.created_at
    return datetime.fromtimestamp(0, UTC) if at is None else at - ahead


def _is_open(item: InboxItem, mark: Mark | None, now: datetime) -> bool:
    if mark is None:
        return True
    if mark.is_muted or (mark.snoozed_until is not None and mark.snoozed_until > now):
        return False
    return mark.done_until is None or item.at > mark.done_until
