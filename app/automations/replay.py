"""Replays rules over the cached history: the ordinary runner, with temporary state and without effects."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from heapq import merge
from itertools import chain, groupby, repeat, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.automations.acting import NoEffects
from app.automations.fire_times import upcoming
from app.automations.occurrences import Observer, Seen, occurrences
from app.automations.rule import OnHealth, OnInterval, OnRun, OnSchedule, OnStuck, OnUnknownAction, Rule, lasts
from app.automations.runner import Runner
from app.engine.engine import Engine
from app.engine.times import local_moment
from app.health.facts import Incident, incidents
from app.health.incidents import WHOLE, IncidentReader
from storage.database import make_fast
from storage.records import HealthSpan
from storage.records.action import UnknownSpan
from storage.records.decision import OPEN_OUTCOMES, Decision, RuleState
from storage.records.following import PastStuck, StatusChange, Watermark
from storage.records.results import RunTurns
from storage.state import State
from storage.values import EPOCH

WORDS: Final[Mapping[str, str]] = {"waiting": "would wait for approval"}
SHOWN: Final = 20
"""How many of each rule's newest decisions are listed."""
MAX_CHANGES: Final = 200_000
"""How many of the newest changes of status are replayed."""
MAX_RUNS: Final = 1_000
"""How many runs' results are fetched from the service."""


class Replayed(Struct, frozen=True):
    """The result of one rule's replay."""

    counts: Mapping[str, int]
    newest: tuple[Decision, ...]
    held_since: datetime | None
    """Since when the cache has everything that could have triggered the rule; None if unknown."""


async def replay(
    engine: Engine,
    rules: Sequence[Rule],
    since: datetime,
    now: datetime,
    reached: Callable[[datetime], None] = lambda _: None,
) -> dict[str, Replayed]:
    """Each rule's hypothetical decisions by name.

    The runs that a rule would have started, and their consequences, are left out. `reached` is called with each moment
    once it is replayed.
    """
    results = dict[str, RunTurns]()

    async def turns_of(run_id: str) -> RunTurns:
        if run_id not in results:
            turns = None
            if len(results) < MAX_RUNS:
                turns = await engine.extension.turns_now(run_id)
            results[run_id] = turns or RunTurns(run_id, ())
        return results[run_id]

    reached_at = since
    playbacks = await _read_playbacks(engine, rules, since, now, turns_of)
    runners = list[Runner]()
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            for number, past in enumerate(playbacks):
                state = await stack.enter_async_context(
                    await State.open(Path(folder) / f"{number}", clock=lambda: reached_at)
                )
                await state.writer.run(make_fast)
                runners.append(Runner((past.rule,), state, NoEffects(), past, past.count))
                await runners[-1].decide_and_act()
            for at, number in merge(*(zip(past.moments(), repeat(n)) for n, past in enumerate(playbacks))):
                reached_at = at
                await runners[number].decide_and_act()
                reached(at)
    # If the results of some runs are missing, it is unknown since when the history is complete.
    is_unknown = any(not result.turns for result in results.values())
    replayed = dict[str, Replayed]()
    for past in playbacks:
        on = past.rule.on
        held_since = None if is_unknown and isinstance(on, OnRun) and on.needs_results else past.held_since()
        replayed[past.rule.name] = Replayed(+past.counts, tuple(reversed(past.newest.values())), held_since)
    return replayed


async def _read_playbacks(
    engine: Engine,
    rules: Sequence[Rule],
    since: datetime,
    now: datetime,
    turns_of: Callable[[str], Awaitable[RunTurns]],
) -> list["Playback"]:
    """The past of the period as each of the rules would have seen it."""
    cache = engine.cache
    kinds = {type(rule.on) for rule in rules}
    ahead = (await cache.budget()).clock_ahead
    complete_since = (await cache.coverage()).complete_since
    batch = await cache.changes(Watermark(), since=since, limit=MAX_CHANGES if OnRun in kinds else 0)
    incidents = IncidentReader.of(cache, engine.settings, engine.profile)
    playback = partial(
        Playback,
        cache,
        engine.ledger,
        incidents,
        ask_turns=turns_of,
        questions=MAX_CHANGES,
        since=since,
        until=now,
        changes=tuple(change for change in batch.changes if since <= change.happened_at(ahead) <= now),
        ahead=ahead,
        stuck=await cache.past_stuck(since) if OnStuck in kinds else (),
        spans=await incidents.spans(now - WHOLE) if OnHealth in kinds else (),
        unknown=await engine.ledger.unknown_spans() if OnUnknownAction in kinds else (),
        runs_since=None if complete_since is None else complete_since - ahead,
    )
    return [playback(rule=rule) for rule in rules]


