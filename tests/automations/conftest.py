"""A real cache, ledger and state, a clock that the test moves, and rules that run over them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from app.api.requests import StartRun, WriteRequest
from app.automations.acting import ActingResult, CannotActError
from app.automations.occurrences import Observer
from app.automations.rule import DoCommand, Rule
from app.automations.runner import Runner
from app.health.incidents import IncidentReader
from app.profiles.load import parse
from storage.errors import StorageError
from storage.records import ActionFailure, Author, PollOutcome, Repository
from storage.records.decision import Decision
from tests.notify.conftest import World
from tests.storage.conftest import entry


@dataclass
class Recorder:
    """Records each response instead of carrying it out, and answers as scripted."""

    done: list[tuple[str, str]] = field(default_factory=list)
    """The rule's name and its trigger, oldest first."""
    results: list[ActingResult] = field(default_factory=list)
    """The answers to the next responses; after the last one, everything succeeds."""
    raises: dict[str, StorageError] = field(default_factory=dict)
    """Answers by the rule's name."""
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    """Events by the rule's name: its response waits for the event."""

    async def execute(self, rule: Rule, decision: Decision) -> ActingResult:
        await asyncio.sleep(0)
        if rule.name in self.held:
            await self.held[rule.name].wait()
        self.done.append((rule.name, decision.occurrence.identity))
        if rule.name in self.raises:
            raise self.raises[rule.name]
        return self.results.pop(0) if self.results else ActingResult("done")

    async def request(self, rule: Rule, decision: Decision) -> WriteRequest:
        if isinstance(rule.do, DoCommand):
            raise CannotActError("it sends nothing to the service")
        return StartRun(f"{rule.name} {decision.occurrence.facts.get('run.id', '')}", Repository.parse("acme/api"))


@dataclass
class Place(World):
    """One profile's folder, and the processes that work in it."""

    acts: Recorder = field(default_factory=Recorder)
    journal: list[Decision] = field(default_factory=list)

    def runner(self, text: str) -> Runner:
        incidents = IncidentReader(self.cache, {"ok"}, 30.0, timedelta(seconds=60))
        return Runner(
            rules=parse(Path("/etc/config.toml"), text).automations,
            state=self.state,
            responses=self.acts,
            observer=Observer(self.cache, self.ledger, incidents),
            journal=self.journal.append,
        )

    async def begun(self, text: str) -> Runner:
        """A process with these automations that has polled once, so that later changes are news."""
        await self.answered()
        runner = self.runner(text)
        await runner.decide_and_act()
        return runner

    async def answered(self) -> None:
        """Poll with an answer in which nothing is new."""
        for subject in ("runs", "health"):
            await self.cache.record_poll(PollOutcome(subject, self.now, None, None))

    async def fails(self, runner: Runner, run_id: str = "run_1") -> None:
        """Let a run fail a minute later, and poll."""
        self.move(minutes=1)
        await self.run(run_id, "failed")
        await runner.decide_and_act()

    async def stuck(self, run_id: str) -> None:
        """Let a run work for longer than any other."""
        for _ in range(11):
            self.move(minutes=5)
            await self.run(run_id, "working")

    async def approve(self, **later: float) -> Decision:
        (waiting,) = await self.state.open_decisions()
        self.move(**later)
        assert await self.state.answer(waiting.decision_id, "approved", Author("ann", "desk"))
        return waiting

    async def unknown_write(self, body: str = "{}", key: str = "k") -> str:
        """Add a write whose answer was lost; return its action's id."""
        action = await self.ledger.prepare(entry(key, "", "run.start", body, at=self.ledger.clock()))
        await self.ledger.sending(action.action_id)
        await self.ledger.settle(action.action_id, "unknown", ActionFailure("timed_out", "no answer"))
        return action.action_id

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(decision.outcome, decision.reason) for decision in self.journal]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place()
    async with place.opened(tmp_path):
        await place.answered()
        yield place


def rule(**keys: str) -> str:
    """One automation's table, which notifies when a run fails; other keys as given."""
    base = {"name": '"r"', "on": '{ run = "failed" }', "do": '{ notify = "default" }'}
    return "\n".join(["[[automations]]", *(f"{key} = {value}" for key, value in {**base, **keys}.items())])
