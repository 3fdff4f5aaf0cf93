"""The runner: each occurrence at most once, and each decision with its reason."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.rules.rule import fingerprint
from storage.claims import Owner, this_process
from storage.errors import StorageError
from tests.automations.conftest import Place, rule

HOURLY = '{ schedule = "0 * * * *" }'


async def test_a_run_that_fails_sets_a_rule_off_once(place: Place) -> None:
    """However often it is looked at, by this process and the next one."""
    await place.world.run("run_1", "working")
    runner = await place.begun(rule())
    place.world.pass_(minutes=3)
    await place.world.run("run_1", "failed")

    for each in (runner, runner, place.runner(rule())):
        await each.look()

    assert [name for name, _ in place.acts.done] == ["r"]
    assert [each.outcome for each in place.journal] == ["acting", "done"]


async def test_what_was_so_before_the_rule_sets_nothing_off(place: Place) -> None:
    """Failed runs, stuck ones, and history that is fetched later; neither now nor after a restart."""
    await place.world.run("run_1", "failed", minutes=2)
    await place.runner(rule()).look()
    place.world.pass_(minutes=10)
    now, place.world.now = place.world.now, place.world.now.replace(day=28, month=4)
    for number in range(20):
        await place.world.run(f"old_{number}", "failed", hours=1)
    place.world.now = now

    await place.runner(rule()).look()

    assert place.acts.done == []
    assert place.journal == []


async def test_a_rule_that_was_paused_before_its_first_look_is_new_all_the_same(place: Place) -> None:
    """What failed before it was there stays history."""
    await place.world.run("run_1", "failed", minutes=2)
    runner = place.runner(rule())
    await place.state.begin_rule("r", fingerprint(runner.rules[0]), place.world.now)
    await place.state.pause("r", "by ann")
    await place.state.resume("r")

    await runner.look()

    assert place.acts.done == []


async def test_an_edited_rule_looks_forward_only(place: Place) -> None:
    """What failed under the old one does not set off the new one, even if the new one would have matched."""
    await place.runner(rule(on='{ run = "failed", repository = "acme/web" }')).look()
    place.world.pass_(minutes=5)
    await place.world.run("run_1", "failed")
    await place.runner(rule(on='{ run = "failed", repository = "acme/web" }')).look()

    await place.runner(rule()).look()
    place.world.pass_(minutes=5)
    await place.world.run("run_2", "failed")
    await place.runner(rule()).look()

    assert [identity.split(":")[1] for _, identity in place.acts.done] == ["run_2"]


async def test_missed_times_are_caught_up_for_once(place: Place) -> None:
    """Five hours away: the newest time within the window, and it says for how many."""
    await place.runner(rule(on=HOURLY)).look()
    place.world.pass_(hours=5, minutes=10)

    await place.runner(rule(on=HOURLY)).look()
    await place.runner(rule(on=HOURLY)).look()

    assert [identity for _, identity in place.acts.done] == ["at:2026-05-01T17:00:00.000000Z"]
    assert place.journal[0].reason == "for 4 missed before it as well"


async def test_a_time_that_is_too_long_ago_is_passed_over_with_a_reason(place: Place) -> None:
    """Nothing is lost without a line."""
    daily = rule(on='{ schedule = "0 13 * * *" }')
    await place.runner(daily).look()
    place.world.pass_(hours=5)

    await place.runner(daily).look()

    assert place.acts.done == []
    assert place.outcomes == [("skipped", "4h00m late; catch_up is 1h00m")]


async def test_a_schedule_waits_for_its_last_run(place: Place) -> None:
    """Skipped by default; with overlap = queue one waits, and a second one does not."""
    do = '{ start = "go", repository = "acme/api" }'
    skips, queues = rule(on=HOURLY, do=do), rule(on=HOURLY, do=do, name='"q"', overlap='"queue"')
    runner = await place.begun(f"{skips}\n{queues}")
    place.acts.results = [ActingResult("done", result_id="run_1"), ActingResult("done", result_id="run_1")]
    await place.world.run("run_1", "working")
    for _ in range(3):
        place.world.pass_(hours=1)
        await runner.look()

    assert len(place.acts.done) == 2
    assert [outcome for outcome, _ in place.outcomes if outcome in {"skipped", "queued"}] == [
        *("skipped", "queued", "skipped", "skipped")
    ]
    await place.world.run("run_1", "completed")
    await runner.look()
    assert [name for name, _ in place.acts.done] == ["r", "q", "q"]


async def test_failures_in_a_row_pause_a_rule(place: Place) -> None:
    """It then says why, until a person resumes it; what came in between stays undone."""
    runner = await place.begun(rule(pause_after="2"))
    place.acts.results = [ActingResult("failed", "no such agent")] * 2
    for number in range(3):
        place.world.pass_(minutes=1)
        await place.world.run(f"run_{number}", "failed")
        await runner.look()

    assert len(place.acts.done) == 2
    assert place.outcomes[-1] == (
        "skipped",
        "the rule is paused: 2 failures in a row, the last one: no such agent",
    )
    await place.state.resume("r")
    place.world.pass_(minutes=1)
    await place.world.run("run_9", "failed")
    await runner.look()
    assert len(place.acts.done) == 3


async def test_quiet_hours_skip_events_and_put_off_what_lasts(place: Place) -> None:
    """A run that fails is passed over; a host that is still bad afterwards is told then."""
    text = "\n".join([rule(quiet='"00:00-23:59"'), rule(name='"h"', on='{ health = "not ok" }', quiet='"00:00-23:59"')])
    runner = await place.begun(text)
    place.world.pass_(minutes=1)
    await place.world.run("run_1", "failed")
    await place.world.health(github="unreachable")
    await runner.look()

    assert place.outcomes == [("skipped", "in quiet hours")]
    awake = place.runner(text.replace('"00:00-23:59"', '"23:58-23:59"'))
    await place.world.health(gitlab="ok", github="unreachable")
    place.world.pass_(minutes=1)
    await awake.look()
    assert place.acts.done == []  # The edited rule looks forward only: the host was bad before.


@pytest.mark.parametrize("approves", [True, False])
async def test_what_needs_approval_waits_for_a_person(place: Place, *, approves: bool) -> None:
    """It keeps the exact request; approved it is sent once, otherwise it expires."""
    runner = await place.begun(rule(approval="true"))
    await place.fails(runner)
    (waiting,) = await place.state.open_decisions()

    assert place.acts.done == []
    assert waiting.request_json is not None
    assert '"instructions": "r run_1"' in waiting.request_json
    if approves:
        await place.state.take(waiting.decision_id, "waiting", "approved", "approved by ann")
    else:
        place.world.pass_(hours=25)
    await runner.look()
    await runner.look()
    assert len(place.acts.done) == approves
    assert place.journal[-1].outcome == ("done" if approves else "expired")


async def test_what_certainly_was_not_sent_is_tried_again(place: Place) -> None:
    """After half a minute, within the catch-up window."""
    runner = await place.begun(rule(do='{ continue = "again" }'))
    place.acts.results = [ActingResult("failed", "no link", may_repeat=True)] * 2
    place.world.pass_(minutes=1)
    await place.world.run("run_1", "failed")
    for _ in range(4):
        await runner.look()
        place.world.pass_(seconds=31)

    assert len(place.acts.done) == 3
    assert place.journal[-1].outcome == "done"


async def test_what_a_dead_process_began_is_not_repeated_unless_the_ledger_vouches(place: Place) -> None:
    """A command may have run: it says so. A write has the ledger, which sends once."""
    text = "\n".join([rule(do='{ command = ["true"] }'), rule(name='"w"', do='{ continue = "again" }')])
    await place.runner(text).look()
    place.world.pass_(minutes=1)
    await place.world.run("run_1", "failed")
    place.acts.results = [ActingResult("failed", "killed here", may_repeat=True)] * 2
    await place.runner(text).look()
    place.journal.clear()
    await place.owned_by(Owner(2**22 + 1, "1", "?", "?"))

    await place.runner(text).look()

    assert [name for name, _ in place.acts.done] == ["r", "w", "w"]
    assert [(each.rule, each.outcome) for each in place.journal] == [("r", "interrupted"), ("w", "done")]


async def test_what_a_living_process_acts_on_is_left_to_it(place: Place) -> None:
    """A command of cron's beside a bot: neither interrupts the other."""
    await place.runner(rule()).look()
    place.world.pass_(minutes=1)
    await place.world.run("run_1", "failed")
    place.acts.results = [ActingResult("failed", "not yet", may_repeat=True)]
    await place.runner(rule()).look()
    await place.owned_by(replace(this_process(), pid=1, started="?"))

    await place.runner(rule()).look()

    assert len(place.acts.done) == 1
    assert [each.outcome for each in await place.state.open_decisions()] == ["acting"]


async def test_a_rule_whose_files_fail_holds_up_no_other(place: Place) -> None:
    """It is tried again; the others act."""
    text = "\n".join([rule(do='{ continue = "again" }'), rule(name='"s"')])
    runner = await place.begun(text)
    place.acts.raises = {"r": StorageError("the ledger can only be read", path=Path("ledger"))}
    await place.fails(runner)

    assert [name for name, _ in place.acts.done] == ["r", "s"]
    place.acts.raises = {}
    place.world.pass_(seconds=31)
    await runner.look()
    assert [name for name, _ in place.acts.done] == ["r", "s", "r"]
