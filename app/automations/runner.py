"""The runner: observes, lets the policy decide, and carries out the decisions."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from app.api.errors import ApiError
from app.api.requests import WriteRequest
from app.automations.acting import ActingResult, CannotActError, result_of, shown
from app.automations.occurrences import SKEW, RunFacts, Seen, changed_since, due, is_labelled, occurrences, upcoming
from app.automations.policy import decide, is_quiet, lasts
from app.automations.proposals import PROPOSALS
from app.automations.rule import (
    DoCommand,
    DoNotify,
    OnInterval,
    OnRun,
    OnSchedule,
    OnStuck,
    Rule,
    fingerprint,
    mentions,
)
from app.engine.text import plural
from app.engine.times import rfc3339
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.records.decision import WHEN_ENDED, Decision, Occurrence, Outcome, RuleHistory, RuleState, Verdict
from storage.state import State

log = logging.getLogger(__name__)

RETRY_AFTER: Final = timedelta(seconds=30)
"""How long to wait before an action that certainly was not sent is tried again."""
RESOLVED_WITHIN: Final = timedelta(days=31)
"""How long a decision of unknown outcome is looked up in the ledger."""
LONGEST_WAIT: Final = timedelta(seconds=10)
"""How often queued, waiting and failed decisions are checked."""


class Observing(Protocol):
    """Shows a runner what its rules may act on: now, or as it was."""

    run_facts: RunFacts

    async def observe(self, now: datetime) -> Seen:
        """The possible triggers of rules at this time."""

    async def news_from(self, rule: Rule, state: RuleState, /) -> datetime | None:
        """The time from which on what the rule finds is news; None: it cannot look yet."""

    def passed(self, seen: Seen) -> None:
        """Begin the next observation after these changes."""


Journal = Callable[[Decision], None]


def is_timed(rule: Rule) -> bool:
    """Whether the clock sets it off."""
    return isinstance(rule.on, OnSchedule | OnInterval)


class Responses(Protocol):
    """Carries out decisions."""

    async def carry_out(self, rule: Rule, decision: Decision) -> ActingResult:
        """Carry out the rule's action."""

    async def request(self, rule: Rule, decision: Decision) -> WriteRequest | None:
        """Return the rule's request."""


@dataclass(slots=True)
class _Attempt:
    """A decision that this process carries out, or will try again."""

    since: datetime
    """The time from which `catch_up` counts."""
    tried_at: datetime
    result: ActingResult | None = None
    """None: there is none yet, or the action is to be repeated. Otherwise it could not be stored yet."""


class _Program(NamedTuple):
    """A program that a rule runs."""

    decision_id: int
    task: asyncio.Task[None]


@dataclass(slots=True)
class OpenWork:
    """What this process carries out; a runner with other rules goes on with it."""

    attempts: dict[int, _Attempt] = field(default_factory=dict)
    """By decision: those that this process carries out, or will try again."""
    programs: dict[str, _Program] = field(default_factory=dict)
    """By rule: the program that runs beside the looks; a rule has one at a time."""


