"""Silences, recovery, repeating and escalating: a person hears what is still so until one takes it over."""

from datetime import timedelta

import pytest

from storage.records.inbox import Mark
from tests.notify.desk import TO_ALL, Desk

ROUTES = """
[notify.routes.oncall]
command = ["true"]
repeat = "1h"
escalate_after = "15m"
escalate_to = "lead"
give_up = "6h"
[notify.routes.lead]
command = ["true"]
[[notify.rules]]
route = "oncall"
"""
FAILED, OVER = "Run failed: acme/api", "Runs complete again: acme/api"


async def test_a_silence_ends_and_tells_what_is_still_so(desk: Desk) -> None:
    """What is over by then is not told, and has no recovery."""
    dispatcher, now = await desk.began(), desk.world.now
    await desk.state.add_silence("failed:acme/*", now + timedelta(days=3), "we know", now)
    await desk.world.run("run_1", "failed")
    await desk.world.run("run_2", "failed", repository="acme/web")
    await desk.world.run("run_3", "failed", repository="other/web")
    assert await desk.pass_(dispatcher, looks=3, hours=1) == ["Run failed: other/web"]
    await desk.world.run("run_4", "completed", repository="acme/web")

    assert await desk.pass_(dispatcher, looks=2, days=1) == []
    assert await desk.pass_(dispatcher, looks=2, days=1) == [FAILED]


@pytest.mark.parametrize("how", ["silenced", "muted", "snoozed", "acknowledged", "reloaded"])
async def test_what_was_told_has_its_recovery(desk: Desk, how: str) -> None:
    """Whatever came in between; and only once."""
    dispatcher = await desk.began()
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, minutes=1) == [FAILED]
    later = desk.world.now + timedelta(days=30)
    marks = {"muted": Mark(is_muted=True), "snoozed": Mark(snoozed_until=later), "acknowledged": Mark(done_until=later)}
    if how in marks:
        await desk.state.mark({"failed:acme/api": marks[how]}, desk.world.now)
    elif how == "silenced":
        await desk.state.add_silence("*", later, "", desk.world.now)
    else:
        dispatcher = desk.dispatcher()
        assert await desk.pass_(dispatcher, minutes=1) == []

    await desk.world.run("run_1", "completed")
    assert await desk.pass_(dispatcher, looks=3, minutes=1) == [OVER]


async def test_muted_is_never_told_and_what_ended_unheard_has_no_recovery(desk: Desk) -> None:
    """An event in a silence is gone with it."""
    dispatcher = await desk.began(TO_ALL + '[notify]\non = ["failed", "completed"]')
    await desk.state.mark({"failed:acme/api": Mark(is_muted=True)}, desk.world.now)
    silence = await desk.state.add_silence("run:*", desk.world.now + timedelta(hours=1), "", desk.world.now)
    await desk.world.run("run_1", "failed")
    await desk.world.run("run_2", "completed")
    assert await desk.pass_(dispatcher, looks=2, minutes=5) == []

    assert await desk.state.end_silence(silence.silence_id, desk.world.now)
    assert await desk.pass_(dispatcher, looks=3, hours=1) == []


async def test_it_is_repeated_and_escalated_until_it_is_given_up(desk: Desk) -> None:
    """Every hour, to others once; after six hours nothing more, and not months later."""
    dispatcher = await desk.began(ROUTES)
    await desk.world.run("run_1", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == [FAILED]

    told = await desk.pass_(dispatcher, looks=24 * 4, minutes=15)
    assert told == [f"Not acknowledged: {FAILED}", *[f"Still so: {FAILED}"] * 6]
    assert [each.message.route for each in await desk.state.recent_deliveries()][::-1][1] == "lead"
    assert await desk.pass_(desk.dispatcher(ROUTES), looks=3, days=40) == []

    await desk.world.run("run_1", "completed")
    over = await desk.pass_(dispatcher, minutes=1)
    assert over == [OVER, OVER]


async def test_nothing_is_told_again_after_it_was_acknowledged(desk: Desk) -> None:
    """Neither repeated nor escalated; what fails afterwards is news, and is escalated in its turn."""
    dispatcher = await desk.began(ROUTES)
    await desk.world.run("run_1", "failed")
    assert len(await desk.pass_(dispatcher, looks=4, minutes=10)) == 2
    await desk.state.mark({"failed:acme/api": Mark(done_until=desk.world.now)}, desk.world.now)
    assert await desk.pass_(dispatcher, looks=8, minutes=30) == []

    desk.world.pass_(minutes=1)
    await desk.world.run("run_2", "failed")
    assert await desk.pass_(dispatcher, looks=2, seconds=30) == [FAILED]
    assert await desk.pass_(dispatcher, minutes=14) == []
    assert await desk.pass_(dispatcher, minutes=1) == [f"Not acknowledged: {FAILED}"]


async def test_a_silence_of_weeks_ends_and_tells_what_is_still_so(desk: Desk) -> None:
    """What lasts does not expire behind a silence, however long that is; that a run once failed does."""
    dispatcher, now = await desk.began(), desk.world.now
    await desk.state.add_silence("*", now + timedelta(days=20), "moving house", now)
    await desk.world.run("run_1", "failed")
    for _ in range(2):
        await desk.world.link("unreachable")
        assert await desk.pass_(dispatcher, minutes=10) == []
    desk.world.pass_(days=20)
    (title,) = await desk.pass_(dispatcher, minutes=1)

    assert title.startswith("No link to the service")
