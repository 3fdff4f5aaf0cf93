"""Replay: what rules would have done over the cached history, by the runner itself on a state of its own."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, repeat, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.automations.occurrences import EPOCH, RunFacts, Seen, occurrences, upcoming
from app.automations.policy import lasts
from app.automations.rule import OnHealth, OnInterval, OnRun, OnSchedule, OnStuck, OnUnknownAction, Rule
from app.automations.runner import Runner
from app.engine.engine import Engine
from app.health.facts import Incident, incidents
from app.notify.incidents import LONGEST_GAP, WHOLE
from storage.records import HealthSpan
from storage.records.action import UnknownSpan
from storage.records.decision import OPEN_OUTCOMES, Decision, RuleState
from storage.records.following import PastStuck, StatusChange, Watermark
from storage.records.results import RunTurns
from storage.state import State

WORDS: Final[Mapping[str, str]] = {"waiting": "would wait for approval"}
"""The replay's words for some outcomes."""
SHOWN: Final = 20
"""The newest decisions of each rule that are listed."""


MOST_CHANGES: Final = 200_000
"""Changes of status that are looked at, the newest."""
MOST_RUNS: Final = 1_000
"""Runs that the service is asked about."""
_AFTERWARDS: Final = timedelta(seconds=1)
"""How long after the end of a quiet period its rule is looked at."""


class NothingDone:
    """Responses that succeed at once and do nothing."""

    async def carry_out(self, _rule: Rule, _decision: Decision) -> ActingResult:
        """Report success."""
        return ActingResult("done")

    async def request(self, rule: Rule, decision: Decision) -> None:
        """Nothing is shown for approval."""


