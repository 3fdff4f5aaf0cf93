"""Approvals: who answered, what was approved, and how limits apply to it."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.automations.bot import document
from app.automations.occurrences import manual_occurrence
from app.engine.times import rfc3339
from storage.claims import Owner, this_process
from storage.database import migrate
from storage.records import Author
from storage.records.alert import Plan
from storage.records.decision import Answer
from storage.state import SCHEMA, State
from storage.values import EPOCH
from tests.automations.conftest import Place, rule

START = '{ start = "go", repository = "acme/api" }'


async def test_the_journal_keeps_who_answered(place: Place) -> None:
    """The journal keeps who answered, on which machine and when; an answered request cannot be answered again."""
    text = rule(do=START, approval="true")
    runner = await place.begun(text)
    await place.fails(runner)
    number = (await place.approve(minutes=5)).decision_id
    approved_at = place.now
    assert not await place.state.answer(number, "rejected", Author("bob", "laptop"))
    place.move(minutes=1)
    await runner.decide_and_act()
    await place.fails(runner, "run_2")
    (other,) = await place.state.open_decisions()
    assert await place.state.answer(other.decision_id, "rejected", Author("bob", "laptop"))

    rejected, sent = await place.state.journal("r")
    assert (sent.outcome, sent.reason, sent.answer) == ("done", "", Answer("approved", "ann@desk", approved_at))
    assert (rejected.outcome, rejected.reason) == ("skipped", "rejected by bob@laptop")
    assert rejected.answer == Answer("rejected", "bob@laptop", place.now)
    told = document(sent)
    assert (told["answer"], told["answered_by"]) == ("approved", "ann@desk")
    assert told["answered_at"] == rfc3339(approved_at)


async def test_an_older_state_file_keeps_its_rows(tmp_path: Path) -> None:
    """Decisions of an older state file still wait, and can be answered; what it reported stays reported."""
    path = tmp_path / "state.sqlite3"
    before = replace(SCHEMA, steps={"0001_state": SCHEMA.steps["0001_state"]})
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, before, path)
        connection.execute(
            "INSERT INTO decisions (rule, identity, at_us, decided_us, outcome, reason, conversation, facts_json)"
            " VALUES ('r', 'i', 0, 0, 'waiting', '', '', '{}')"
        )
        subject = "'stuck:run_1', '', 'default', 'warning', 'Run stuck'"
        connection.execute(f"INSERT INTO told VALUES ({subject}, '{{}}', 0, 1000000, 0, 2)")
        connection.execute(f"INSERT INTO alerts VALUES ('stuck:run_1:t', {subject}, '', '{{}}', 0, 0, 'told')")
    async with await State.open(path) as state:
        (waiting,) = await state.open_decisions()
        assert waiting.answer is None
        assert await state.answer(waiting.decision_id, "approved", Author("ann", "desk"))
        (problem,) = await state.reported_problems()
        assert problem.key == ("stuck:run_1", "", "default")
        assert (problem.last_at, problem.count) == (EPOCH + timedelta(seconds=1), 2)
        assert await state.reported_alerts(["stuck:run_1:t"], apart=False) == {"stuck:run_1:t"}
        assert await state.apply_plan(Plan(over=(problem,)), EPOCH, 0)
        assert await state.reported_problems() == ()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT outcome FROM alerts").fetchall() == [("notified",)]


@pytest.mark.parametrize(("overlap", "outcome"), [("skip", "skipped"), ("queue", "queued"), ("allow", "done")])
async def test_limits_hold_for_requests_approved_together(place: Place, overlap: str, outcome: str) -> None:
    """Limits hold for requests approved together: a limit of one active run or of two responses is not exceeded."""
    text = rule(on='{ every = "10m" }', do=START, approval="true", overlap=f'"{overlap}"', limit="{ per_hour = 2 }")
    runner = await place.begun(text)
    for _ in range(3):
        place.move(minutes=10)
        await runner.decide_and_act()
    for each in await place.state.open_decisions():
        await place.state.change_outcome(each.decision_id, "waiting", "approved", "approved by ann")
    await place.run("run_9", "working")
    place.acts.results = [ActingResult("done", result_id="run_9")] * 3
    await place.runner(text).decide_and_act()

    outcomes = [each.outcome for each in await place.state.journal()][::-1]
    assert outcomes[:2] == ["done", outcome]
    assert len(place.acts.done) == (2 if overlap == "allow" else 1)
    if overlap == "allow":
        assert outcomes[2] == "limited"


async def test_a_request_taken_late_by_another_process_is_left_to_it(place: Place) -> None:
    """The hour counts from when the other process took the request. The approval may have waited for long before."""
    text = rule(do='{ continue = "go" }', approval="true", approval_expires='"4h"')
    runner = await place.begun(text)
    await place.fails(runner)
    (found,) = await place.state.open_decisions()
    place.move(hours=3)
    await place.state.change_outcome(found.decision_id, "waiting", "acting", "")
    await place.owned_by(replace(this_process(), namespace="another"))

    assert not await place.state.adopt(found.decision_id, place.now)
    assert await place.state.adopt(found.decision_id, place.now + timedelta(minutes=61))


async def test_a_rule_that_is_off_and_is_set_off_by_hand_is_left_to_the_process_that_does_it(place: Place) -> None:
    """A bot does not close a decision that another process is about to carry out."""
    text = rule(do='{ command = ["true"] }', enabled="false")
    place.acts.results = [ActingResult("failed", "not yet", may_repeat=True)]
    by_hand = place.runner(text)
    await by_hand.trigger(by_hand.rules[0], manual_occurrence(place.now, None))
    await place.owned_by(replace(this_process(), pid=1, started="?"))
    await place.runner(text).decide_and_act()

    assert [each.outcome for each in await place.state.open_decisions()] == ["acting"]
    await place.owned_by(Owner(2**22 + 1, "1", "?", "?"))
    await place.runner(text).decide_and_act()
    assert place.outcomes[-1][0] == "interrupted"
