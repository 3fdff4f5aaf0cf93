"""The watch over states: hosts, link and token, held before they are told, and ended aloud."""

from datetime import time

import pytest
from msgspec.structs import replace

from app.notify.watch import News
from app.profiles.values import QuietHours
from storage.records.decision import WHEN_ENDED, Occurrence, Outcome, Verdict
from tests.notify.conftest import World, outward, titles

NOON_HOURS = QuietHours(time(11), time(13))


async def polled(world: World, minutes: float, **statuses: str) -> None:
    """Two health polls a minute."""
    for _ in range(int(minutes * 2)):
        world.pass_(seconds=30)
        await world.health(**statuses)


async def test_a_host_is_told_once_it_has_been_bad_for_long_enough(world: World) -> None:
    """Not at its first bad answer; then once; and once when it is well again for as long."""
    await world.health(github="ok")
    watch = await world.watch(hold_s=60)
    await polled(world, 1, github="unreachable")
    assert await watch.look() == News()

    await polled(world, 1, github="unreachable")
    assert titles(await watch.look()) == ["Code host github is unreachable"]
    await polled(world, 5, github="unreachable")
    assert await watch.look() == News()

    await polled(world, 1, github="ok")
    assert await watch.look() == News()
    await polled(world, 1, github="ok")
    (over,) = (await watch.look()).screen
    assert over.title == "Code host github has recovered"
    assert over.body.startswith("after 7m00s")
    assert await watch.look() == News()


async def test_a_host_that_flaps_is_told_once(world: World) -> None:
    """Recoveries that do not hold end nothing: one trouble, one piece of news, one end."""
    await world.health(github="ok")
    watch = await world.watch(hold_s=60)
    told: list[str] = []
    for _ in range(10):
        await polled(world, 0.5, github="unreachable")
        await polled(world, 0.5, github="ok")
        told += titles(await watch.look())

    assert told == []
    # Well at every look so far. The first look at a bad moment tells it.
    await polled(world, 0.5, github="unreachable")
    assert titles(await watch.look()) == ["Code host github is flapping: unreachable"]
    await polled(world, 3, github="ok")
    assert titles(await watch.look()) == ["Code host github has recovered"]


async def test_a_trouble_that_gets_worse_is_told_again(world: World) -> None:
    """Degraded is a warning; unreachable is more."""
    watch = await world.watch(hold_s=60)
    await polled(world, 2, github="degraded")
    first = await watch.look()
    await polled(world, 2, github="unreachable")
    second = await watch.look()
    await polled(world, 2, github="degraded")

    assert [news.level for news in (*first.screen, *second.screen)] == ["warning", "error"]
    assert await watch.look() == News()


async def test_the_link_is_told_when_it_stays_down(world: World) -> None:
    """After it held, once; and when it is back."""
    await world.link()
    watch = await world.watch(hold_s=60)
    await world.link("unreachable")
    assert await watch.look() == News()

    world.pass_(seconds=61)
    await world.link("unreachable")
    down = await watch.look()
    assert titles(down) == outward(down) == ["No link to the service: acme-prod"]
    assert await (await world.watch(hold_s=60)).look() == News()

    world.pass_(minutes=3)
    await world.link()
    assert titles(await watch.look()) == ["The link to the service is back: acme-prod"]
    assert await watch.look() == News()


async def test_a_refused_token_is_told_at_once_and_is_not_the_link(world: World) -> None:
    """Waiting does not cure it."""
    watch = await world.watch(hold_s=60)
    await world.link("not_authorized")

    assert titles(await watch.look()) == ["The service refused the token (401): acme-prod"]


async def test_quiet_hours_hold_states_back_and_drop_moves(world: World) -> None:
    """The screen says both at once; when the hours end, what still lasts is told outside, and nothing else."""
    await world.run("run_1", "working")
    watch = await world.watch(hold_s=60, quiet=NOON_HOURS)
    await polled(world, 2, github="unreachable")
    await world.run("run_1", "failed")
    quiet = await watch.look()
    assert sorted(titles(quiet)) == ["Code host github is unreachable", "Run failed after 2m00s: acme/api"]
    assert outward(quiet) == []

    world.pass_(hours=1)
    await world.health(github="unreachable")
    late = await watch.look()

    assert titles(late) == []
    assert outward(late) == ["Code host github is unreachable"]
    assert await watch.look() == News()


@pytest.mark.parametrize(
    ("outcome", "level", "title"),
    [
        ("done", "information", "The run has ended, and the waiting continuation was sent"),
        ("expired", "warning", "The waiting continuation was not sent"),
        ("skipped", "", ""),
    ],
)
async def test_what_became_of_a_waiting_continuation_is_told_once(
    world: World, outcome: Outcome, level: str, title: str
) -> None:
    """Also where no console was open when it was sent; one that a person cancelled is no news."""
    watch = await world.watch()
    occurrence = Occurrence("asked:1", world.now, "", {"run.id": "run_1\x1b"})
    asked = await world.state.decide(WHEN_ENDED, occurrence, lambda _: Verdict("queued"), request_json="{}")
    assert asked is not None
    assert await watch.look() == News()
    world.pass_(minutes=1)
    await world.state.settle(replace(asked, outcome=outcome, reason="gone"))

    news = [await watch.look(), await watch.look(), await (await world.watch()).look()]
    bodies = [one.body for each in news for one in each.screen]
    assert [titles(each) for each in news] == [[title] if title else [], [], []]
    assert bodies == ([f"gone · run_1␛ · {watch.profile}"] if title else [])
    assert [one.level for one in news[0].screen] == ([level] if title else [])
