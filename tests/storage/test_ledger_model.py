"""The ledger agrees with a model for any sequence of calls, with processes that die and files that are reopened."""

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from storage import claims, database
from storage.claims import Owner
from storage.database import immediate
from storage.errors import (
    AlreadyDoneError,
    KeyTakenError,
    LedgerRefusedError,
    SubjectBlockedError,
    WrongStateError,
)
from storage.ledger import SCHEMA, queries, transitions
from storage.ledger.transitions import Transition
from storage.records import OPEN_STATES, UNUSED_STATES, Action, ActionFailure, Author
from tests.storage.conftest import NOON

ANN = Author("ann", "laptop", "command")
ERROR = ActionFailure("timed_out", "No answer.")
PROGRAM = (transitions.SENDING, transitions.CONFIRM, transitions.REJECT, transitions.UNKNOWN, transitions.NOT_SENT)
PERSON = (transitions.RESOLVE_CREATED, transitions.RESOLVE_NOT_CREATED, transitions.UNRESOLVE)
AFTER = {"prepared": "not_sent", "sending": "unknown"}
"""The state in which a dead process's actions end."""


@dataclass(frozen=True)
class Entry:
    """One action in the model."""

    key: str
    subject: str
    process: int
    state: str = "prepared"
    resolution: str | None = None
    steps: tuple[str, ...] = ("prepared",)
    successor: str | None = None

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES and self.resolution is None


def refusal_of(call: Callable[[], object]) -> type[LedgerRefusedError] | None:
    """Return the refusal that the ledger raised; None: it accepted the call."""
    try:
        call()
    except LedgerRefusedError as refused:
        return type(refused)
    return None


