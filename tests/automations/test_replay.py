"""Replay: what the runner itself would have done over the cached history, for every trigger that it can show."""

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
        mine = {one.decision_id: one for one in place.journal if one.rule == name}.values()
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
