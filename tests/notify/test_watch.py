"""Changes of runs and states: which are notified, and only once."""

from datetime import time

import pytest
from msgspec.structs import replace

from app.notify.watch import News
from app.profiles.values import QuietHours
from storage.records.decision import WHEN_ENDED, Occurrence, Outcome, Verdict
from storage.records.results import FailureFacts
from tests.notify.conftest import World, outward, titles


async def test_a_cancelled_run_is_not_a_failure(world: World) -> None:
    """A followed run is reported as cancelled, others are not reported; hostile names are made printable."""
    hostile = "acme/\x9b2J\u202e"
    for run_id in ("run_1", "run_2"):
        await world.run(run_id, "working", repository=hostile, branch="\x1b]0;x\x07[/b]")
    await world.cache.pin("run_2", at=world.now)
    watch = await world.watch()
    world.move(minutes=1)
    for run_id in ("run_1", "run_2"):
        await world.run(run_id, "failed", repository=hostile, branch="\x1b]0;x\x07[/b]")
    await world.cache.store_failure_facts(FailureFacts(cancelled=("run_1", "run_2")), 0)

    (told,) = (await watch.read_news()).screen
    assert told.title.startswith("Run cancelled after 1m00s: acme/")
    assert (told.title + told.body).isprintable()


async def test_many_runs_at_once_are_one_notice(world: World) -> None:
    """The notice has their number and repositories; a followed run among them keeps its own text."""
    for number in range(12):
        await world.run(f"run_{number}", "working", repository=f"acme/r{number % 2}")
    await world.cache.pin("run_7", at=world.now)
    watch = await world.watch()
    world.move(minutes=1)
    for number in range(12):
        await world.run(f"run_{number}", "failed", repository=f"acme/r{number % 2}")

    told = await watch.read_news()

    failed = "Run failed after 1m00s: acme/r1"
    assert titles(told) == outward(told) == [failed, f"{failed} (and 10 more)"]
    assert told.screen[1].body.startswith("acme/r0 6, acme/r1 5 · ")


async def test_events_while_closed_are_summed_up(world: World) -> None:
    """The screen sums it up in one line; a followed run's end is reported in full."""
    for number in range(9):
        await world.run(f"run_{number}", "working")
    await world.cache.pin("run_8", at=world.now)
    await (await world.watch()).read_news()
    world.move(minutes=5)
    for number in range(9):
        await world.run(f"run_{number}", "failed" if number < 3 or number == 8 else "completed")
    # It started and ended unseen, and is still new; an old run that a backfill brings is not.
    await world.run("run_unseen", "failed", minutes=1)
    world.move(hours=8)
    later, world.now = world.now, world.now.replace(day=1, hour=1)
    await world.run("run_old", "failed", hours=1)
    world.now = later

    told = await (await world.watch()).read_news()

    assert titles(told) == ["Run failed after 5m00s: acme/api", "While you were away: 4 failed"]
    assert outward(told) == ["Run failed after 5m00s: acme/api"]


async def test_a_stuck_run_is_notified_once(world: World) -> None:
    """The notice has the usual duration of its repository's runs; a flag that returns for the same turn is not new."""
    for number in range(20):
        await world.run(f"run_{number}", "working", minutes=2)
        await world.run(f"run_{number}", "completed")
    await world.run("run_x", "working")
    watch = await world.watch()
    for _ in range(4):
        world.move(minutes=10)
        await world.run("run_x", "working")

    told = await watch.read_news()

    assert titles(told) == ["Run stuck: acme/api, working for 40m00s"]
    assert told.screen[0].body.startswith("95 of 100 there end within 2m00s")
    assert await watch.read_news() == News()
    assert await (await world.watch()).read_news() == News()


@pytest.mark.parametrize("ahead", [2, -2])
async def test_the_first_watch_uses_the_services_clock(world: World, ahead: int) -> None:
    """A failure an hour before is history, one a minute later is notified once, whatever the service's clock says."""

    async def fails(run_id: str, minutes: int) -> None:
        world.move(hours=ahead, minutes=minutes)
        await world.run(run_id, "failed", hours=3)
        world.move(hours=-ahead, minutes=-minutes)

    await world.cache.change_budget(lambda state: replace(state, clock_ahead_s=ahead * 3_600, clock_heard=1))
    watch = await world.watch()
    await fails("run_1", -60)
    assert titles(await watch.read_news()) == []
    await fails("run_2", 1)
    told = await watch.read_news()
    assert titles(told) == outward(told) == ["Run failed after 3h00m: acme/api"]
    assert told.screen[0].body == "agent/x · run_2 · acme-prod"
    assert await watch.read_news() == News()


