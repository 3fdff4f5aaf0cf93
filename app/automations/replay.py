"""Replay: what rules would have done over the cached history, by the runner itself on a state of its own."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from app.automations.acting import ActingResult
from app.automations.observing import RunFacts
from app.automations.replay_history import Playback, ReplayHistory
from app.automations.runner import Runner
from app.engine import Engine
from app.rules.rule import Rule
from storage.records.decision import OPEN_OUTCOMES, Decision
from storage.state import State

WORDS: Final[Mapping[str, str]] = {"waiting": "would wait for approval"}
"""The replay's words for some outcomes."""
SHOWN: Final = 20
"""The newest decisions of each rule that are listed."""


@dataclass(slots=True)
class ReplayClock:
    """The time of the replay."""

    now: datetime

    def __call__(self) -> datetime:
        """The moment that the replay has reached."""
        return self.now


class NothingDone:
    """Responses that succeed at once and do nothing."""

    async def carry_out(self, _rule: Rule, _decision: Decision) -> ActingResult:
        """Report success."""
        return ActingResult("done")

    async def request(self, rule: Rule, decision: Decision) -> None:
        """Nothing is shown for approval."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of one rule's replay."""

    counts: Mapping[str, int]
    """Numbers by outcome."""
    newest: tuple[Decision, ...]
    held_since: datetime | None
    """From when on the cache holds everything that could have triggered it. None: not known."""


async def replay(
    engine: Engine,
    rules: Sequence[Rule],
    since: datetime,
    now: datetime,
    reached: Callable[[datetime], None] = lambda _: None,
) -> dict[str, Replayed]:
    """What the rules would have done, by their names.

    Runs that a rule would have started, and their consequences, are not part of it. `reached` is called with each
    moment that was replayed.

    Raises:
        StorageError: Cache or ledger cannot be read.
    """
    history = await ReplayHistory.read(engine, rules, since, now)
    tallies = {rule.name: _Tally() for rule in rules}
    facts, clock = RunFacts(engine.cache, engine.ledger), ReplayClock(since)
    runners: list[Runner] = []
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            for number, rule in enumerate(rules):
                state = await stack.enter_async_context(await State.open(Path(folder) / f"{number}", clock=clock))
                await state.make_fleeting()
                playback, journal = Playback(history, rule, facts), tallies[rule.name].add
                runners.append(Runner((rule,), state, engine.cache, NothingDone(), playback, journal, clock))
                await runners[-1].look()
            for at, number in merge(*(zip(history.moments(rule), repeat(n)) for n, rule in enumerate(rules))):
                clock.now = at
                await runners[number].look()
                reached(at)
    return {rule.name: tallies[rule.name].so_far(history.held_since(rule)) for rule in rules}


@dataclass(slots=True)
class _Tally:
    """Counts a rule's decisions, without keeping them all."""

    _counts: Counter[str] = field(default_factory=Counter)
    _open: dict[int, str] = field(default_factory=dict)
    """Outcomes that may change."""
    _newest: dict[int, Decision] = field(default_factory=dict)

    def add(self, decision: Decision) -> None:
        number, outcome = decision.decision_id, decision.outcome
        if self._open.get(number) == "waiting":
            return  # The approval expired, since nothing in a replay approves it.
        if number in self._open:
            self._counts[self._open.pop(number)] -= 1
        self._counts[outcome] += 1
        if outcome in OPEN_OUTCOMES:
            self._open[number] = outcome
        self._newest[number] = decision
        if len(self._newest) > SHOWN:
            del self._newest[next(iter(self._newest))]

    def so_far(self, held_since: datetime | None) -> Replayed:
        return Replayed(+self._counts, tuple(reversed(self._newest.values())), held_since)
