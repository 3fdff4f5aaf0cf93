"""Proposals: writes that a program asks for. Each waits for approval like a rule's request, and is sent as shown."""

import hashlib
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from app.api.requests import CancelRun, WriteRequest
from app.automations.acting import CannotActError, shown
from app.automations.occurrences import manual_occurrence
from app.automations.rule import DoSend, Limit, OnProposal, Rule, decide
from app.engine.engine import Engine
from storage.records import ActionKind, Run
from storage.records.decision import Decision

PROPOSALS: Final[Mapping[ActionKind, Rule]] = {
    kind: Rule(
        f"[mcp] {kind}",
        OnProposal(),
        DoSend(kind),
        overlap="allow",
        pause_after=0,
        limit=Limit(10_000, 10_000, 10_000),  # Each needs approval anyway.
        needs_approval=True,
    )
    for kind in ("run.start", "run.continue", "run.cancel", "agent.start")
}
"""The rules that every bot has in addition to the configured ones, by the kind of write."""
MOST_WAITING: Final = 50
_NAMES: Final = frozenset(rule.name for rule in PROPOSALS.values())


async def propose(
    engine: Engine, request: WriteRequest, run: Run | None = None, key: str = ""
) -> tuple[Decision, bool]:
    """Put a request up for approval. Returns the decision, and whether it is new: an equal request waits only once.

    The proposal expires if its run changes its status first, unless it is a cancellation. The ledger sends at most one
    request with the same `key`, if there is one.

    Raises:
        CannotActError: Too many proposals are waiting.
        StorageError: The state cannot be used.
    """
    state, now, rule = engine.usable_state(), engine.clock(), PROPOSALS[request.kind]
    asked = manual_occurrence(now, run)
    facts = {**asked.facts, "key": key}
    if isinstance(request, CancelRun):
        del facts["run.status"]
    conversation = "" if run is None else await state.conversation(run.run_id)
    request_json = shown(request)
    digest = hashlib.sha256(f"{key} {request_json}".encode()).hexdigest()
    n = 0
    while True:
        occurrence = replace(asked, identity=f"proposed:{digest}:{n}", conversation=conversation, facts=facts)
        waiting = [each for each in await state.open_decisions() if each.rule in _NAMES]
        for each in waiting:
            if each.occurrence.identity == occurrence.identity:
                return each, False
        if len(waiting) >= MOST_WAITING:
            fix = "Approve or reject some of them first"
            raise CannotActError(f"{MOST_WAITING} proposals are already waiting. {fix}; nothing was proposed.")
        decision = await state.decide(
            rule.name, occurrence, lambda past: decide(rule, asked, past, now), request_json=request_json
        )
        if decision is not None:
            return decision, True
        n += 1  # An equal proposal was made before and is settled.
