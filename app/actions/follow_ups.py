"""Follow-ups: continuations that wait for their run to end; the process that polls then sends each one once."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.batch import BatchSender
from app.actions.reconciliation import LOOK_S, REST_S
from app.api.requests import CancelRun, ContinueRun, as_json, request_from
from app.engine.events import Announce, StateChangedElsewhere
from app.engine.text import safe_text
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.ledger import new_action_id
from storage.records import CANCELLED, Action, ActionFailure, ActionFilter
from storage.records.decision import WHEN_ENDED, Decision, Occurrence, Outcome
from storage.records.error_kinds import error_kind
from storage.state import State

RETRY_PAUSE: Final = timedelta(seconds=30)
"""The pause before retrying a send that had no effect for a temporary reason."""
UNSEEN: Final = timedelta(days=1)
"""How long a run is waited for that the cache does not hold."""
MAX_SHOWN: Final = 50
_ACTIVE: Final = "run_active"
"""The error code of a service that does not continue a run before its turn has ended."""
_OUTCOMES: Final[dict[str, Outcome]] = {"confirmed": "done", "unknown": "unknown"}


@dataclass(slots=True)
class FollowUps:
    """One profile's waiting continuations; every method may raise `StorageError`."""

    actions: Actions
    cache: Cache
    usable_state: Callable[[], State]
    """Raises `StorageError` if the automations' state cannot be used."""
    announce: Announce
    _next: dict[int, datetime] = field(default_factory=dict)
    """The time of the next attempt, by decision."""

    async def wait(self, request: ContinueRun, key: str | None = None) -> Decision:
        """Add a continuation to send when its run ends, once under `key`; an equal one is not added twice.

        Raises `ActionRefusedError` if it could not be sent.
        """
        self.actions.check(request)
        state = self.usable_state()
        now = self.actions.clock()
        text = json.dumps({"path": request.path, "body": json.loads(as_json(request))}, ensure_ascii=False)
        facts = {"run.id": request.run_id, "actor": self.actions.actor, "key": key or ""}
        occurrence = Occurrence(f"asked:{new_action_id(now)}", now, "", facts)
        decision = await state.queue_once(WHEN_ENDED, occurrence, f"waits for the end of {request.run_id}", text)
        self.announce(StateChangedElsewhere())
        return decision

    async def list_waiting(self, run_ids: Collection[str]) -> tuple[Decision, ...]:
        """The continuations waiting for these runs to end; none if the state cannot be used."""
        try:
            queued = await self.usable_state().open_decisions(outcome="queued")
        except StorageError:
            return ()
        return tuple(decision for decision in queued if decision.rule == WHEN_ENDED and decision.run_id in run_ids)

    async def cancel(self, decision_id: int) -> bool:
        """Cancel a waiting follow-up; return whether it was still waiting."""
        reason = f"cancelled by {self.actions.actor}"
        is_cancelled = await self.usable_state().change_outcome(decision_id, "queued", "skipped", reason)
        self.announce(StateChangedElsewhere())
        return is_cancelled

    async def list_unsent(self) -> tuple[Decision, ...]:
        """The waiting continuations, and the latest that were cancelled or given up unsent; newest first."""
        newest = await self.usable_state().journal(WHEN_ENDED, limit=MAX_SHOWN)
        return tuple(decision for decision in newest if decision.action_id is None and decision.outcome != "done")

    async def work(self) -> float:
        """Send the follow-ups whose runs have ended; return the seconds until the next check."""
        try:
            state = self.usable_state()
        except StorageError:
            return REST_S
        waiting = [decision for decision in await state.open_decisions() if decision.rule == WHEN_ENDED]
        if self.actions.read_only or not waiting:
            return REST_S
        now = self.actions.clock()
        for decision in waiting:
            number = decision.decision_id
            if self._next.get(number, now) > now:
                continue
            if decision.outcome == "acting":
                # Left by a process that exited: the ledger knows whether it was sent.
                if await state.adopt(number, now):
                    await self._send(state, decision, now)
                continue
            run = await self.cache.detail(decision.occurrence.facts["run.id"])
            if run is None and now - decision.decided_at <= UNSEEN:
                continue
            reason = ""
            if run is None or run.presence == "lost":
                reason = "the service no longer lists the run"
            elif run.is_final and run.presence == "current":
                # The service reports a cancellation, or this machine has cancelled the run since then.
                cancels = ActionFilter(["run.cancel"], ["confirmed", "unknown"], since=decision.decided_at)
                path = CancelRun(run.run.run_id).path
                paths = [action.path for action in await self.actions.ledger.actions(cancels)]
                if run.run.status == CANCELLED or path in paths:
                    # Sending it would restart a run that someone has just stopped.
                    reason = "the run was cancelled"
                elif await state.change_outcome(number, "queued", "acting", ""):
                    await self._send(state, decision, now)
            if reason and await state.change_outcome(number, "queued", "expired", reason):
                self.announce(StateChangedElsewhere())
        return LOOK_S

    async def _send(self, state: State, decision: Decision, now: datetime) -> None:
        action: Action | None = None
        try:
            facts = decision.occurrence.facts
            sent = json.loads(decision.request_json or "null")
            request = request_from("run.continue", sent["path"], sent["body"])
            actions = replace(self.actions, actor=facts["actor"])
            key = facts["key"]
        except (KeyError, TypeError, ValueError, IndexError):
            error: ActionFailure | None = ActionFailure("invalid", "Another version of Runwarden wrote it.")
        else:
            result = await BatchSender(actions.submit).send(
                request, key or f"when-ended-{decision.occurrence.identity}"
            )
            is_blocked = result.outcome == "blocked"  # Until the earlier outcome is known.
            action = None if is_blocked else result.action
            kind = "unreachable" if is_blocked else "invalid"
            error = ActionFailure(kind, result.problem) if action is None else action.error
        outcome = "failed" if action is None else _OUTCOMES.get(action.state, "failed")
        # No error means that another process is sending it.
        if outcome == "failed" and (error is None or error_kind(error.kind).passes or error.error_code == _ACTIVE):
            self._next[decision.decision_id] = now + RETRY_PAUSE
            await state.change_outcome(decision.decision_id, "acting", "queued", "" if error is None else error.message)
            return
        reason = "" if outcome == "done" or error is None else error.message
        ids = (None, None) if action is None else (action.action_id, action.result_id)
        await state.settle(replace(decision, outcome=outcome, reason=reason, action_id=ids[0], result_id=ids[1]))
        self.announce(StateChangedElsewhere())


def waiting_words(waiting: Decision) -> str:
    """The first words of a follow-up's instructions; empty if another version of Runwarden stored it."""
    request = json.loads(waiting.request_json or "{}")
    return safe_text(str(request.get("body", {}).get("instructions", "")).partition("\n")[0], limit=100)
