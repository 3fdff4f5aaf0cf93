"""Telling: a storm is one message, each problem is told once and again until it is acknowledged, and so is its end."""

import re
from datetime import timedelta

import pytest

from app.automations.acting import alert
from app.rules.rule import DoNotify
from storage.records.decision import Decision, Occurrence
from storage.records.inbox import Mark
from tests.notify.conftest import TO_ALL, Desk, outward


@pytest.mark.parametrize("repositories", [1, 50])
async def test_a_storm_of_failures_is_one_message_with_its_recovery(desk: Desk, repositories: int) -> None:
    """Whether one repository fails or many do; further ones wait for the interval."""
    dispatcher, names = await desk.began(), [f"acme/r{number}" for number in range(repositories)]
    await desk.world.storm(500, *names)
    await dispatcher.look()
    assert await desk.titles() == []

    desk.world.pass_(seconds=30)
    await dispatcher.look()
    (message,) = await desk.made()
    assert re.fullmatch(r"Run failed: acme/r\d+ \(and 499 more\)", message.title)
    assert f"{names[0]} {500 // repositories}" in message.body
    assert ("and 45 other places" in message.body) == (repositories == 50)

    for name in names:
        await desk.world.run(name, "completed", repository=name)
    await dispatcher.look()
    (over,) = await desk.made()
    assert over.title.startswith("Runs complete again: acme/r")
    assert "500 in all" in over.body
    assert (over.level, await desk.pass_(dispatcher, hours=2)) == ("information", [])


async def test_what_comes_during_the_interval_is_told_after_it(desk: Desk) -> None:
    """As one message, and nothing of it twice, by whichever process."""
    dispatcher = await desk.began()
    told = []
    for number in range(5):
        await desk.world.run(f"run_{number}", "failed")
        told += await desk.pass_(dispatcher, seconds=40)
    assert told == ["Run failed: acme/api (and 1 more)"]
    assert await desk.pass_(desk.dispatcher(), minutes=5) == ["Run failed: acme/api (and 2 more)"]
    assert await desk.pass_(desk.dispatcher(TO_ALL + '[notify]\non = ["failed", "completed"]'), minutes=9) == []


async def test_what_rules_tell_is_grouped_for_each_rule(desk: Desk) -> None:
    """With their own titles; its recovery names the rule."""
    dispatcher = await desk.began('[notify.routes.oncall]\ncommand = ["true"]')
    await desk.world.storm(20, "acme/api")
    for number in range(20):
        occurrence = Occurrence(f"run:run_{number}:failed", desk.world.now)
        facts = {"run.id": f"run_{number}", "run.repository": "acme/api", "run.status": "failed"}
        decision = Decision(number, "r", occurrence, desk.world.now, "acting", "")
        for _again_after_a_crash in range(2):
            one = alert(DoNotify("oncall", "Broken: {run.repository}"), decision, facts, "acme")
            await desk.state.enter_alerts([one], desk.world.now)
    assert await desk.pass_(dispatcher, seconds=30) == ["Broken: acme/api (and 19 more)"]

    await desk.world.run("good", "completed")
    assert await desk.pass_(dispatcher, seconds=1) == ["r: Runs complete again: acme/api"]


async def test_while_the_link_is_down_nothing_is_said_to_be_over(desk: Desk) -> None:
    """What cannot be known is not told; the link itself is."""
    dispatcher = await desk.began()
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == ["Run failed: acme/api"]
    await desk.world.run("run_2", "completed")
    for _ in range(2):
        await desk.world.link("unreachable")
        desk.world.pass_(minutes=1)

    assert await desk.pass_(dispatcher, looks=2, seconds=30) == ["No link to the service: acme"]
    await desk.world.link()
    assert await desk.pass_(dispatcher, seconds=30) == [
        "Runs complete again: acme/api",
        "The link to the service is back (runs)",
    ]


async def test_history_is_not_told(desk: Desk) -> None:
    """What failed before the bot was there, and what is so old that a bot that was away does not tell it."""
    await desk.world.run("run_1", "failed")
    desk.world.pass_(seconds=10)
    dispatcher = desk.dispatcher()
    await dispatcher.look()
    assert await desk.pass_(dispatcher, minutes=10) == []
    await desk.world.run("run_2", "failed")

    assert await desk.pass_(desk.dispatcher(), looks=2, hours=25) == []


SHARED = '[notify]\ncommand = ["true"]\n'