@dataclass(slots=True)
class Runner:
    """One profile's rules at work, in one process at a time."""

    rules: tuple[Rule, ...]
    state: State
    cache: Cache
    responses: Responses
    observer: Observing
    journal: Journal
    clock: Callable[[], datetime]
    _states: dict[str, RuleState] = field(default_factory=dict)
    work: OpenWork = field(default_factory=OpenWork)
    ended: Callable[[], None] = lambda: None
    """Called when a program has ended: the rule's next one may wait for it."""
    _next: dict[str, datetime] = field(default_factory=dict)
    """By rule: the next time that a schedule or an interval reaches."""
    _is_behind: bool = False
    """Whether the last look could not ask the service about all runs: it sees them again."""
    _looked_at: datetime | None = None
    _found: dict[str, frozenset[str]] = field(default_factory=dict)
    """By rule: what could have set it off at the last look, by its identity."""
    _ledger_version: int | None = None
    """The ledger's state that was read last."""
    _has_unknown: bool = True
    _has_retired: bool = False
    """Whether the state knows which rules are gone."""

    async def look(self, *, waits: bool = True) -> None:
        """Decide on everything that happened, and act; decisions of an earlier process are finished first.

        Unless it `waits` for them, programs that rules run go on beside later looks.
        """
        for name in tuple(self.work.programs):
            self._running(name)
        now = self.clock()
        if self._looked_at is not None and now < self._looked_at:
            self._next.clear()  # The clock was set back.
        self._looked_at = now
        await self.begin()
        await self._learn(now)
        # Before the observation: a rule's first look sees all that the service answered until then.
        states = self._states
        news_from = {rule.name: await self.observer.news_from(rule, states[rule.name]) for rule in self._enabled()}
        seen = await self.observer.observe(now)
        await self._carry_on(now, seen)
        self._is_behind = False
        for rule in self._enabled():
            await self._look(rule, seen, news_from[rule.name])
        # A rule that has not looked yet sees these changes again, and knows them as history.
        is_new = any(isinstance(rule.on, OnRun) and news_from[rule.name] is None for rule in self._enabled())
        if not is_new and not self._is_behind:
            self.observer.passed(seen)
        if waits:
            await self._finish(seen)

    async def begin(self) -> None:
        """Enter rules that are new or edited: what is older than that is history to them."""
        if not self._has_retired:
            await self.state.retire_rules(tuple(rule.name for rule in self.rules))
            self._has_retired = True
        await self._begin(self.clock())

    async def _finish(self, seen: Seen) -> None:
        """Wait until no program runs, and none waits for another of its rule."""
        while self.work.programs:
            await self._program_ends()
            await self._carry_on(self.clock(), seen)

    async def _program_ends(self) -> None:
        name, program = next(iter(self.work.programs.items()))
        # If this wait is cancelled, the program goes on: `stop` waits for it.
        await asyncio.wait({program.task})
        self.work.programs.pop(name).task.result()

    def _running(self, name: str) -> _Program | None:
        """Return the program that a rule runs at present; forget one that has ended, so that nothing waits for it."""
        program = self.work.programs.get(name)
        if program is None or not program.task.done():
            return program
        del self.work.programs[name]
        program.task.result()
        return None

    async def stop(self) -> None:
        """Wait for the programs that run: each has its own deadline."""
        await asyncio.gather(*(each.task for each in self.work.programs.values()), return_exceptions=True)

    async def set_off(self, rule: Rule, occurrence: Occurrence) -> None:
        """Decide on a manual trigger, and act."""
        await self._begin(self.clock())
        await self._decide(rule, occurrence)
        while self.work.programs:
            await self._program_ends()

    async def next_look(self) -> datetime:
        """The time by which to look again, even if no event comes."""
        now = self.clock()
        latest = now + LONGEST_WAIT
        return min([latest, *(self._next.get(rule.name, now) for rule in self._enabled() if is_timed(rule))])

    def _enabled(self) -> Iterable[Rule]:
        return (rule for rule in self.rules if rule.is_on and rule.name in self._states)

    async def _begin(self, now: datetime) -> None:
        for rule in self.rules:
            state = self._states.get(rule.name)
            if state is None or state.since > now + SKEW:
                self._states[rule.name] = await self.state.begin_rule(rule.name, fingerprint(rule), now)

    async def _look(self, rule: Rule, seen: Seen, news_from: datetime | None) -> None:
        state = self._states[rule.name]
        # Anything older than the rule is history, whatever the hour.
        if lasts(rule) and is_quiet(rule, seen.now) and not state.is_new:
            return
        if is_timed(rule):
            await self._look_at_clock(rule, seen.now)
        if news_from is None:
            return
        found = {each.identity: each for each in occurrences(rule, seen, state.since, news_from)}
        # Only what is new since the last look: what goes on, such as a stuck run, is not looked up each time.
        new = tuple(identity for identity in found if identity not in self._found.get(rule.name, ()))
        free = await self.state.unclaimed(rule.name, new) if new else frozenset()
        for identity in (each for each in new if each in free):
            is_meant = True
            if not state.is_new and isinstance(rule.on, OnRun | OnStuck) and rule.on.scope.labels:
                # Labels are read only for runs that match in all else.
                labels = await self.observer.run_facts.labels(found[identity].facts["run.id"])
                is_meant = is_labelled(rule.on.scope, labels)
            if is_meant and not state.is_new and isinstance(rule.on, OnRun):
                is_late = seen.now - found[identity].at > rule.catch_up
                run_facts = self.observer.run_facts
                is_met = not rule.on.needs_results if is_late else await run_facts.meets(rule.on, found[identity])
                is_meant = is_met is True
                if is_met is None:
                    self._is_behind = True
                    del found[identity]
            if is_meant:
                await self._decide(rule, found[identity], history=state.is_new)
        if state.is_new:
            await self.state.mark_looked(rule.name, news_from)
            self._states[rule.name] = replace(state, news_from=news_from)
        self._found[rule.name] = frozenset(found)

    async def _look_at_clock(self, rule: Rule, now: datetime) -> None:
        """Decide on the times that a schedule or an interval has reached, and note the next one."""
        if now < self._next.get(rule.name, now):
            return
        since = self._states[rule.name].since
        if come := due(rule, since, await self.state.last_due(rule.name, now), now):
            # One decision catches up for all times that were missed.
            await self._decide(rule, Occurrence(f"at:{rfc3339(come[-1])}", come[-1]), len(come) - 1)
        self._next[rule.name] = next(upcoming(rule, since, now), datetime.max.replace(tzinfo=UTC))

    async def _decide(self, rule: Rule, occurrence: Occurrence, missed: int = 0, *, history: bool = False) -> None:
        now = self.clock()
        if run_id := occurrence.facts.get("run.id"):
            conversation = await self.state.conversation(run_id)
            facts = dict(occurrence.facts)
            if mentions(rule.do, "run.reason"):
                facts["run.reason"] = await self.observer.run_facts.reason(run_id)
            occurrence = replace(occurrence, conversation=conversation, facts=facts)

        program = self._running(rule.name)

        def verdict(past: RuleHistory) -> Verdict:
            if history:
                return Verdict("history", "it was so before the rule existed")
            found = decide(rule, occurrence, past, now)
            if found.outcome == "acting" and program is not None and not program.task.done():
                found = Verdict("queued", "the rule's previous program is still running")
            caught_up = f"for {missed} missed before it, too" if missed else ""
            return Verdict(found.outcome, "; ".join(filter(None, (found.reason, caught_up))))

        active_run = await self._active_run(rule, occurrence.conversation)
        decision = await self.state.decide(rule.name, occurrence, verdict, active_run=active_run)
        if decision is None or decision.outcome == "history":
            return
        self.journal(decision)
        if decision.outcome == "waiting":
            with suppress(CannotActError, ApiError):
                request = await self.responses.request(rule, decision)
                if request is not None:
                    await self.state.keep_request(decision.decision_id, shown(request))
        if decision.outcome == "acting":
            await self._act(rule, decision)

    async def _active_run(self, rule: Rule, conversation: str) -> str | None:
        """The overlapping run: a schedule's last, or the last one in the same conversation for a rule about runs."""
        if rule.overlap == "allow" or isinstance(rule.do, DoNotify | DoCommand):
            return None
        if (run_id := await self.state.last_result(rule.name, conversation)) is None:
            return None
        held = await self.cache.detail(run_id)
        return run_id if held is not None and not held.is_final and held.presence != "lost" else None

    async def _act(self, rule: Rule, decision: Decision) -> None:
        if isinstance(rule.do, DoCommand):
            self._running(rule.name)
            # No other rule waits for a program.
            task = asyncio.create_task(self._carry_out(rule, decision))
            task.add_done_callback(lambda _: self.ended())
            self.work.programs[rule.name] = _Program(decision.decision_id, task)
        else:
            await self._carry_out(rule, decision)

    async def _carry_out(self, rule: Rule, decision: Decision) -> None:
        now = self.clock()
        attempt = self.work.attempts.setdefault(decision.decision_id, _Attempt(decision.decided_at, now))
        attempt.tried_at = now
        try:
            result = await self.responses.carry_out(rule, decision)
        except StorageError as error:
            # The failure concerns this rule's write alone: the other rules continue.
            result = ActingResult("failed", str(error), may_repeat=True)
        # Storing the result may fail if the disk is full; the action is not carried out again for that.
        attempt.result = result
        await self._settle(rule, decision, attempt, result)

    async def _settle(self, rule: Rule, decision: Decision, attempt: _Attempt, result: ActingResult) -> None:
        if result.may_repeat and self.clock() - attempt.since < rule.catch_up:
            attempt.result = None
            return
        settled = await self.state.settle(
            replace(
                decision,
                outcome=result.outcome,
                reason=result.reason,
                action_id=result.action_id,
                result_id=result.result_id,
            )
        )
        self._has_unknown = self._has_unknown or result.outcome == "unknown"
        self.work.attempts.pop(decision.decision_id, None)
        self.journal(settled)
        failures = await self.state.count_failure(rule.name, has_failed=result.outcome in {"failed", "unknown"})
        if rule.pause_after and failures >= rule.pause_after:
            why = f"{plural(failures, 'failure')} in a row, the last one: {result.reason}"
            if await self.state.pause(rule.name, why):
                log.warning("%s is paused: %s", rule.name, why)

    async def _learn(self, now: datetime) -> None:
        """Store resolutions of unknown outcomes: a run that was made belongs to its conversation."""
        facts = self.observer.run_facts
        version = await facts.ledger.data_version()
        if version == self._ledger_version and not self._has_unknown:
            return
        self._has_unknown = False
        for decision in await self.state.unknown_decisions(now - RESOLVED_WITHIN):
            action = await facts.ledger.action(decision.action_id or "")
            if action is None or (result := result_of(action)).outcome == "unknown":
                self._has_unknown = True
                continue
            why = f"{result.reason}{'; ' if result.reason else ''}its outcome was unknown at first"
            learnt = replace(decision, outcome=result.outcome, reason=why, result_id=result.result_id)
            self.journal(await self.state.settle(learnt))
        self._ledger_version = version

    async def _carry_on(self, now: datetime, seen: Seen) -> None:
        """Continue open decisions: queued, waiting, approved, or left by a dead process."""
        by_name = {rule.name: rule for rule in (*PROPOSALS.values(), *self._enabled())}
        for decision in await self.state.open_decisions():
            if decision.rule == WHEN_ENDED:
                continue  # The process that polls sends it (app/actions/follow_ups.py).
            rule = by_name.get(decision.rule)
            program = self._running(decision.rule)
            if program is not None and (rule is not None or program.decision_id == decision.decision_id):
                continue
            if rule is None:
                why = "its rule was removed or disabled"
                if decision.outcome != "acting":
                    await self._close(decision, "expired", why)
                elif await self.state.adopt(decision.decision_id, now):
                    # Another process may be carrying it out, since a rule can be set off by hand there.
                    await self._close(decision, "interrupted", f"{why}; whether it was done is unknown")
            elif decision.outcome == "acting":
                await self._resume(rule, decision, now)
            elif why := self._why_expired(rule, decision, now):
                await self._close(decision, "expired", why)
            elif decision.outcome == "approved":
                await self._take_approved(rule, decision, seen)
            elif decision.outcome == "queued":
                state = (await self.state.rule_states()).get(rule.name)
                if state is not None and state.paused is not None:
                    await self._close(decision, "skipped", f"the rule is paused: {state.paused}")
                elif (
                    not is_quiet(rule, now)
                    and await self._active_run(rule, decision.occurrence.conversation) is None
                    and await self.state.take(decision.decision_id, decision.outcome, "acting", decision.reason)
                ):
                    await self._act_on(rule, decision)

    async def _close(self, decision: Decision, outcome: Outcome, why: str) -> None:
        self.journal(await self.state.settle(replace(decision, outcome=outcome, reason=why)))

    def _why_expired(self, rule: Rule, decision: Decision, now: datetime) -> str:
        """Why a waiting decision will not be carried out; empty: it may be."""
        # A stored request is compared when it is sent.
        if decision.request_json is None and decision.decided_at < self._states[rule.name].since:
            return "its rule was edited"
        over = now - decision.decided_at - rule.approval_expires
        if decision.outcome == "waiting" and over > timedelta(0):
            return "not approved in time"
        return "approved, but not sent in time" if decision.outcome == "approved" and over > SKEW else ""

    async def _take_approved(self, rule: Rule, decision: Decision, seen: Seen) -> None:
        """Send an approved request, unless its cause is gone."""
        held = await self.cache.detail(decision.occurrence.facts.get("run.id", ""))
        changed = changed_since(decision.occurrence, seen, None if held is None else held.run)
        # A person chose the time of the approval, so its age and the quiet hours do not matter.
        asked = replace(rule, needs_approval=False, quiet=None)
        now = self.clock()
        occurrence = replace(decision.occurrence, at=now)

        def verdict(past: RuleHistory) -> Verdict:
            return Verdict("expired", changed) if changed else decide(asked, occurrence, past, now)

        active_run = await self._active_run(rule, occurrence.conversation)
        taken = await self.state.take_approved(decision, verdict, active_run=active_run)
        if taken is not None and taken.outcome == "acting":
            await self._act_on(rule, taken)
        elif taken is not None:
            self.journal(taken)

    async def _act_on(self, rule: Rule, decision: Decision) -> None:
        now = self.clock()
        self.work.attempts[decision.decision_id] = _Attempt(now, now)
        await self._act(rule, decision)

    async def _resume(self, rule: Rule, decision: Decision, now: datetime) -> None:
        """Retry an action that certainly was not sent; one that no ledger records is not repeated."""
        attempt = self.work.attempts.get(decision.decision_id)
        if attempt is not None and attempt.result is not None:
            await self._settle(rule, decision, attempt, attempt.result)
            return
        if attempt is not None and now - attempt.tried_at < RETRY_AFTER:
            return
        if attempt is None and not await self.state.adopt(decision.decision_id, now):
            return
        if isinstance(rule.do, DoCommand) and attempt is None:
            why = "the process ended before the outcome was recorded; it is not repeated"
            await self._close(decision, "interrupted", why)
            return
        await self._act(rule, decision)
