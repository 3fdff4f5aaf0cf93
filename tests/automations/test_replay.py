"""Replay: what the runner itself would have done over the cached history, for every trigger that it can show."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.automations.replay import Replayed, replay
from app.profiles.load import parse
from tests.automations.conftest import Place, rule

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def replayed(place: Place, *texts: str) -> dict[str, Replayed]:
    """Of everything up to now."""
    settings = parse(Path("/etc/config.toml"), "\n".join(texts))
    engine: Any = SimpleNamespace(
        cache=place.world.cache,
        ledger=place.ledger,
        settings=settings,
        profile=SimpleNamespace(poll=SimpleNamespace(health_s=30.0)),
    )
    return await replay(engine, settings.automations, START, place.world.now)


async def live(place: Place, *texts: str) -> AsyncIterator[None]:
    """A bot that looks each minute, beside what happens."""
    runner = place.runner("\n".join(texts))
    while True:
        await runner.look()
        yield
        place.world.pass_(minutes=1)


BAD, WELL = '{ health = "not ok", for = "5m" }', '{ health = "recovered" }'


async def test_it_finds_what_a_bot_did(place: Place) -> None:
    """Hosts, runs that fail and that are stuck, times and unknown outcomes: the same decisions, whatever the rule."""
    texts = [
        rule(name='"bad"', on=BAD),
        rule(name='"well"', on=WELL),
        rule(name='"failed"', limit="{ per_hour = 1 }"),
        rule(name='"stuck"', on='{ run = "stuck" }'),
        rule(name='"hourly"', on='{ schedule = "0 * * * *" }'),
        rule(name='"unknown"', on='{ action = "unknown", older = "30m" }'),
        rule(name='"quiet"', on='{ run = "stuck" }', quiet=quiet(START + timedelta(minutes=20), hours=1)),
    ]
    minutes = live(place, *texts)
    for minute in range(150):
        await place.world.health(github="unreachable" if 10 <= minute < 22 else "ok")
        await place.world.run("run_1", "failed" if minute >= 60 else "working")
        await place.world.run("run_2", "failed" if minute >= 62 else "working")
        await place.world.run("run_3", "completed" if minute >= 120 else "working", repository="acme/web")
        if minute == 15:
            await place.unknown_write()
        await anext(minutes)

    found = await replayed(place, *texts)

    for name, each in found.items():
        mine = latest(place, name)
        assert sorted(each.counts.items()) == sorted(count(one.outcome for one in mine).items()), name
        for then, again in zip(sorted(mine, key=at), sorted(each.newest, key=at), strict=True):
            assert abs(then.decided_at - again.decided_at) <= timedelta(minutes=2), (name, then, again)
        assert sum(each.counts.values()) > 0, name


def quiet(begin: datetime, *, hours: int) -> str:
    """These hours of the local day."""
    return f'"{begin.astimezone():%H:%M}-{begin.astimezone() + timedelta(hours=hours):%H:%M}"'


def at(decision: Any) -> datetime:
    return decision.decided_at


def count(words: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found


async def test_what_was_stuck_is_judged_by_what_was_known_then(place: Place) -> None:
    """The repository's runs took an hour until then; that later ones took minutes changes nothing about it."""
    for number in range(5):
        await place.world.run(f"slow_{number}", "working")
    place.world.pass_(hours=1)
    for number in range(5):
        await place.world.run(f"slow_{number}", "completed")
    await place.world.run("run_2", "working")
    place.world.pass_(minutes=121)
    await place.world.run("run_2", "completed")
    place.world.pass_(hours=5)
    for number in range(200):
        await place.world.run(f"quick_{number}", "completed")

    (found,) = (await replayed(place, rule(on='{ run = "stuck" }'))).values()

    flagged = {each.occurrence.facts["run.id"]: each.decided_at for each in found.newest}
    assert flagged.keys() == {*(f"slow_{number}" for number in range(5)), "run_2"}
    assert flagged["run_2"] == START + timedelta(hours=1) + 2 * timedelta(hours=1)


async def test_what_needs_an_approval_would_wait_for_it(place: Place) -> None:
    """Nothing in a replay could give it, so it does not expire either, however long ago it was."""
    for number in range(20):
        await place.world.run("run_1", "failed" if number else "working")
        await place.world.run("run_2", "completed" if number % 2 else "working")
        place.world.pass_(hours=12)

    (found,) = (await replayed(place, rule(approval="true"))).values()

    assert found.counts == {"waiting": 1}
    assert [one.outcome for one in found.newest] == ["waiting"]


@pytest.mark.parametrize("holds", [True, False])
async def test_it_says_which_part_of_the_time_is_held(place: Place, *, holds: bool) -> None:
    """Runs as far as the coverage reaches, hosts since their first sample, times always."""
    place.world.pass_(hours=10)
    if holds:
        await place.world.cache.extend_coverage(START + timedelta(hours=4), place.world.now, as_of=place.world.now)
        await place.world.health(github="ok")
    found = await replayed(place, rule(), rule(name='"h"', on=BAD), rule(name='"s"', on='{ schedule = "0 * * * *" }'))

    since = [found[name].held_since for name in ("r", "h", "s")]
    assert since == ([START + timedelta(hours=4), START + timedelta(hours=10), START] if holds else [None, None, START])


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
"""A notification, a program, or a run, with and without approval. What a started run leads to is not replayed."""
MINUTES = 25


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(n, marks=pytest.mark.campaign) for n in range(5, 1_000))])
async def test_a_replay_equals_what_was_done(place: Place, seed: int) -> None:
    """For random rules with random responses and limits, over a random history of runs, hosts and writes."""
    rng = random.Random(seed)
    texts = []
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
        await place.world.health(github="unreachable" if is_down else "ok")
        for run_id, status in statuses.items():
            if minute and rng.random() < 0.25:
                statuses[run_id] = rng.choice(("failed", "completed")) if status == "working" else "working"
            await place.world.run(run_id, statuses[run_id], repository="acme/web" if run_id == "run_3" else "acme/api")
        if minute and rng.random() < 0.05:
            await place.unknown_write(key=f"k{minute}")
        await runner.look()
        place.world.pass_(minutes=1)
    await runner.look()

    found = await replayed(place, *texts)

    done = {name: count(one.outcome for one in latest(place, name)) for name in found}
    assert {name: dict(each.counts) for name, each in found.items()} == done, "\n".join(texts)


def latest(place: Place, name: str) -> Any:
    """The rule's decisions, each as it was journalled last."""
    return {one.decision_id: one for one in place.journal if one.rule == name}.values()