@pytest.mark.parametrize("first", ["console", "bot"])
async def test_a_console_and_a_bot_tell_once_over_the_channels_they_share(desk: Desk, first: str) -> None:
    """Whichever comes first, with its recovery."""
    bot, console = await desk.began(SHARED), await desk.world.watch(command=("true",))
    await desk.world.health(github="unreachable")
    desk.world.pass_(minutes=2)
    await desk.world.health(github="unreachable")
    told: dict[str, list[str]] = {"console": [], "bot": []}
    for _ in range(2):
        for who in (first, "bot", "console"):
            if who == "bot":
                told["bot"] += await desk.pass_(bot, looks=2, seconds=30)
            else:
                told["console"] += outward(await console.look())
        for _ in range(3):
            await desk.world.health(github="ok")
            desk.world.pass_(minutes=1)

    other = "bot" if first == "console" else "console"
    assert told == {first: ["Code host github is unreachable", "Code host github has recovered"], other: []}


async def test_in_quiet_hours_the_channels_of_notify_wait(desk: Desk) -> None:
    """What is still so when they end is told then, and its recovery waits as well; other routes do not."""
    now = desk.world.now.astimezone()
    hours = f"{now:%H:%M}-{now + timedelta(hours=2):%H:%M}"
    quiet = await desk.began(f'{SHARED}quiet = "{hours}"')
    for run, repository in (("run_1", "acme/api"), ("run_2", "acme/web")):
        await desk.world.run(run, "failed", repository=repository)
    assert await desk.pass_(quiet, looks=3, minutes=20) == []
    await desk.world.run("run_1", "completed")
    assert "unrouted" not in [line["event"] for line in desk.said]

    assert await desk.pass_(quiet, looks=2, hours=1) == ["Run failed: acme/web"]


REPEATED = """
[notify.routes.oncall]
command = ["true"]
repeat = "1h"
give_up = "6h"
[[notify.rules]]
route = "oncall"
"""
FAILED, OVER = "Run failed: acme/api", "Runs complete again: acme/api"


@pytest.mark.parametrize("how", ["muted", "snoozed", "acknowledged", "reloaded"])
async def test_what_was_told_has_its_recovery(desk: Desk, how: str) -> None:
    """Whatever came in between; and only once."""
    dispatcher = await desk.began()
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, minutes=1) == [FAILED]
    later = desk.world.now + timedelta(days=30)
    marks = {"muted": Mark(is_muted=True), "snoozed": Mark(snoozed_until=later), "acknowledged": Mark(done_until=later)}
    if how in marks:
        await desk.state.mark({"failed:acme/api": marks[how]}, desk.world.now)
    else:
        dispatcher = desk.dispatcher()
        assert await desk.pass_(dispatcher, minutes=1) == []

    await desk.world.run("run_1", "completed")
    assert await desk.pass_(dispatcher, looks=3, minutes=1) == [OVER]


async def test_what_was_put_off_is_told_if_it_still_is_so(desk: Desk) -> None:
    """A host that is bad for weeks, though not that a run once failed; what is muted never is, nor an event."""
    dispatcher = await desk.began(TO_ALL + '[notify]\non = ["failed", "completed", "link"]')
    until = desk.world.now + timedelta(days=20)
    snoozed = ("failed:acme/web", "run:acme/api", "link:runs")
    marks = {"failed:acme/api": Mark(is_muted=True), **dict.fromkeys(snoozed, Mark(snoozed_until=until))}
    await desk.state.mark(marks, desk.world.now)
    await desk.world.run("run_1", "failed")
    await desk.world.run("run_2", "completed")
    await desk.world.run("run_3", "failed", repository="acme/web")
    for _ in range(2):
        await desk.world.link("unreachable")
        assert await desk.pass_(dispatcher, minutes=10) == []
    desk.world.pass_(days=20)
    (title,) = await desk.pass_(dispatcher, minutes=1)

    assert title.startswith("No link to the service")


async def test_it_is_repeated_until_it_is_acknowledged_or_given_up(desk: Desk) -> None:
    """Every hour, and not months later; what fails after it was acknowledged is news, and is repeated in its turn."""
    dispatcher, again = await desk.began(REPEATED), f"Still so: {FAILED}"
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await desk.pass_(dispatcher, looks=4, minutes=20) == [again]
    await desk.state.mark({"failed:acme/api": Mark(done_until=desk.world.now)}, desk.world.now)
    assert await desk.pass_(dispatcher, looks=8, minutes=30) == []

    await desk.world.run("run_2", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await desk.pass_(dispatcher, looks=24 * 4, minutes=15) == [again] * 6
    assert await desk.pass_(desk.dispatcher(REPEATED), looks=3, days=40) == []

    await desk.world.run("run_1", "completed")
    assert await desk.pass_(dispatcher, minutes=1) == [OVER]
