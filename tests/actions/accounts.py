"""Three accounts of the same writes: what the peer executed, what the ledger has, and what each command said."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storage.ledger import Ledger
from storage.records import Action
from tests.actions.peer import FaultyPeer

NO_PROCESS = 2**22 + 1
"""No process has this id."""
CODES = {"confirmed": {0}, "unknown": {6, 130}, "rejected": {2, 4, 5, 7}, "not_sent": {2, 4, 5, 7, 8, 130}}


@dataclass(frozen=True, slots=True)
class Said:
    """What a command reported of one write."""

    mark: str
    code: int
    state: str
    action_id: str | None
    has_run: bool


@dataclass(slots=True)
class Accounts:
    """Collected while writes are under way, compared at the end."""

    peer: FaultyPeer
    said: list[Said] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)

    def hear(self, mark: str, code: int, document: dict[str, Any]) -> None:
        """Keep what a command reported."""
        self.said.append(Said(mark, code, document["state"], document["action_id"], document["run"] is not None))

    async def contradictions(self, *ledger_files: Path, ours: bool) -> list[str]:
        """Everything that does not fit together; `ours`: this process sent them, and counts as dead from here on."""
        held: list[Action] = []
        for file in ledger_files:
            async with await Ledger.open(file) as ledger:
                if ours:
                    await ledger.writer.run(
                        lambda c: c.execute(
                            "UPDATE actions SET owner_json = json_set(owner_json, '$[0]', ?)", (NO_PROCESS,)
                        )
                    )
                await ledger.adopt_orphans()
                held += await ledger.actions(limit=10_000_000)
        by_mark: dict[str, list[Action]] = {}
        for action in held:
            by_mark.setdefault(json.loads(action.body_json)["instructions"], []).append(action)
        self.states.update(action.state for action in held)
        return [*self._of_the_peer(by_mark), *self._of_the_ledger(by_mark), *self._of_the_commands(by_mark)]

    def _of_the_peer(self, by_mark: dict[str, list[Action]]) -> Iterator[str]:
        for mark, count in self.peer.received.items():
            if count > 1:
                yield f"{mark} was sent {count} times"
            if mark not in by_mark:
                yield f"{mark} was sent and is not in the ledger"

    def _of_the_ledger(self, by_mark: dict[str, list[Action]]) -> Iterator[str]:
        for mark, actions in by_mark.items():
            executed = self.peer.executed[mark]
            for action in actions:
                if action.state in {"not_sent", "rejected"} and executed:
                    yield f"{mark} is {action.state} and was executed"
                if action.state == "confirmed" and (not executed or action.result_id != f"run_of_{mark}"):
                    yield f"{mark} is confirmed as {action.result_id} and was executed {executed} times"
                if action.state in {"prepared", "sending"}:
                    yield f"{mark} is {action.state} for ever"

    def _of_the_commands(self, by_mark: dict[str, list[Action]]) -> Iterator[str]:
        ids = {action.action_id: action for actions in by_mark.values() for action in actions}
        for said in self.said:
            action = ids.get(said.action_id or "")
            if said.code not in CODES.get(said.state, set()):
                yield f"{said}: the exit code is another state's"
            if said.action_id is None and (said.state != "not_sent" or self.peer.received[said.mark]):
                yield f"{said}: without an action, and received {self.peer.received[said.mark]} times"
            if said.action_id is not None and (action is None or action.state != said.state):
                yield f"{said}: the ledger has {action and action.state}"
            if said.has_run != (said.state == "confirmed"):
                yield f"{said}: only a confirmed write has a run"
