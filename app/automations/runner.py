"""The runner: observes, asks the policy, and carries out its decisions."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from app.api.errors import ApiError
from app.automations.acting import (
    PROPOSALS,
    ActingResult,
    CannotActError,
    NoEffects,
    ResponseRunner,
    request_text,
    result_of,
)
from app.automations.fire_times import upcoming
from app.automations.occurrences import Observer, Seen, changed_since, due_times, occurrences
from app.automations.rule import (
    DoCommand,
    DoNotify,
    OnInterval,
    OnRun,
    OnSchedule,
    OnStuck,
    Rule,
    decide,
    fingerprint,
    is_quiet,
    lasts,
    names_in,
    texts_of,
)
from app.engine.text import plural
from app.engine.times import rfc3339
from app.notify.watch import SKEW
from storage.errors import StorageError
from storage.records.decision import WHEN_ENDED, Decision, Occurrence, Outcome, RuleHistory, RuleState, Verdict
from storage.state import State

log = logging.getLogger(__name__)

RETRY_AFTER: Final = timedelta(seconds=30)
"""How long to wait before retrying an action that was not sent for certain."""
RESOLVED_WITHIN: Final = timedelta(days=31)
"""How long to look for a decision's unknown outcome in the ledger."""
MAX_WAIT: Final = timedelta(seconds=10)
"""How often queued, waiting and failed decisions are checked."""


@dataclass(slots=True)
class Attempt:
    """A decision that this process is carrying out or will retry."""

    since: datetime
    """The start of the `catch_up` window."""
    tried_at: datetime
    result: ActingResult | None = None
    """A result that is not stored yet; None before a result, or if the action will be repeated."""


class Program(NamedTuple):
    """A running program of a rule."""

    decision_id: int
    task: asyncio.Task[None]


