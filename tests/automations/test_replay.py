"""Replay: what the runner itself would have done over the cached history, for every trigger that it can show."""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.automations.replay import Replayed, replay
from app.profiles.load import parse
from storage.records.decision import Decision
from tests.automations.conftest import Place, rule

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def replayed(place: Place, *texts: str) -> dict[str, Replayed]:
    """Replay the rules over everything up to now."""
    settings = parse(Path("/etc/config.toml"), "\n".join(texts))
    engine: Any = SimpleNamespace(
        cache=place.cache,
        ledger=place.ledger,
        settings=settings,
        profile=SimpleNamespace(poll=SimpleNamespace(health_s=30.0)),
    )
    return await replay(engine, settings.automations, START, place.now)


BAD, WELL = '{ health = "not ok", for = "5m" }', '{ health = "recovered" }'


def latest(place: Place, name: str) -> Iterable[Decision]:
    """The last journal entry of each of the rule's decisions."""
    return {one.decision_id: one for one in place.journal if one.rule == name}.values()


def quiet(begin: datetime, *, hours: int) -> str:
    """Quiet hours of the local day."""
    return f'"{begin.astimezone():%H:%M}-{begin.astimezone() + timedelta(hours=hours):%H:%M}"'


async def test_what_was_stuck_is_judged_by_what_was_known_then(place: Place) -> None:
    """A stuck run is compared with the durations known at that time, not with later ones.

    One that ended before the rule's quiet hours were over is skipped.
    """
    flags, slow = rule(on='{ run = "stuck" }'), [f"slow_{number}" for number in range(5)]
    quiet_one = rule(name='"quiet"', on='{ run = "stuck" }', quiet=quiet(START + timedelta(minutes=20), hours=5))
    runner = await place.begun(flags)
    for run_id in slow:
        await place.run(run_id, "working")
    place.move(hours=1)
    for run_id in slow:
        await place.run(run_id, "completed")
    await place.run("run_2", "working")
    for _ in range(25):
        place.move(minutes=5)
        await place.run("run_2", "working")
        await runner.decide_and_act()
    await place.run("run_2", "completed")
    place.move(hours=5)
    for number in range(100):
        await place.run(f"quick_{number}", "completed")

    found = await replayed(place, flags, quiet_one)

    flagged = {each.occurrence.facts["run.id"]: each.decided_at for each in found["r"].newest}
    assert flagged.keys() == {*slow, "run_2"}
    assert flagged["run_2"] == START + timedelta(hours=1) + 2 * timedelta(hours=1)
    assert {each.occurrence.facts["run.id"] for each in latest(place, "r")} == {"run_2"}
    assert found["quiet"].counts == {}


async def test_what_needs_an_approval_would_wait_for_it(place: Place) -> None:
    """A replayed request never expires, however old it is, since a replay cannot approve it."""
    for number in range(20):
        await place.run("run_1", "failed" if number else "working")
        await place.run("run_2", "completed" if number % 2 else "working")
        place.move(hours=12)

    (found,) = (await replayed(place, rule(approval="true"))).values()

    assert found.counts == {"waiting": 1}
    assert [one.outcome for one in found.newest] == ["waiting"]


async def test_it_says_which_part_of_the_time_is_held(place: Place) -> None:
    """The replay reports the period it covers.

    Runs count from the coverage, hosts from their first sample, schedules always.
    """
    rules = rule(), rule(name='"h"', on=BAD), rule(name='"s"', on='{ schedule = "0 * * * *" }')
    place.move(hours=10)
    nothing = await replayed(place, *rules)
    await place.cache.extend_coverage(START + timedelta(hours=4), place.now, as_of=place.now)
    await place.health(github="ok")
    found = await replayed(place, *rules)

    assert [each.held_since for each in nothing.values()] == [None, None, START]
    assert [each.held_since for each in found.values()] == [START + timedelta(hours=4), place.now, START]


TRIGGERS = (
    '{ run = "failed" }',
    '{ run = "completed" }',
    '{ run = "failed", from = "working", repository = "acme/api" }',
    BAD,
    '{ health = "not ok", for = "1m" }',
    WELL,
    '{ schedule = "*/10 * * * *" }',
    '{ every = "7m" }',
    '{ action = "unknown", older = "3m" }',
)
RESPONSES = (
    {},
    {"do": '{ command = ["true"] }'},
    *({"do": '{ start = "Fix {rule.name}", repository = "acme/api" }', "approval": word} for word in ("false", "true")),
)
"""A notification, a program, or a run, with and without approval. What a started run causes is not replayed."""
MINUTES = 25


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.campaign) for n in range(2, 1_000))])
async def test_a_replay_equals_what_was_done(place: Place, seed: int) -> None:
    """The replay agrees with the runner for random rules, responses and limits over a random history."""
    rng = random.Random(seed)
    texts: list[str] = []
    for number in range(3):
        keys = {"name": f'"r{number}"', "on": rng.choice(TRIGGERS)} | rng.choice((*RESPONSES[:2], *RESPONSES[2:] * 3))
        limits = {"per_hour": rng.randint(1, 4), "per_day": rng.randint(1, 6), "per_conversation": rng.randint(1, 2)}
        chosen = rng.sample(sorted(limits.items()), rng.randint(0, 3))
        keys |= {"limit": f"{{ {', '.join(f'{name} = {value}' for name, value in chosen)} }}"} if chosen else {}
        keys |= {"quiet": quiet(START + timedelta(minutes=rng.randint(0, 15)), hours=1)} if rng.random() < 0.2 else {}
        keys |= {"catch_up": f'"{rng.choice((1, 5, 60))}m"'} if rng.random() < 0.3 else {}
        texts.append(rule(**keys))
    runner = place.runner("\n".join(texts))
    statuses, is_down = dict.fromkeys(("run_1", "run_2", "run_3"), "working"), False
    for minute in range(MINUTES):
        is_down = is_down != (minute > 0 and rng.random() < 0.2)
        await place.health(github="unreachable" if is_down else "ok")
        for run_id, status in statuses.items():
            if minute and rng.random() < 0.25:
                statuses[run_id] = rng.choice(("failed", "completed")) if status == "working" else "working"
            await place.run(run_id, statuses[run_id], repository="acme/web" if run_id == "run_3" else "acme/api")
        if minute and rng.random() < 0.05:
            await place.unknown_write(key=f"k{minute}")
        await runner.decide_and_act()
        place.move(minutes=1)
    await runner.decide_and_act()

    found = await replayed(place, *texts)

    assert {name: dict(each.counts) for name, each in found.items()} == {
        name: Counter(one.outcome for one in latest(place, name)) for name in found
    }, "\n".join(texts)
