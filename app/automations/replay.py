"""Replay: what rules would have done over the cached history, found by the runner itself on a state of its own."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.automations.acting import Result
from app.automations.observing import RunFacts
from app.automations.occurrences import Seen, occurrences, upcoming
from app.automations.runner import Runner
from app.engine import Engine
from app.rules.rule import OnInterval, OnRun, OnSchedule, Rule
from storage.records.decision import Decision
from storage.records.following import StatusChange, Watermark
from storage.state import State

MOST: Final = 200_000
"""Changes of status that are looked at, the newest."""
SHOWN: Final = 20
"""Decisions of each rule that are told one by one, the newest."""


@dataclass(slots=True)
class Clock:
    """The time of the replay."""

    now: datetime

    def __call__(self) -> datetime:
        """Where the replay is."""
        return self.now


@dataclass(slots=True)
class Playback:
    """Shows the runner what had happened since it last looked."""

    changes: Sequence[StatusChange]
    ahead: timedelta
    run_facts: RunFacts
    _shown: int = 0

    async def observe(self, now: datetime) -> Seen:
        """What had happened by then."""
        until = self._shown
        while until < len(self.changes) and self.changes[until].at - self.ahead <= now:
            until += 1
        return Seen(now, tuple(self.changes[self._shown : until]), self.ahead, watermark=Watermark(until))

    def passed(self, seen: Seen) -> None:
        """Go on after it."""
        self._shown = seen.watermark.transition


class NothingDone:
    """Stands for what would act: everything succeeds at once, and nothing is done."""

    async def carry_out(self, rule: Rule, decision: Decision) -> Result:  # noqa: ARG002 — the runner's call
        """It would have been done."""
        return Result("done")

    async def request(self, rule: Rule, decision: Decision) -> None:
        """Nothing is shown for approval."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one rule would have done."""

    counts: Mapping[str, int]
    """How often, by outcome."""
    newest: tuple[Decision, ...]


async def replay(engine: Engine, rules: Sequence[Rule], since: datetime, now: datetime) -> dict[str, Replayed | None]:
    """What the rules would have done, by their names; None for what cannot be replayed.

    Runs that a rule would have started, and what they would have led to, are not part of it.

    Raises:
        StorageError: The cache cannot be read.
    """
    ahead = await engine.cache.run_clock_ahead()
    found = await engine.cache.following.changes(Watermark(), since=since + ahead, limit=MOST)
    changes = [change for change in found.changes if since <= change.at - ahead <= now]
    playable = [rule for rule in rules if isinstance(rule.on, OnRun | OnSchedule | OnInterval)]
    told, facts = _Told(), RunFacts(engine.cache, engine.ledger)
    with TemporaryDirectory() as folder:
        async with await State.open(Path(folder) / "state.sqlite3", clock=(clock := Clock(since))) as state:
            # A state of its own, for a moment: it need not outlive a power cut.
            await state.writer.run(lambda connection: connection.execute("PRAGMA synchronous = OFF").fetchall())
            runner = Runner(
                tuple(playable), state, engine.cache, NothingDone(), Playback(changes, ahead, facts), told.add, clock
            )
            await runner.look()
            for at in _moments(playable, Seen(now, tuple(changes), ahead), since, now):
                clock.now = at
                await runner.look()
    return {rule.name: told.of(rule.name) if rule in playable else None for rule in rules}


@dataclass(slots=True)
class _Told:
    decisions: dict[int, Decision] = field(default_factory=dict)

    def add(self, decision: Decision) -> None:
        self.decisions[decision.decision_id] = decision

    def of(self, rule: str) -> Replayed:
        mine = [decision for decision in self.decisions.values() if decision.rule == rule]
        newest = sorted(mine, key=lambda decision: decision.decided_at, reverse=True)[:SHOWN]
        return Replayed(Counter(each.outcome for each in mine), tuple(newest))


def _moments(rules: Sequence[Rule], seen: Seen, since: datetime, now: datetime) -> Iterator[datetime]:
    """When anything could have set off a rule, in order."""
    times: set[datetime] = set()
    for rule in rules:
        times |= {each.at for each in occurrences(rule, seen, since)}
        times |= set(takewhile(lambda at: at <= now, upcoming(rule, since, since)))
    yield from sorted(times)