@dataclass(slots=True)
class Runner:
    """Runs one profile's rules, in one process at a time."""

    rules: tuple[Rule, ...]
    state: State
    responses: ResponseRunner | NoEffects
    observer: Observer
    journal: Callable[[Decision], None]
    _states: dict[str, RuleState] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """The unfinished ones of this process, by decision; after a reload, the next runner continues them."""
    programs: dict[str, Program] = field(default_factory=dict)
    """The program of each rule, which runs in the background. A rule has one at a time."""
    program_ended: Callable[[], None] = lambda: None
    """Called when a program has exited, since the rule's next program may be waiting for it."""
    _next: dict[str, datetime] = field(default_factory=dict)
    """The next time of each rule's schedule or interval, by rule."""
    _looked_at: datetime | None = None
    _known: dict[str, frozenset[str]] = field(default_factory=dict)
    """The identities of the occurrences at the last look, by rule."""
    _ledger_version: int | None = None
    _has_unknown: bool = True
    _has_retired: bool = False
    """Whether removed rules are marked as such in the state."""

    async def decide_and_act(self, *, waits: bool = True) -> None:
        """Finish decisions of earlier processes, then decide on everything that happened, and act.

        If it `waits`, it also waits for programs of rules; otherwise they continue in the background.
        """
        for name in tuple(self.programs):
            self._running(name)
        now = self.state.clock()
        if self._looked_at is not None and now < self._looked_at:
            self._next.clear()  # The clock was set back.
        self._looked_at = now
        await self.begin()
        await self._settle_unknown(now)
        # Read this before observing, so that a rule's first look includes every answer until then.
        states = self._states
        news_from = {
            rule.name: await self.observer.news_from(rule, states[rule.name]) for rule in self._enabled_rules()
        }
        seen = await self.observer.observe(now)
        await self._continue_open(now, seen)
        if all([await self._evaluate(rule, seen, news_from[rule.name]) for rule in self._enabled_rules()]):
            self.observer.watermark = seen.watermark
        if waits:
            while self.programs:
                await self._wait_for_program()
                await self._continue_open(self.state.clock(), seen)

    async def begin(self) -> None:
        """Register new and edited rules; everything that happened before is history to them."""
        if not self._has_retired:
            await self.state.retire_rules(tuple(rule.name for rule in self.rules))
            self._has_retired = True
        await self._register_rules(self.state.clock())

    async def _wait_for_program(self) -> None:
        name, program = next(iter(self.programs.items()))
        # If this wait is cancelled, the program continues, and `stop` waits for it.
        await asyncio.wait({program.task})
        self.programs.pop(name).task.result()

    def _running(self, name: str) -> Program | None:
        """The rule's running program; one that has exited is forgotten."""
        program = self.programs.get(name)
        if program is None or not program.task.done():
            return program
        del self.programs[name]
        program.task.result()
        return None

    async def stop(self) -> None:
        """Wait for running programs, each of which has a deadline."""
        await asyncio.gather(*(program.task for program in self.programs.values()), return_exceptions=True)

    async def trigger(self, rule: Rule, occurrence: Occurrence) -> None:
        await self._register_rules(self.state.clock())
        await self._decide(rule, occurrence)
        while self.programs:
            await self._wait_for_program()

    async def next_check(self) -> datetime:
        """The time of the next check if no event comes first."""
        now = self.state.clock()
        latest = now + MAX_WAIT
        timed = (rule.name for rule in self._enabled_rules() if isinstance(rule.on, OnSchedule | OnInterval))
        return min([latest, *(self._next.get(name, now) for name in timed)])

    def _enabled_rules(self) -> Iterable[Rule]:
        return (rule for rule in self.rules if rule.is_on and rule.name in self._states)

    async def _register_rules(self, now: datetime) -> None:
        for rule in self.rules:
            state = self._states.get(rule.name)
            if state is None or state.since > now + SKEW:
                self._states[rule.name] = await self.state.begin_rule(rule.name, fingerprint(rule), now)

    async def _evaluate(self, rule: Rule, seen: Seen, news_from: datetime | None) -> bool:
        """Decide on the rule's occurrences; False if it has to see the status changes again."""
        state = self._states[rule.name]
        # Quiet hours do not matter for a new rule: everything it finds is history.
        if lasts(rule) and is_quiet(rule, seen.now) and not state.is_new:
            return True
        if isinstance(rule.on, OnSchedule | OnInterval) and seen.now >= self._next.get(rule.name, seen.now):
            last = await self.state.last_due(rule.name, seen.now)
            if times := due_times(rule, state.since, last, seen.now):
                # One decision catches up on all missed times.
                await self._decide(rule, Occurrence(f"at:{rfc3339(times[-1])}", times[-1]), len(times) - 1)
            self._next[rule.name] = next(upcoming(rule, state.since, seen.now), datetime.max.replace(tzinfo=UTC))
        if news_from is None:
            return not isinstance(rule.on, OnRun)  # It will see these changes again, as history.
        is_complete = True
        candidates = {occurrence.identity: occurrence for occurrence in occurrences(rule, seen, state.since, news_from)}
        # Look up new occurrences only: a lasting one, such as a stuck run, would be looked up every time.
        new = tuple(identity for identity in candidates if identity not in self._known.get(rule.name, ()))
        free = await self.state.unclaimed(rule.name, new) if new else frozenset()
        for occurrence in [candidates[identity] for identity in new if identity in free]:
            is_met = True if state.is_new else await self._meets(rule, occurrence, seen.now)
            if is_met is None:  # Its results cannot be fetched now.
                is_complete = False
                del candidates[occurrence.identity]
            elif is_met:
                await self._decide(rule, occurrence, history=state.is_new)
        if state.is_new:
            await self.state.store_news_from(rule.name, news_from)
            self._states[rule.name] = replace(state, news_from=news_from)
        self._known[rule.name] = frozenset(candidates)
        return is_complete

    async def _meets(self, rule: Rule, occurrence: Occurrence, now: datetime) -> bool | None:
        """Whether an occurrence meets the conditions that need more than its facts; None if that is not known yet."""
        is_met: bool | None = True
        if isinstance(rule.on, OnRun | OnStuck) and rule.on.scope.labels:
            # Read labels last, for runs that meet all other conditions.
            is_met = await self.observer.is_labelled(occurrence.facts["run.id"], rule.on.scope)
        if not is_met or not isinstance(rule.on, OnRun):
            return is_met
        if now - occurrence.at > rule.catch_up:
            return not rule.on.needs_results
        return await self.observer.meets(rule.on, occurrence)

    async def _decide(self, rule: Rule, occurrence: Occurrence, missed: int = 0, *, history: bool = False) -> None:
        now = self.state.clock()
        if run_id := occurrence.facts.get("run.id"):
            conversation = await self.state.conversation(run_id)
            facts = dict(occurrence.facts)
            if any("run.reason" in names_in(text) for text in texts_of(rule.do)):
                facts["run.reason"] = await self.observer.reason(run_id)
            occurrence = replace(occurrence, conversation=conversation, facts=facts)

        program = self._running(rule.name)

        def verdict(past: RuleHistory) -> Verdict:
            if history:
                return Verdict("history", "it was so before the rule existed")
            decided = decide(rule, occurrence, past, now)
            if decided.outcome == "acting" and program is not None and not program.task.done():
                decided = Verdict("queued", "the rule's previous program is still running")
            caught_up = f"for {missed} missed before it, too" if missed else ""
            return Verdict(decided.outcome, "; ".join(filter(None, (decided.reason, caught_up))))

        active_run = await self._active_run(rule, occurrence.conversation)
        decision = await self.state.decide(rule.name, occurrence, verdict, active_run=active_run)
        if decision is None or decision.outcome == "history":
            return
        self.journal(decision)
        if decision.outcome == "waiting":
            await self._store_request(rule, decision)
        if decision.outcome == "acting":
            await self._act(rule, decision)

    async def _active_run(self, rule: Rule, conversation: str) -> str | None:
        """The active run of the same rule and conversation, if the rule avoids overlaps."""
        if rule.overlap == "allow" or isinstance(rule.do, DoNotify | DoCommand):
            return None
        if (run_id := await self.state.last_result(rule.name, conversation)) is None:
            return None
        detail = await self.observer.cache.detail(run_id)
        if detail is not None and not detail.is_final and detail.presence != "lost":
            return run_id
        return None

    async def _act(self, rule: Rule, decision: Decision) -> None:
        if isinstance(rule.do, DoCommand):
            self._running(rule.name)
            # In the background, so that other rules need not wait.
            task = asyncio.create_task(self._execute(rule, decision))
            task.add_done_callback(lambda _: self.program_ended())
            self.programs[rule.name] = Program(decision.decision_id, task)
        else:
            await self._execute(rule, decision)

    async def _execute(self, rule: Rule, decision: Decision) -> None:
        now = self.state.clock()
        attempt = self.attempts.setdefault(decision.decision_id, Attempt(decision.decided_at, now))
        attempt.tried_at = now
        try:
            result = await self.responses.execute(rule, decision)
        except StorageError as error:
            # Only this rule's write failed: the other rules continue.
            result = ActingResult("failed", str(error), may_repeat=True)
        # If storing the result fails, as on a full disk, the action is not carried out again.
        attempt.result = result
        await self._settle(rule, decision, attempt, result)

    async def _settle(self, rule: Rule, decision: Decision, attempt: Attempt, result: ActingResult) -> None:
        if result.may_repeat and self.state.clock() - attempt.since < rule.catch_up:
            attempt.result = None
            return
        final = replace(decision, action_id=result.action_id, result_id=result.result_id)
        await self._close(final, result.outcome, result.reason)
        self._has_unknown = self._has_unknown or result.outcome == "unknown"
        self.attempts.pop(decision.decision_id, None)
        failures = await self.state.count_failure(rule.name, has_failed=result.outcome in {"failed", "unknown"})
        if rule.pause_after and failures >= rule.pause_after:
            reason = f"{plural(failures, 'failure')} in a row, the last one: {result.reason}"
            if await self.state.pause(rule.name, reason):
                log.warning("%s is paused: %s", rule.name, reason)

    async def _settle_unknown(self, now: datetime) -> None:
        ledger = self.observer.ledger
        version = await ledger.data_version()
        if version == self._ledger_version and not self._has_unknown:
            return
        self._has_unknown = False
        for decision in await self.state.unknown_decisions(now - RESOLVED_WITHIN):
            action = await ledger.action(decision.action_id or "")
            if action is None or (result := result_of(action)).outcome == "unknown":
                self._has_unknown = True
                continue
            reason = f"{result.reason}{'; ' if result.reason else ''}its outcome was unknown at first"
            await self._close(replace(decision, result_id=result.result_id), result.outcome, reason)
        self._ledger_version = version

    async def _continue_open(self, now: datetime, seen: Seen) -> None:
        """Continue open decisions: queued, waiting, approved, or left by a dead process."""
        by_name = {rule.name: rule for rule in (*PROPOSALS.values(), *self._enabled_rules())}
        for decision in await self.state.open_decisions():
            if decision.rule == WHEN_ENDED:
                continue  # The process that polls sends it (app/actions/follow_ups.py).
            rule = by_name.get(decision.rule)
            program = self._running(decision.rule)
            if program is not None and (rule is not None or program.decision_id == decision.decision_id):
                continue
            if rule is None:
                reason = "its rule was removed or disabled"
                if decision.outcome != "acting":
                    await self._close(decision, "expired", reason)
                elif await self.state.adopt(decision.decision_id, now):
                    # Another process may be carrying it out after a manual trigger.
                    await self._close(decision, "interrupted", f"{reason}; whether it was done is unknown")
            elif decision.outcome == "acting":
                await self._resume(rule, decision, now)
            elif reason := self._why_expired(rule, decision, now):
                await self._close(decision, "expired", reason)
            elif decision.outcome == "approved":
                await self._send_approved(rule, decision, seen)
            elif decision.outcome == "queued":
                await self._decide_queued(rule, decision, now)

    async def _close(self, decision: Decision, outcome: Outcome, reason: str) -> None:
        self.journal(await self.state.settle(replace(decision, outcome=outcome, reason=reason)))

    def _why_expired(self, rule: Rule, decision: Decision, now: datetime) -> str:
        """Why a waiting decision expires; empty if it does not."""
        # A stored request is checked when it is sent.
        if decision.request_json is None and decision.decided_at < self._states[rule.name].since:
            return "its rule was edited"
        over = now - decision.decided_at - rule.approval_expires
        if decision.outcome == "waiting" and over > timedelta(0):
            return "not approved in time"
        if decision.outcome == "approved" and over > SKEW:
            return "approved, but not sent in time"
        return ""

    async def _send_approved(self, rule: Rule, decision: Decision, seen: Seen) -> None:
        detail = await self.observer.cache.detail(decision.run_id)
        changed = changed_since(decision.occurrence, seen, None if detail is None else detail.run)
        # The time of the approval was chosen by hand, so age and quiet hours do not matter.
        approved = replace(rule, needs_approval=False, quiet=None)
        now = self.state.clock()
        occurrence = replace(decision.occurrence, at=now)

        def verdict(past: RuleHistory) -> Verdict:
            if changed:
                return Verdict("expired", changed)
            return decide(approved, occurrence, past, now)

        active_run = await self._active_run(rule, occurrence.conversation)
        await self._act_on(rule, await self.state.decide_again(decision, verdict, active_run=active_run))

    async def _decide_queued(self, rule: Rule, decision: Decision, now: datetime) -> None:
        """Decide again on a queued decision once nothing holds it back: limits and catch-up count at that moment."""
        conversation = decision.occurrence.conversation
        active_run = await self._active_run(rule, conversation)
        state = (await self.state.rule_states()).get(rule.name)
        is_paused = state is not None and state.paused is not None
        if not is_paused and (is_quiet(rule, now) or active_run is not None):
            return
        occurrence = decision.occurrence
        cache = self.observer.cache
        last_run = await cache.detail(await self.state.last_result(rule.name, conversation) or "")
        if rule.overlap == "queue" and last_run is not None and last_run.run.updated_at is not None:
            # It is late only since the run that it waited for has ended.
            ended_at = last_run.run.updated_at - (await cache.budget()).clock_ahead
            occurrence = replace(occurrence, at=max(occurrence.at, ended_at))

        def verdict(past: RuleHistory) -> Verdict:
            decided = decide(rule, occurrence, past, now)
            if decided.outcome == "acting":
                return Verdict("acting", decision.reason)
            return decided

        await self._act_on(rule, await self.state.decide_again(decision, verdict))

    async def _act_on(self, rule: Rule, taken: Decision | None) -> None:
        """Act on a repeated decision, if it still holds. It is None if another process was faster."""
        if taken is None:
            return
        if taken.outcome == "acting":
            now = self.state.clock()
            self.attempts[taken.decision_id] = Attempt(now, now)
            await self._act(rule, taken)
            return
        self.journal(taken)
        if taken.outcome == "waiting":
            await self._store_request(rule, taken)

    async def _store_request(self, rule: Rule, decision: Decision) -> None:
        with suppress(CannotActError, ApiError):
            request = await self.responses.request(rule, decision)
            await self.state.store_request(decision.decision_id, request_text(request))

    async def _resume(self, rule: Rule, decision: Decision, now: datetime) -> None:
        """Retry an action that was not sent for certain; never repeat a program that may have run."""
        attempt = self.attempts.get(decision.decision_id)
        if attempt is not None and attempt.result is not None:
            await self._settle(rule, decision, attempt, attempt.result)
            return
        if attempt is not None and now - attempt.tried_at < RETRY_AFTER:
            return
        if attempt is None and not await self.state.adopt(decision.decision_id, now):
            return
        if isinstance(rule.do, DoCommand) and attempt is None:
            reason = "the process ended before the outcome was recorded; it is not repeated"
            await self._close(decision, "interrupted", reason)
            return
        await self._act(rule, decision)
