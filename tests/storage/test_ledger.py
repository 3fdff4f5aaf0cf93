"""What each of the ledger's methods stores, and finding actions; the model test covers the rest."""

import runpy
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from sqlite3 import IntegrityError
from unittest.mock import patch

import pytest

from storage import database
from storage.errors import AmbiguousActionError, NoSuchActionError
from storage.ledger import Ledger, new_action_id
from storage.records import Action, ActionFailure, ActionFilter, Author
from tests.storage.conftest import NOON, entry

Prepare = Callable[..., Awaitable[Action]]


ANN, BOB = Author("ann", "laptop", "console"), Author("bob", "desk", "command")
NO_ANSWER = ActionFailure("timed_out", "No answer within 20 s.", http_status=500, error_code="E1")


async def test_every_step_is_in_the_audit(ledger_path: Path) -> None:
    """The audit has who, from where, when and what. A resolution has its own user, machine and time."""
    async with await Ledger.open(ledger_path, author=ANN, clock=lambda: NOON) as ledger:
        action = await ledger.prepare(entry(base_url="https://api.test/v1"))
        number = action.action_id
        await ledger.sending(number)
        unknown = await ledger.settle(number, "unknown", NO_ANSWER)
    later = NOON + timedelta(minutes=8)
    async with await Ledger.open(ledger_path, author=BOB, clock=lambda: later) as ledger:
        resolved = await ledger.resolve(number, None)
        undone = await ledger.unresolve(number)
        created = await ledger.resolve(number, "org_2")
        steps = await ledger.audit(number)
        for change in ("UPDATE audit SET user = 'eve'", "DELETE FROM audit"):
            with pytest.raises(IntegrityError, match="only ever added to"):
                await ledger.writer.run(lambda connection, sql=change: connection.execute(sql))

    assert (action.base_url, action.author) == ("https://api.test/v1", ANN)
    assert (unknown.error, undone.error, unknown.is_open) == (NO_ANSWER, NO_ANSWER, True)
    assert (created.error, created.result_id, created.resolution) == (None, "org_2", "created")
    assert (unknown.resolved_at, unknown.resolved_by) == (undone.resolved_at, undone.resolved_by) == (None, Author())
    assert (resolved.settled_at, resolved.resolved_at, resolved.resolved_by) == (NOON, later, BOB)
    assert (created.resolved_at, created.resolved_by.name, created.author.name) == (later, "bob@desk", "ann@laptop")
    assert {step.action_id for step in steps} == {number}
    assert [(step.transition, step.detail, step.at, step.author) for step in steps] == [
        ("prepared", "https://api.test/v1", NOON, ANN),
        ("sending", None, NOON, ANN),
        ("unknown", "timed_out", NOON, ANN),
        ("resolved_not_created", None, later, BOB),
        ("resolution_undone", "not_created", later, BOB),
        ("resolved_created", "org_2", later, BOB),
    ]


async def test_text_that_sqlite_refuses_stays_readable(ledger: Ledger, prepare: Prepare) -> None:
    """Lone surrogates, as in a shell's arguments, become question marks, and missing values are named."""
    with pytest.raises(NoSuchActionError, match="act_none"):
        await ledger.sending("act_none")
    action = await prepare("k\ud800", subject="s\udcff", actor="cli:\udc80")
    await ledger.sending(action.action_id)
    unknown = await ledger.settle(action.action_id, "unknown", ActionFailure("timed_out", "m\ud800"))

    assert await ledger.action("act_none") is None
    assert (unknown.key, unknown.subject, unknown.actor) == ("k?", "s?", "cli:?")
    assert unknown.error == ActionFailure("timed_out", "m?")


async def test_the_ledger_is_synced_before_it_answers(tmp_path: Path) -> None:
    """There is no write-ahead log, and every commit is synced with its folder."""
    shipped = runpy.run_path(database.__file__)["DURABLE"]
    with patch.dict(database.DURABLE, shipped):
        async with await Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
            pragmas = await ledger.writer.run(
                lambda c: tuple(c.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
            )

    assert pragmas == ("delete", 3), "3: EXTRA"


async def test_actions_are_found_by_a_prefix_and_listed_newest_first(ledger: Ledger, prepare: Prepare) -> None:
    """Case and the prefix `act_` do not matter, and there are no wildcards. Kind, state and number can be limited."""
    kinds = ("run.start", "agent.start")
    ids = ["act_01AAAA", "act_01AABB", "act_01BBBB", "act_01BBBC"]
    made = [await prepare(each, action_id=each, subject="", kind=kinds[n % 2]) for n, each in enumerate(ids)]
    await ledger.sending(ids[3])

    assert await ledger.action("act_01AAA") == await ledger.action("01aaa") == made[0]
    assert await ledger.action("act_01%") is None
    with pytest.raises(AmbiguousActionError, match="give more of it"):
        await ledger.action("act_01")
    assert [a.action_id for a in await ledger.actions()] == ids[::-1]
    assert [a.action_id for a in await ledger.actions(ActionFilter(["run.start"]))] == [ids[2], ids[0]]
    assert [a.action_id for a in await ledger.actions(ActionFilter(states={"sending"}))] == [ids[3]]
    assert [a.action_id for a in await ledger.actions(limit=1)] == [ids[3]]


async def test_results_are_found_by_key(ledger: Ledger, prepare: Prepare) -> None:
    """A result's key may have a suffix, even of digits.

    Keys with the same beginning or without a result do not match.
    """
    keys = ("retry-a-1", "retry-a-12", "retry-b-1-5425557685248858", "retry-c-1-ab", "retry-d-1.x", "retry-e-1")
    for key in keys:
        action = await prepare(key, subject="")
        await ledger.sending(action.action_id)
        if key != "retry-e-1":
            await ledger.settle(action.action_id, "confirmed", result_id=f"by {key}", response_json="{}")

    assert await ledger.results(["retry-a-1", "retry-b-1", "retry-c-1", "retry-d-1", "retry-e-1", "\ud800"]) == {
        "retry-a-1": "by retry-a-1",
        "retry-b-1": "by retry-b-1-5425557685248858",
        "retry-c-1": "by retry-c-1-ab",
    }
    assert await ledger.results([]) == {}


def test_ids_sort_by_time_and_differ() -> None:
    """Within a millisecond their order is random, and none repeats."""
    earlier, later = ({new_action_id(NOON + timedelta(milliseconds=n)) for _ in range(500)} for n in (0, 1))

    assert len(earlier | later) == 1000
    assert max(earlier) < min(later)
    assert all(id_.startswith("act_") and len(id_) == 30 for id_ in earlier)


async def test_a_runs_conversation_and_every_organization(ledger: Ledger, prepare: Prepare) -> None:
    """A conversation has the run's start and all messages, oldest first; organizations come newest first."""
    start = await prepare("1", subject="", kind="run.start")
    await ledger.sending(start.action_id)
    start = await ledger.settle(start.action_id, "confirmed", result_id="run_1", response_json="{}")
    turn = await prepare("2", subject="run_1", kind="run.continue")
    await prepare("3", subject="run_2", kind="run.continue")
    other = await prepare("4", subject="", kind="agent.start")
    await ledger.sending(other.action_id)
    other = await ledger.settle(other.action_id, "confirmed", result_id="run_4", response_json="{}")
    organizations = [await prepare(str(n), subject=f"{n}@acme.test") for n in (5, 6)]

    assert await ledger.for_run("run_1") == (start, turn)
    assert await ledger.for_run("run_4") == (other,)
    assert await ledger.organizations() == tuple(reversed(organizations))