class Replayed(Struct, frozen=True):
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
    """
    history = await ReplayHistory.read(engine, rules, since, now)
    tallies = {rule.name: _Tally() for rule in rules}
    told = dict[str, RunTurns]()

    async def tell(run_id: str) -> RunTurns:
        if run_id not in told:
            found = await engine.extension.turns_now(run_id) if len(told) < MOST_RUNS else None
            told[run_id] = found or RunTurns(run_id, ())
        return told[run_id]

    facts, reached_at = RunFacts(engine.cache, engine.ledger, tell_turns=tell, questions=MOST_CHANGES), since
    runners: list[Runner] = []

    def clock() -> datetime:
        return reached_at

    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            for number, rule in enumerate(rules):
                state = await stack.enter_async_context(await State.open(Path(folder) / f"{number}", clock=clock))
                await state.make_fleeting()
                playback = Playback(history, rule, facts)
                journal = tallies[rule.name].add
                runners.append(Runner((rule,), state, engine.cache, NothingDone(), playback, journal, clock))
                await runners[-1].look()
            for at, number in merge(*(zip(history.moments(rule), repeat(n)) for n, rule in enumerate(rules))):
                reached_at = at
                await runners[number].look()
                reached(at)
    # What a run did is part of it; where the service did not tell it of all runs, nothing is claimed.
    is_unknown = any(not each.turns for each in told.values())
    unknown = {rule.name for rule in rules if is_unknown and isinstance(rule.on, OnRun) and rule.on.needs_results}
    begins = {rule.name: None if rule.name in unknown else history.held_since(rule) for rule in rules}
    return {rule.name: tallies[rule.name].so_far(begins[rule.name]) for rule in rules}


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


class ReplayHistory(Struct, frozen=True):
    """What the cache and the ledger hold of a period, as far as the rules of the replay need it."""

    since: datetime
    until: datetime
    changes: Sequence[StatusChange] = ()
    ahead: timedelta = timedelta(0)
    """How far the times of runs are ahead of our clock."""
    stuck: Sequence[PastStuck] = ()
    spans: Sequence[HealthSpan] = ()
    """Spans of the code hosts' health, sorted by platform."""
    unknown: Sequence[UnknownSpan] = ()
    healthy_words: frozenset[str] = frozenset()
    hold: timedelta = timedelta(0)
    """How long a host must be well before an incident is over."""
    runs_since: datetime | None = None
    """From when on the cache holds every run. None: not known."""

    @classmethod
    async def read(cls, engine: Engine, rules: Sequence[Rule], since: datetime, until: datetime) -> "ReplayHistory":
        """Read what these rules need."""
        cache, kinds = engine.cache, {type(rule.on) for rule in rules}
        ahead = await cache.run_clock_ahead()
        complete_since = (await cache.coverage()).complete_since
        found = await cache.following.changes(Watermark(), since=since, limit=MOST_CHANGES if OnRun in kinds else 0)
        gap = max(LONGEST_GAP, timedelta(seconds=3 * engine.profile.poll.health_s))
        return cls(
            since=since,
            until=until,
            changes=[change for change in found.changes if since <= change.happened(ahead) <= until],
            ahead=ahead,
            stuck=await cache.following.past_stuck(since) if OnStuck in kinds else (),
            spans=await cache.health_spans(until - WHOLE, longest_gap=gap) if OnHealth in kinds else (),
            unknown=await engine.ledger.unknown_spans() if OnUnknownAction in kinds else (),
            healthy_words=frozenset(engine.settings.console.health_ok),
            hold=timedelta(seconds=engine.settings.notify.hold_s),
            runs_since=None if complete_since is None else complete_since - ahead,
        )

    def held_since(self, rule: Rule) -> datetime | None:
        """From when on everything that could have triggered this rule is held. None: not known."""
        match rule.on:
            case OnRun() | OnStuck():
                begin = self.runs_since
            case OnHealth():
                begin = min((span.start for span in self.spans), default=None)
            case _:
                begin = self.since
        return None if begin is None else min(max(self.since, begin), self.until)

    def seen(self, rule: Rule, now: datetime) -> Seen:
        """The possible triggers of the rule at that time, except changes of status."""
        seen = Seen(now, ahead=self.ahead)
        match rule.on:
            case OnStuck():
                there = (each for each in self.stuck if each.at <= now <= each.until)
                return replace(seen, stuck=tuple(replace(each.run, last_seen_at=now + self.ahead) for each in there))
            case OnHealth():
                return replace(seen, incidents=tuple(self._incidents(now)))
            case OnUnknownAction():
                spans = (
                    each for each in self.unknown if each.since <= now and (each.until is None or now < each.until)
                )
                return replace(seen, unknown=tuple(each.action for each in spans))
        return seen

    def moments(self, rule: Rule) -> Iterator[datetime]:
        """The times at which something could have triggered the rule, in order, and the end of the period."""
        times = {at for at in self._times(rule) if self.since < at < self.until}
        if rule.quiet is not None and lasts(rule):
            days = range((self.until - self.since).days + 2)
            nights = (datetime.combine((self.since + timedelta(days=n)).astimezone(), rule.quiet.end) for n in days)
            times |= {at for night in nights if self.since < (at := night.astimezone(UTC) + _AFTERWARDS) < self.until}
        yield from sorted(times)
        yield self.until

    def _times(self, rule: Rule) -> Iterator[datetime]:
        match rule.on:
            case OnSchedule() | OnInterval():
                yield from takewhile(lambda at: at < self.until, upcoming(rule, self.since, self.since))
            case OnRun():
                seen = Seen(self.until, tuple(self.changes), self.ahead)
                yield from (each.at for each in occurrences(rule, seen, self.since))
            case OnStuck():
                yield from (each.at for each in self.stuck)
            case OnHealth(lasting=lasting):
                for span in self.spans:
                    yield from (span.start, span.start + lasting, span.start + self.hold, span.end)
                yield from (begin + lasting for begin in {each.start for each in self._incidents(self.until)})
            case OnUnknownAction(older=older):
                yield from (max(each.since, each.action.created_at + older) for each in self.unknown)

    def _incidents(self, now: datetime) -> Iterator[Incident]:
        past = (replace(span, end=min(span.end, now)) for span in self.spans if span.start <= now)
        for _, own in groupby(past, lambda span: span.platform):
            yield from incidents(tuple(own), self.healthy_words, self.hold)


@dataclass(slots=True)
class Playback:
    """Shows the runner, moment by moment, what one rule would have seen."""

    history: ReplayHistory
    rule: Rule
    run_facts: RunFacts
    """Facts of runs beyond their rows."""
    _shown: int = 0

    async def observe(self, now: datetime) -> Seen:
        """The changes since the last observation that `passed` confirmed, and the state at that time."""
        changes, until = self.history.changes, self._shown
        while until < len(changes) and changes[until].happened(self.history.ahead) <= now:
            until += 1
        seen = self.history.seen(self.rule, now)
        return replace(seen, changes=tuple(changes[self._shown : until]), watermark=Watermark(until))

    async def news_from(self, _rule: Rule, _state: RuleState) -> datetime:
        """All of the period is news."""
        return EPOCH

    def passed(self, seen: Seen) -> None:
        """Remember that everything in `seen` was decided on."""
        self._shown = seen.watermark.transition
