"""A team's month in virtual time: through the real runner, on real files; what it costs, says, and leaves behind."""

import json
import random
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.automations.inbox import Inbox
from app.config.load import parse
from storage.records import Repository, Run
from tests.automations.conftest import Place, rule

STEP = timedelta(minutes=10)
STEPS = 144
A_DAY = 2_000
RULES = "\n".join(
    [
        rule(
            name='"again"',
            do='{ continue = "{run.reason}" }',
            limit="{ per_conversation = 1, per_hour = 500, per_day = 9000 }",
        ),
        rule(name='"page"', on='{ health = "not ok" }'),
        rule(name='"calm"', on='{ health = "recovered" }', quiet='"22:00-06:00"'),
        rule(name='"slow"', on='{ run = "stuck" }', limit="{ per_hour = 2 }"),
        rule(name='"nightly"', on='{ schedule = "0 3 * * *", timezone = "Europe/Berlin", jitter = "15m" }'),
        rule(name='"often"', on='{ every = "30m" }', overlap='"queue"', limit="{ per_day = 20 }"),
    ]
)


class Team:
    """Runs that come, take their time, and end; a tenth of them fails at first."""

    def __init__(self, place: Place) -> None:
        self.place, self.dice, self.active = place, random.Random(3), deque[tuple[datetime, Run]]()
        self.shown = self.failed = 0
        self.seen = 0

    async def step(self) -> None:
        """Ten minutes."""
        world = self.place.world
        world.now += STEP
        now, changed = world.now, [self._ended(run) for at, run in self.active if at <= world.now]
        self.active = deque((at, run) for at, run in self.active if at > now)
        changed += [self._again(identity.split(":")[1]) for name, identity in self._news() if name == "again"]
        for _ in range(A_DAY // STEPS + (self.dice.random() < A_DAY % STEPS / STEPS)):
            self.shown += 1
            repository = Repository.parse(f"acme/r{self.shown % 20}")
            changed.append(self._begun(Run(f"run_{self.shown}", "working", "main", repository, now, now, "{}")))
        await world.cache.store_runs([*changed, *(run for _, run in self.active)], asked_at=now)
        await world.cache.judge_stuck()
        await world.health(github="ok" if self.dice.random() > 0.01 else "unreachable")

    def _news(self) -> list[tuple[str, str]]:
        news, self.seen = self.place.acts.done[self.seen :], len(self.place.acts.done)
        return news

    def _begun(self, run: Run) -> Run:
        took = timedelta(minutes=self.dice.choice((5, 10, 20, 30)) if self.dice.random() > 0.002 else 300)
        self.active.append((self.place.world.now + took, run))
        return run

    def _again(self, run_id: str) -> Run:
        now = self.place.world.now
        return self._begun(Run(run_id, "queued", "main", Repository.parse("acme/r0"), now, now, "{}"))

    def _ended(self, run: Run) -> Run:
        has_failed = run.status == "working" and self.dice.random() < 0.1
        self.failed += has_failed
        raw = json.dumps({"error": {"message": "the tests do not pass"}})
        status = "failed" if has_failed else "completed"
        now = self.place.world.now
        return Run(run.run_id, status, run.branch_name, run.repository, run.created_at, now, raw)


def resident() -> int:
    """This process's memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("days", [2, pytest.param(30, marks=[pytest.mark.campaign, pytest.mark.timeout(0)])])
async def test_a_teams_history_is_decided_on_and_dealt_with(place: Place, days: int) -> None:
    """Each failure has its line, each line its reason, memory stays flat, and the inbox ends empty."""
    team, runner, used = Team(place), place.runner(RULES), list[int]()
    await runner.look()
    for _ in range(days):
        for _ in range(STEPS):
            await team.step()
            await runner.look()
        place.journal.clear()
        used.append(resident())

    journal = await place.state.journal(limit=10**6)
    by_rule = {name: [each for each in journal if each.rule == name] for name in {each.rule for each in journal}}
    assert {each.occurrence.facts["run.id"] for each in by_rule["again"]} == await _failed(place)
    assert len(by_rule["again"]) == team.failed > days * 150
    assert [each for each in journal if each.settled_at is None] == []
    assert [each for each in journal if each.outcome != "done" and not each.reason] == []
    assert len(by_rule["often"]) == days * 48
    assert by_rule.keys() >= {"again", "often", "nightly", "slow"}
    assert used[-1] - used[len(used) // 4] < 30_000_000

    inbox = _inbox(place)
    assert await inbox.items()
    await inbox.done(await inbox.items())
    assert await inbox.items() == ()


async def _failed(place: Place) -> set[str]:
    """The runs that ever failed."""
    found = await place.world.cache.reader.run(
        lambda cache: cache.execute(
            "SELECT run_id FROM runs WHERE first_status = 'failed' UNION SELECT r.run_id FROM transitions AS t"
            " JOIN runs AS r ON r.id = t.run WHERE t.new = 'failed'"
        ).fetchall()
    )
    return {run_id for (run_id,) in found}


def _inbox(place: Place) -> Inbox:
    engine: Any = SimpleNamespace(
        cache=place.world.cache,
        ledger=place.ledger,
        state=place.state,
        usable_state=lambda: place.state,
        settings=parse(Path("/etc/config.toml"), RULES),
        profile=SimpleNamespace(name="acme", poll=SimpleNamespace(health_s=30.0)),
        clock=place.world.clock,
    )
    return Inbox.of(engine)