# states of hosts, link and token: notified once they last, and when they end


async def polled(world: World, minutes: float, **statuses: str) -> None:
    """Two health polls a minute."""
    for _ in range(int(minutes * 2)):
        world.move(seconds=30)
        await world.health(**statuses)


async def test_a_host_is_notified_after_a_lasting_problem(world: World) -> None:
    """The first bad answer is not notified; a lasting problem is, once, and so is a lasting recovery."""
    await world.health(github="ok")
    watch = await world.watch(hold_s=60)
    await polled(world, 1, github="unreachable")
    assert await watch.read_news() == News()

    await polled(world, 1, github="unreachable")
    assert titles(await watch.read_news()) == ["Code host github is unreachable"]
    await polled(world, 5, github="unreachable")
    assert await watch.read_news() == News()

    await polled(world, 1, github="ok")
    assert await watch.read_news() == News()
    await polled(world, 1, github="ok")
    (over,) = (await watch.read_news()).screen
    assert over.title == "Code host github has recovered"
    assert over.body.startswith("after 7m00s")
    assert await watch.read_news() == News()


async def test_a_lasting_link_outage_is_notified(world: World) -> None:
    """An outage that lasts is notified once, and so is its end.

    A refused token is notified at once, since waiting cannot fix it.
    """
    await world.link()
    watch = await world.watch(hold_s=60)
    await world.link("unreachable")
    assert await watch.read_news() == News()

    world.move(seconds=61)
    await world.link("unreachable")
    down = await watch.read_news()
    assert titles(down) == outward(down) == ["No link to the service: acme-prod"]
    assert await (await world.watch(hold_s=60)).read_news() == News()

    world.move(minutes=3)
    await world.link()
    assert titles(await watch.read_news()) == ["The link to the service is back: acme-prod"]
    assert await watch.read_news() == News()
    await world.link("not_authorized")
    assert titles(await watch.read_news()) == ["The service refused the token (401): acme-prod"]


async def test_quiet_hours_delay_states_and_drop_events(world: World) -> None:
    """The screen shows both at once; after quiet hours, only states that still last are sent."""
    await world.run("run_1", "working")
    watch = await world.watch(hold_s=60, quiet=QuietHours(time(11), time(13)))
    await polled(world, 2, github="unreachable")
    await world.run("run_1", "failed")
    quiet = await watch.read_news()
    assert sorted(titles(quiet)) == ["Code host github is unreachable", "Run failed after 2m00s: acme/api"]
    assert outward(quiet) == []

    world.move(hours=1)
    await world.health(github="unreachable")
    late = await watch.read_news()

    assert titles(late) == []
    assert outward(late) == ["Code host github is unreachable"]
    assert await watch.read_news() == News()


@pytest.mark.parametrize(
    ("outcome", "level", "title"),
    [
        ("done", "information", "The run has ended, and the waiting continuation was sent"),
        ("expired", "warning", "The waiting continuation was not sent"),
        ("skipped", "", ""),
    ],
)
async def test_a_waiting_continuations_result_is_reported_once(
    world: World, outcome: Outcome, level: str, title: str
) -> None:
    """The result is reported even if no console was open when it was sent; one that a user cancelled is not."""
    watch = await world.watch()
    occurrence = Occurrence("asked:1", world.now, "", {"run.id": "run_1\x1b"})
    asked = await world.state.decide(WHEN_ENDED, occurrence, lambda _: Verdict("queued"), request_json="{}")
    assert asked is not None
    assert await watch.read_news() == News()
    world.move(minutes=1)
    await world.state.settle(replace(asked, outcome=outcome, reason="gone"))

    news = [await watch.read_news(), await watch.read_news(), await (await world.watch()).read_news()]
    bodies = [one.body for each in news for one in each.screen]
    assert [titles(each) for each in news] == [[title] if title else [], [], []]
    assert bodies == ([f"gone · run_1␛ · {watch.profile}"] if title else [])
    assert [one.level for one in news[0].screen] == ([level] if title else [])
