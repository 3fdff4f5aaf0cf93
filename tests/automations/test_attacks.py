"""What was not thought of: clocks set back, disks that fill up in the middle, floods, and runs that flip."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.automations.bot import LEASE
from app.automations.occurrences import asked_for
from storage.claims import Owner, this_process
from storage.errors import DiskFullError, StorageError
from tests.automations.conftest import Place, rule
from tests.automations.test_acting import RUN, Service, automation, configured, service
from tests.automations.test_who_works import at_work, looked
from tests.waiting import until

__all__ = ["service"]
HOURLY = '{ schedule = "0 * * * *" }'


async def test_a_disk_that_fills_up_after_the_deed_repeats_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done is entered once there is room again; a command is not run a second time."""
    runner = await place.begun(rule())
    place.world.pass_(minutes=1)
    await place.world.run("run_1", "failed")
    with monkeypatch.context() as full:

        async def settle(*_: object) -> None:
            raise DiskFullError("No space left.", path=Path("state.sqlite3"))

        full.setattr(place.state, "settle", settle)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                await runner.look()
            place.world.pass_(minutes=1)
    await runner.look()

    assert len(place.acts.done) == 1
    assert [each.outcome for each in await place.state.journal()] == ["done"]


async def test_a_rule_that_began_by_a_clock_a_year_ahead_begins_again(place: Place) -> None:
    """It acts by the clock as it is now; what it did by the wrong one counts to no limit of today."""
    place.world.pass_(days=365)
    text = "\n".join([rule(on=HOURLY, limit="{ per_hour = 2, per_day = 2 }"), rule(name='"f"')])
    runner = await place.begun(text)
    for _ in range(3):
        place.world.pass_(hours=1)
        await runner.look()
    ahead = len(place.acts.done)
    place.world.pass_(days=-365)
    await runner.look()
    place.world.pass_(hours=1)
    await place.world.run("run_1", "failed")
    for each in (runner, place.runner(text)):
        await each.look()

    assert ahead == 2
    assert sorted(name for name, _ in place.acts.done[ahead:]) == ["f", "r"]


@pytest.mark.parametrize(
    ("do", "changed", "hours", "outcome"),
    [
        ('{ command = ["true"] }', '{ command = ["false"] }', 0, ("expired", "its rule was edited")),
        ('{ continue = "go" }', '{ continue = "go" }', 25, ("expired", "approved, but not sent in time")),
        ('{ continue = "go" }', '{ continue = "go" }', 23, ("done", "")),
    ],
)
async def test_an_approval_holds_for_what_was_shown_and_for_its_time(
    place: Place, do: str, changed: str, hours: int, outcome: tuple[str, str]
) -> None:
    """A command that was edited while it waited does not run, nor is anything sent after its time."""
    runner = await place.begun(rule(do=do, approval="true"))
    await place.fails(runner)
    await place.approve()
    place.world.pass_(hours=hours, minutes=10)
    await place.runner(rule(do=changed, approval="true")).look()

    assert place.outcomes[-1] == outcome
    assert len(place.acts.done) == (outcome[0] == "done")


async def test_a_rule_that_is_off_and_is_set_off_by_hand_is_left_to_the_process_that_does_it(place: Place) -> None:
    """A bot at work closes nothing that another process is about to do."""
    text = rule(do='{ command = ["true"] }', enabled="false")
    place.acts.results = [ActingResult("failed", "not yet", may_repeat=True)]
    by_hand = place.runner(text)
    await by_hand.set_off(by_hand.rules[0], asked_for(place.world.now, None))
    await place.owned_by(replace(this_process(), pid=1, started="?"))
    await place.runner(text).look()

    assert [each.outcome for each in await place.state.open_decisions()] == ["acting"]
    await place.owned_by(Owner(2**22 + 1, "1", "?", "?"))
    await place.runner(text).look()
    assert place.outcomes[-1][0] == "interrupted"


@pytest.mark.parametrize(("is_paused", "outcome"), [(True, "skipped"), (False, "queued")])
async def test_what_is_queued_waits_in_quiet_hours_and_ends_where_its_rule_is_paused(
    place: Place, *, is_paused: bool, outcome: str
) -> None:
    """A rule that a person paused does nothing any longer, though its last run has ended."""
    hour = place.world.now.astimezone()
    quiet = f'"{hour + timedelta(hours=3):%H:%M}-{hour + timedelta(hours=4):%H:%M}"'
    do = '{ start = "go", repository = "acme/api" }'
    runner = await place.begun(rule(on=HOURLY, do=do, overlap='"queue"', quiet=quiet))
    place.acts.results = [ActingResult("done", result_id="run_1")]
    await place.world.run("run_1", "working")
    for _ in range(2):
        place.world.pass_(hours=1)
        await runner.look()
    if is_paused:
        await place.state.pause("r", "by ann")
    place.world.pass_(minutes=90)
    await place.world.run("run_1", "completed")
    await runner.look()

    assert len(place.acts.done) == 1
    (second,) = [
        each for each in await place.state.journal() if each.occurrence.identity.startswith("at:2026-05-01T14")
    ]
    assert second.outcome == outcome


async def test_a_rule_that_was_made_in_its_quiet_hours_tells_what_began_in_them(place: Place) -> None:
    """Only what was so before the rule is history."""
    hour = place.world.now.astimezone()
    quiet = f'"{hour:%H:%M}-{hour + timedelta(hours=1):%H:%M}"'
    runner = place.runner(rule(on='{ health = "not ok" }', quiet=quiet))
    await place.world.health(github="ok")
    await runner.look()
    for _ in range(70):
        place.world.pass_(minutes=1)
        await place.world.health(github="unreachable")
    await runner.look()

    assert len(place.acts.done) == 1


async def test_a_state_that_is_taken_away_under_a_bot_ends_its_work(place: Place) -> None:
    """Another process would begin a new one, and both would act: it claims nothing in a file that is gone."""
    runner = await place.begun(rule())
    place.world.pass_(minutes=1)
    await place.world.run("run_1", "failed")
    place.state.writer.path.rename(place.state.writer.path.with_name("moved"))

    with pytest.raises(StorageError, match=r"moved or deleted.*start it again"):
        await runner.look()
    assert place.acts.done == []


async def test_a_slow_deed_keeps_the_lease(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed while a program runs, however long: no other bot is let in."""
    monkeypatch.setattr("app.automations.bot.LEASE_S", 6.0)
    begun, go = tmp_path / "begun", tmp_path / "go"
    argv = json.dumps(["sh", "-c", f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done"])
    settings = configured(service, tmp_path, "[poll]\nruns_s = 1\n" + automation(f"{{ command = {argv} }}"))
    async with at_work(settings) as (bot, said):
        await until(lambda: ("working", {"profile": "acme"}) in said)
        await looked(bot)
        service.runs = [RUN]
        await until(begun.exists)
        first = await bot.state.lease_until(LEASE)
        async with asyncio.timeout(300):
            while await bot.state.lease_until(LEASE) == first:
                await asyncio.sleep(0.1)
        assert ("done", None) not in said.outcomes()
        go.touch()
        await until(lambda: ("done", None) in said.outcomes())