class LedgerMachine(RuleBasedStateMachine):
    """Three processes on one ledger."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[str, Entry] = {}
        self.dead: set[int] = set()
        self.number = 0
        self.patched = patch.object(claims, "is_dead", lambda owner: owner.pid in self.dead)
        self.patched.start()
        self.connection = self.connect()

    def connect(self) -> sqlite3.Connection:
        return database.open_durable(Path(self.folder.name, "ledger.sqlite3"), SCHEMA)

    def teardown(self) -> None:
        self.connection.close()
        self.patched.stop()
        self.folder.cleanup()

    def refusal(self, key: str, subject: str, *, again: bool, besides: str = "") -> type[LedgerRefusedError] | None:
        others = [entry for action_id, entry in self.model.items() if action_id != besides]
        if any(entry.key == key and entry.state not in UNUSED_STATES for entry in others):
            return KeyTakenError
        same = [entry for entry in others if subject and entry.subject == subject]
        if any(entry.is_open for entry in same):
            return SubjectBlockedError
        return AlreadyDoneError if not again and any(entry.state == "confirmed" for entry in same) else None

    def entered(
        self, action_id: str, key: str, subject: str, process: int, *, again: bool, supersedes: str | None = None
    ) -> Action:
        facts = (action_id, "organization.create", subject, key, "/", "{}", "cli:ann", "prepared", NOON)
        entry = Action(*facts, author=ANN)
        with immediate(self.connection):
            return transitions.enter(self.connection, entry, Owner(process, "?", "?", "?"), supersedes, again=again)

    def begun(self, process: int) -> str:
        """Start an action of a live process and return its id; a dead one's number is given to a new process."""
        self.adopt()
        self.dead.discard(process)
        self.number += 1
        return f"act_{self.number}"

    @rule(
        target=ids,
        key=st.sampled_from("kl"),
        subject=st.sampled_from(["", "a", "b"]),
        process=st.integers(1, 3),
        again=st.booleans(),
    )
    def prepare(self, key: str, subject: str, process: int, *, again: bool) -> object:
        action_id = self.begun(process)
        key = key if self.number % 3 else action_id
        expected = self.refusal(key, subject, again=again)
        refused = refusal_of(lambda: self.entered(action_id, key, subject, process, again=again))
        assert refused is expected
        if refused is not None:
            return multiple()
        self.model[action_id] = Entry(key, subject, process)
        return action_id

    @rule(action_id=ids, transition=st.sampled_from(PROGRAM + PERSON))
    def move(self, action_id: str, transition: Transition) -> None:
        """Try any transition of any action: legal ones succeed, and others are refused without a trace."""
        entry = self.model[action_id]
        expected: type[LedgerRefusedError] | None = None
        if entry.state not in transition.sources or entry.resolution not in transition.undoes:
            expected = WrongStateError
        elif transition is transitions.UNRESOLVE:
            expected = self.refusal(
                entry.key if entry.state in UNUSED_STATES else "", entry.subject, again=True, besides=action_id
            )
        assert refusal_of(lambda: self.apply(action_id, transition)) is expected

    def apply(self, action_id: str, transition: Transition) -> Action:
        error = ERROR if transition.target in {"rejected", "unknown", "not_sent"} else None
        result_id = f"org_of_{action_id}" if transition.target == "confirmed" else None
        with immediate(self.connection):
            action = transitions.apply(self.connection, NOON, ANN, action_id, transition, error, result_id)
        self.record(action_id, transition)
        return action

    def record(self, action_id: str, transition: Transition) -> None:
        entry = self.model[action_id]
        self.model[action_id] = replace(
            entry,
            state=transition.target,
            resolution=transition.resolution,
            steps=(*entry.steps, transition.record),
        )
        for old_id, old in self.model.items():
            if transition.target in UNUSED_STATES and (old.successor, old.resolution) == (action_id, "sent_again"):
                steps = (*old.steps, "reopened")
                self.model[old_id] = replace(old, resolution=None, successor=None, steps=steps)

    @rule(target=ids, action_id=ids, process=st.integers(1, 3))
    def send_again(self, action_id: str, process: int) -> object:
        """A user sends again deliberately: a new action replaces the old one, or nothing happens."""
        successor = self.begun(process)
        entry = self.model[action_id]
        facts = (successor, successor, entry.subject, process)
        refused = refusal_of(lambda: self.entered(*facts, again=True, supersedes=action_id))
        assert (refused is None) == ((entry.state, entry.resolution) == ("unknown", None))
        if refused is not None:
            return multiple()
        self.record(action_id, transitions.SUPERSEDE)
        self.model[action_id] = replace(self.model[action_id], successor=successor)
        self.model[successor] = Entry(successor, entry.subject, process)
        return successor

    @rule(process=st.integers(1, 3))
    def kill(self, process: int) -> None:
        """Kill -9: the action stays as it is until another process looks."""
        self.dead.add(process)

    @rule()
    def adopt(self) -> None:
        """A living process settles the dead one's actions; a second look finds nothing."""
        settled = {action.action_id: action.state for action in transitions.adopt(self.connection, NOON, ANN)}
        expected = {
            action_id: AFTER[entry.state]
            for action_id, entry in self.model.items()
            if entry.process in self.dead and entry.state in AFTER
        }
        assert settled == expected
        for action_id, state in expected.items():
            self.record(action_id, transitions.NOT_SENT if state == "not_sent" else transitions.UNKNOWN)
        assert transitions.adopt(self.connection, NOON, ANN) == ()

    @rule()
    def restart(self) -> None:
        """Reopen the files: everything is on the disk."""
        self.connection.close()
        self.connection = self.connect()

    @invariant()
    def is_as_modelled(self) -> None:
        """States, resolutions and audit agree; no key or subject has two actions that may have had an effect."""
        rows = {action.action_id: action for action in queries.actions(self.connection, limit=10_000)}
        assert {id_: (a.state, a.resolution) for id_, a in rows.items()} == {
            id_: (entry.state, entry.resolution) for id_, entry in self.model.items()
        }
        used = Counter(action.key for action in rows.values() if action.state not in UNUSED_STATES)
        open_ = Counter(action.subject for action in rows.values() if action.subject and action.is_open)
        assert max([*used.values(), *open_.values()], default=0) <= 1
        for action_id, entry in self.model.items():
            steps = tuple(step.transition for step in queries.steps(self.connection, action_id))
            assert steps == entry.steps
            assert steps.count("sending") <= 1
            assert (rows[action_id].result_id is not None) == (entry.state == "confirmed")


SMALL = settings(max_examples=25, stateful_step_count=40, derandomize=True, suppress_health_check=list(HealthCheck))
LedgerMachine.TestCase.settings = SMALL
test_the_ledger_is_as_its_model = LedgerMachine.TestCase


@pytest.mark.campaign
@pytest.mark.timeout(14_400)
class TestLong(LedgerMachine.TestCase):
    """Many more random sequences, different in each run."""

    settings = settings(SMALL, max_examples=2_000, stateful_step_count=60, derandomize=False)