@dataclass(slots=True, kw_only=True)
class Playback(Observer):
    """Shows the runner the past of one period, as one rule would have seen it."""

    rule: Rule
    since: datetime
    until: datetime
    changes: tuple[StatusChange, ...]
    ahead: timedelta
    stuck: Sequence[PastStuck]
    spans: Sequence[HealthSpan]
    """Spans of the code hosts' health, sorted by platform."""
    unknown: Sequence[UnknownSpan]
    runs_since: datetime | None
    """The time since when the cache contains every run, or None if that is unknown."""
    counts: Counter[str] = field(default_factory=Counter)
    newest: dict[int, Decision] = field(default_factory=dict)
    _open: dict[int, str] = field(default_factory=dict)

    def count(self, decision: Decision) -> None:
        number, outcome = decision.decision_id, decision.outcome
        if self._open.get(number) == "waiting":
            return  # It expired, because nothing approves it in a replay.
        if number in self._open:
            self.counts[self._open.pop(number)] -= 1
        self.counts[outcome] += 1
        if outcome in OPEN_OUTCOMES:
            self._open[number] = outcome
        self.newest[number] = decision
        if len(self.newest) > SHOWN:
            del self.newest[next(iter(self.newest))]

    async def observe(self, now: datetime) -> Seen:
        """The changes since the watermark, which counts them, and the rule's other possible triggers at that time."""
        begin = end = self.watermark.transition
        while end < len(self.changes) and self.changes[end].happened_at(self.ahead) <= now:
            end += 1
        seen = Seen(now, self.changes[begin:end], self.ahead, watermark=Watermark(end))
        match self.rule.on:
            case OnStuck():
                spells = (spell for spell in self.stuck if spell.at <= now <= spell.until)
                return replace(seen, stuck=tuple(replace(spell.run, last_seen_at=now + self.ahead) for spell in spells))
            case OnHealth():
                return replace(seen, incidents=tuple(self._past_incidents(now)))
            case OnUnknownAction():
                spans = (
                    spell for spell in self.unknown if spell.since <= now and (spell.until is None or now < spell.until)
                )
                return replace(seen, unknown=tuple(spell.action for spell in spans))
        return seen

    async def news_from(self, rule: Rule, state: RuleState) -> datetime:  # noqa: ARG002
        """Everything in the period is news."""
        return EPOCH

    def held_since(self) -> datetime | None:
        """Since when everything that could have triggered the rule is known, or None if that is unknown."""
        match self.rule.on:
            case OnRun() | OnStuck():
                begin = self.runs_since
            case OnHealth():
                begin = min((span.start for span in self.spans), default=None)
            case _:
                begin = self.since
        if begin is None:
            return None
        return min(max(self.since, begin), self.until)

    def moments(self) -> Iterator[datetime]:
        """All times at which something could have triggered the rule, in order, then the end of the period."""
        moments: Iterable[datetime] = ()
        rule = self.rule
        match rule.on:
            case OnSchedule() | OnInterval():
                moments = takewhile(lambda at: at < self.until, upcoming(rule, self.since, self.since))
            case OnRun():
                seen = Seen(self.until, self.changes, self.ahead)
                moments = (occurrence.at for occurrence in occurrences(rule, seen, self.since))
            case OnStuck():
                moments = (spell.at for spell in self.stuck)
            case OnHealth(lasting=lasting):
                spans = (
                    (span.start, span.start + lasting, span.start + self.incidents.hold, span.end)
                    for span in self.spans
                )
                begins = {incident.start for incident in self._past_incidents(self.until)}
                moments = (*chain.from_iterable(spans), *(begin + lasting for begin in begins))
            case OnUnknownAction(older=older):
                moments = (max(spell.since, spell.action.created_at + older) for spell in self.unknown)
        times = {at for at in moments if self.since < at < self.until}
        if rule.quiet is not None and lasts(rule):
            days = range((self.until - self.since).days + 2)
            nights = ((self.since + timedelta(days=n)).astimezone().date() for n in days)
            ends = (local_moment(night, rule.quiet.end) + timedelta(seconds=1) for night in nights)
            times |= {at for at in ends if self.since < at < self.until}
        yield from sorted(times)
        yield self.until

    def _past_incidents(self, now: datetime) -> Iterator[Incident]:
        past = (replace(span, end=min(span.end, now)) for span in self.spans if span.start <= now)
        for _, own in groupby(past, lambda span: span.platform):
            yield from incidents(tuple(own), self.incidents.healthy_words, self.incidents.hold)
