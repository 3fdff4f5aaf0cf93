"""The figures of the bots, read from the files at each request, so that none is stale."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from app.api.budget import Priority
from app.engine import Engine
from storage.records import LinkState, PlatformHealth, RunFilter
from storage.records.following import StatusChange
from storage.records.service_traits import Wait
from storage.state import AT_WORK, OWN, State

BUCKETS_S: Final = (60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0)
"""The upper ends of the buckets that the durations of runs are counted in."""


@dataclass(slots=True)
class RunCounts:
    """The changes of runs that this process saw."""

    transitions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Their number by the status before and after the change; a run that is seen first was `new`."""
    ended: Counter[tuple[str, float]] = field(default_factory=Counter)
    """Runs that ended, by status and the bucket that holds how long they took."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Their total duration, by status."""

    def add(self, changes: Sequence[StatusChange]) -> None:
        """Count these changes of status."""
        for change in changes:
            self.transitions[change.old or "new", change.new] += 1
            if change.is_final:
                took_s = max(0.0, (change.at - change.active_since).total_seconds())
                self.ended[change.new, next((end for end in BUCKETS_S if took_s <= end), math.inf)] += 1
                self.seconds[change.new] += took_s


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One profile's figures."""

    profile: str
    now: datetime
    runs: Mapping[str, int]
    """By status."""
    stuck: int
    hosts: tuple[PlatformHealth, ...]
    links: tuple[LinkState, ...]
    unknown: int
    """Actions whose outcome is unknown."""
    decisions: Mapping[tuple[str, str], int]
    """By rule and outcome."""
    paused: Mapping[str, bool]
    """By rule."""
    requests: Mapping[str, int]
    """Sent by this process, by priority."""
    is_working: bool
    ledger: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Actions by kind and state."""
    deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By route and outcome."""
    told: int = 0
    """Problems that were told and are not over."""
    wait: Wait | None = None
    """Why the request budget lets no poll through now."""
    rate: float | None = None
    """Requests per second that polls may send; None: no limit is known."""
    counts: RunCounts = field(default_factory=RunCounts)
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    """The heartbeats of this process, by outcome."""


async def snapshot(engine: Engine, state: State, counts: RunCounts, *, is_working: bool) -> Snapshot:
    """The figures now.

    Raises:
        StorageError: A file cannot be read.
    """
    states = await state.rule_states()
    return Snapshot(
        profile=engine.profile.name,
        now=engine.clock(),
        runs=await engine.cache.status_counts(RunFilter()),
        stuck=len(await engine.cache.stuck()),
        hosts=await engine.cache.health(),
        links=await engine.cache.links(),
        unknown=len(await engine.ledger.unresolved()),
        decisions=await state.outcomes(),
        paused={name: each.paused is not None for name, each in states.items() if name not in {OWN, AT_WORK}},
        requests={priority.name.lower(): engine.client.budget.sent[priority] for priority in Priority},
        is_working=is_working,
        ledger=await engine.ledger.state_counts(),
        deliveries=await state.delivery_counts(),
        told=len({told.group for told in await state.told()}),
        wait=await engine.client.budget.wait(),
        rate=await engine.client.budget.poll_rate(),
        counts=counts,
    )
