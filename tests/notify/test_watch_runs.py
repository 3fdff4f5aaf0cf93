"""The watch over runs: what is told, once, and what is not."""

import pytest
from msgspec.structs import replace

from app.notify.watch import News
from storage.records.results import FailureFacts
from tests.notify.conftest import World, outward, titles


async def test_a_run_that_fails_is_told_once(world: World) -> None:
    """With what it is and how long it took; the next look is silent."""
    await world.run("run_1", "working")
    watch = await world.watch()
    world.pass_(minutes=4)
    await world.run("run_1", "failed")

    told = await watch.look()

    assert titles(told) == outward(told) == ["Run failed after 4m00s: acme/api"]
    assert told.screen[0].body == "agent/x · run_1 · acme-prod"
    assert await watch.look() == News()


async def test_a_cancelled_run_is_no_failure(world: World) -> None:
    """Who cancelled it knows; a followed one is told by the right word."""
    for run_id in ("run_1", "run_2"):
        await world.run(run_id, "working")
    await world.cache.following.pin("run_2", at=world.now)
    watch = await world.watch()
    world.pass_(minutes=1)
    for run_id in ("run_1", "run_2"):
        await world.run(run_id, "failed")
    await world.cache.store_failure_facts(FailureFacts(cancelled=("run_1", "run_2")), 0)

    assert titles(await watch.look()) == ["Run cancelled after 1m00s: acme/api"]


async def test_every_move_of_a_followed_run_is_told(world: World) -> None:
    """Queued to working to its end, and also its next turn."""
    await world.run("run_1", "queued")
    await world.cache.following.pin("run_1", at=world.now)
    watch = await world.watch()

    for status, words in (
        ("working", "Run working"),
        ("completed", "Run completed after 1m00s"),
        ("queued", "Run queued"),
    ):
        world.pass_(minutes=0.5)
        await world.run("run_1", status)

        assert titles(await watch.look()) == [f"{words}: acme/api"]


async def test_the_first_sync_tells_nothing_of_the_past(world: World) -> None:
    """A thousand failed runs of last week are new to the cache only."""
    watch = await world.watch()
    world.now, now = world.now.replace(day=1, hour=1), world.now
    for number in range(20):
        await world.run(f"run_{number}", "failed", hours=1)
    world.now = now

    assert await watch.look() == News()


async def test_many_at_once_are_told_as_one(world: World) -> None:
    """With their number and places; a followed one among them keeps its own words."""
    for number in range(12):
        await world.run(f"run_{number}", "working", repository=f"acme/r{number % 2}")
    await world.cache.following.pin("run_7", at=world.now)
    watch = await world.watch()
    world.pass_(minutes=1)
    for number in range(12):
        await world.run(f"run_{number}", "failed", repository=f"acme/r{number % 2}")

    told = await watch.look()

    assert (
        titles(told)
        == outward(told)
        == [
            "Run failed after 1m00s: acme/r1",
            "Run failed after 1m00s: acme/r1 (and 10 more)",
        ]
    )
    assert told.screen[1].body.startswith("acme/r0 6, acme/r1 5 · ")


async def test_what_happened_while_it_was_off_is_summed_up(world: World) -> None:
    """On the screen, in one line; a followed run's end is told in full."""
    for number in range(9):
        await world.run(f"run_{number}", "working")
    await world.cache.following.pin("run_8", at=world.now)
    await (await world.watch()).look()
    world.pass_(minutes=5)
    for number in range(9):
        await world.run(f"run_{number}", "failed" if number < 3 or number == 8 else "completed")
    # It came and went unseen, and is no less news; a run of last week that a backfill brings is none.
    await world.run("run_unseen", "failed", minutes=1)
    world.pass_(hours=8)
    later, world.now = world.now, world.now.replace(day=1, hour=1)
    await world.run("run_old", "failed", hours=1)
    world.now = later

    told = await (await world.watch()).look()

    assert titles(told) == ["Run failed after 5m00s: acme/api", "While you were away: 4 failed"]
    assert outward(told) == ["Run failed after 5m00s: acme/api"]


async def test_a_stuck_run_is_told_once(world: World) -> None:
    """With how long its repository's runs take; a flag that comes back for the same turn is no news."""
    for number in range(20):
        await world.run(f"run_{number}", "working", minutes=2)
        await world.run(f"run_{number}", "completed")
    await world.run("run_x", "working")
    watch = await world.watch()
    for _ in range(4):
        world.pass_(minutes=10)
        await world.run("run_x", "working")

    told = await watch.look()

    assert titles(told) == ["Run stuck: acme/api, working for 40m00s"]
    assert told.screen[0].body.startswith("95 of 100 there end within 2m00s")
    assert await watch.look() == News()
    assert await (await world.watch()).look() == News()


async def test_hostile_names_are_told_in_printable_text(world: World) -> None:
    """A branch that would ring, clear the screen or hide."""
    watch = await world.watch()
    await world.run("run_\x1b]0;x\x07[/b]", "failed", repository="acme/\x9b2J\u202e")

    (told,) = (await watch.look()).screen

    assert told.title.isprintable()
    assert told.body.isprintable()


@pytest.mark.parametrize("ahead", [2, -2])
async def test_the_first_watch_counts_by_the_services_clock(world: World, ahead: int) -> None:
    """What failed an hour before is no news, and what fails a minute later is, however its clock is set."""

    async def fails(run_id: str, minutes: int) -> None:
        world.pass_(hours=ahead, minutes=minutes)
        await world.run(run_id, "failed", hours=3)
        world.pass_(hours=-ahead, minutes=-minutes)

    await world.cache.change_budget(lambda state: replace(state, clock_ahead_s=ahead * 3_600, clock_heard=1))
    watch = await world.watch()
    await fails("run_1", -60)
    assert titles(await watch.look()) == []
    await fails("run_2", 1)
    assert titles(await watch.look()) == ["Run failed after 3h00m: acme/api"]
