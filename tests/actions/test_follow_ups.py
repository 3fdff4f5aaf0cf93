"""A continuation that waits until its run has ended is sent once, by the polling process, or dropped with a reason."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.follow_ups import FollowUps
from app.actions.refusals import InvalidRequestError, ReadOnlyError
from app.api.requests import CancelRun, ContinueRun
from app.engine.engine import Engine
from app.sync.runs import LIST_LAG
from storage.records import Repository
from storage.records.decision import Decision
from storage.values import utc_now
from tests.lab import Drop, Lab, Respond
from tests.sync.conftest import Desk
from tests.waiting import present

API = Repository.parse("acme/api")
GO_ON = ContinueRun("run_1", "Go on.", API)


@pytest.fixture
def peer() -> Iterator[Lab]:
    """A service with one active run."""
    with Lab(clock=utc_now) as peer:
        peer.put("run_1", "working", created=peer.now)
        yield peer


@pytest.fixture
async def engine(peer: Lab, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine that has read the service's list."""
    async with Desk(peer, tmp_path).engine() as opened:
        await opened.refresh()
        yield opened


async def became(engine: Engine, waiting: Decision) -> tuple[str, str]:
    """Return the outcome of a follow-up, and its reason."""
    found = await engine.usable_state().decision(waiting.decision_id)
    assert found is not None
    return found.outcome, found.reason


async def looked(engine: Engine, times: int = 2) -> None:
    """Poll this many times."""
    for _ in range(times):
        assert await engine.refresh() is None
        await engine.follow_ups.work()


@pytest.mark.parametrize("by", ["me", "somebody else"])
async def test_a_continuation_is_dropped_when_its_run_is_cancelled(peer: Lab, engine: Engine, by: str) -> None:
    """A cancelled run's continuation is not sent, since it would restart the run; the journal gives the reason."""
    waiting = await engine.follow_ups.wait(GO_ON)
    assert await engine.follow_ups.list_waiting(["run_1", "run_2"]) == (waiting,)
    if by == "me":
        accepted = Respond(202, {"run_id": "run_1", "status": "failed"})
        peer.otherwise = lambda request: accepted if request.path.endswith("/cancel") else peer.answer(request)
        assert (await engine.actions.submit(CancelRun("run_1"))).state == "confirmed"
    peer.put("run_1", "failed" if by == "me" else "cancelled", created=peer.now)
    await looked(engine)

    assert await became(engine, waiting) == ("expired", "the run was cancelled")
    assert await engine.follow_ups.list_waiting(["run_1"]) == ()
    assert not any(json.loads(body or "{}").get("instructions") for body in peer.posts)


async def test_a_continuation_is_sent_once_after_the_run_ends(peer: Lab, tmp_path: Path) -> None:
    """Another process may send it after a restart, unless it is read-only. The recorded actor is the one who asked."""
    desk = Desk(peer, tmp_path)
    async with desk.engine() as engine:
        await engine.refresh()
        waiting = await engine.follow_ups.wait(GO_ON)
        await looked(engine)
        assert peer.posts == []
        assert await engine.follow_ups.list_unsent() == (waiting,)
    async with desk.engine() as one, desk.engine() as other:
        peer.put("run_1", "completed", created=peer.now)
        await one.refresh()
        reading = replace(one.actions, read_only=True)
        await FollowUps(reading, one.cache, one.usable_state, one.events.publish).work()
        assert (peer.posts, (await became(one, waiting))[0]) == ([], "queued")
        await looked(one)
        await looked(other)
        [action] = await one.ledger.actions()
        settled = present(await other.usable_state().decision(waiting.decision_id))

    assert [json.loads(body)["instructions"] for body in peer.posts] == ["Go on."]
    assert (settled.outcome, settled.action_id, settled.result_id) == ("done", action.action_id, action.result_id)
    assert (action.state, action.actor) == ("confirmed", waiting.occurrence.facts["actor"])


async def test_the_same_continuation_waits_once(peer: Lab, tmp_path: Path) -> None:
    """The same continuation waits once, even if several processes add it at the same moment.

    Different ones all wait.
    """
    desk = Desk(peer, tmp_path)
    async with desk.engine() as one, desk.engine() as other:
        asked = await asyncio.gather(*(engine.follow_ups.wait(GO_ON) for engine in (one, other) * 4))
        beside = await other.follow_ups.wait(replace(GO_ON, instructions="Add tests."))
        waiting = await one.follow_ups.list_waiting(["run_1"])
        await one.follow_ups.cancel(asked[0].decision_id)
        later = await other.follow_ups.wait(GO_ON)

        assert waiting == (asked[0], beside)
        assert await one.follow_ups.list_waiting(["run_1"]) == (beside, later)
    assert asked == [asked[0]] * 8


async def test_a_continuation_is_dropped_if_its_key_was_used(engine: Engine, peer: Lab) -> None:
    """If its key was used for another request, it is not sent and the journal says so.

    For the same request, it was sent.
    """
    earlier = await engine.actions.submit(replace(GO_ON, instructions="Add tests."), key="k")
    waiting = [
        await engine.follow_ups.wait(request, "k") for request in (GO_ON, replace(GO_ON, instructions="Add tests."))
    ]
    peer.put("run_1", "completed", created=peer.now)
    await looked(engine)

    why = f"This retry key belongs to another request ({earlier.action_id}). Nothing was sent."
    assert [await became(engine, each) for each in waiting] == [("failed", why), ("done", "")]
    assert len(peer.posts) == 1


async def test_an_unreadable_continuation_is_dropped(engine: Engine, peer: Lab) -> None:
    """A continuation that this version cannot read is dropped without sending anything."""
    waiting = [await engine.follow_ups.wait(replace(GO_ON, instructions=f"{number}")) for number in range(4)]
    texts = ("[]", "{", '{"path": "/external/runs", "body": {}}', None)
    values = [(text, each.decision_id) for text, each in zip(texts, waiting, strict=True)]
    change = "UPDATE decisions SET request_json = ? WHERE id = ?"
    await engine.usable_state().writer.run(lambda held: held.executemany(change, values))
    peer.put("run_1", "completed", created=peer.now)
    await looked(engine)

    assert {await became(engine, each) for each in waiting} == {("failed", "Another version of Runwarden wrote it.")}
    assert peer.posts == []


async def test_a_passing_fault_does_not_drop_a_continuation(engine: Engine, peer: Lab) -> None:
    """A passing fault does not drop the continuation.

    The ledger says whether it was sent, and the next poll sends it.
    """
    waiting = await engine.follow_ups.wait(GO_ON)
    peer.put("run_1", "completed", created=peer.now)
    await engine.refresh()
    times = iter([utc_now()])

    def faulty() -> datetime:
        for now in times:
            return now
        raise ValueError("no time")

    broken = replace(engine.actions, clock=faulty)
    with pytest.raises(ValueError, match="no time"):
        await FollowUps(broken, engine.cache, engine.usable_state, engine.events.publish).work()
    assert (peer.posts, (await became(engine, waiting))[0]) == ([], "acting")
    await engine.follow_ups.work()

    assert (len(peer.posts), (await became(engine, waiting))[0]) == (1, "done")


async def test_an_invalid_continuation_is_refused_at_once(engine: Engine) -> None:
    """A continuation without words, or in a read-only profile, is refused at once."""
    reading = replace(engine.actions, read_only=True)
    for actions, request, refusal in (
        (reading, GO_ON, ReadOnlyError),
        (engine.actions, replace(GO_ON, instructions=" "), InvalidRequestError),
    ):
        follow_ups = FollowUps(actions, engine.cache, engine.usable_state, engine.events.publish)
        with pytest.raises(refusal):
            await follow_ups.wait(request)

    assert await engine.follow_ups.list_unsent() == ()


async def test_a_cancelled_continuation_is_not_sent(engine: Engine, peer: Lab) -> None:
    """The journal names who cancelled it, and cancelling it again finds nothing."""
    waiting = await engine.follow_ups.wait(GO_ON)
    cancelled = [await engine.follow_ups.cancel(waiting.decision_id) for _ in range(2)]
    peer.put("run_1", "completed", created=peer.now)
    await looked(engine)

    assert (cancelled, peer.posts) == ([True, False], [])
    assert await became(engine, waiting) == ("skipped", f"cancelled by {engine.actions.actor}")


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (Respond(400, {"message": "No such branch."}), "failed", "No such branch."),
        (Respond(401, {"message": "Expired."}), "failed", ""),
        (Drop(), "unknown", ""),
        (Respond(409, {"message": "It works.", "error_code": "run_active"}), "queued", "It works."),
        (Respond(429, {"message": "Slowly."}), "queued", ""),
    ],
)
async def test_only_a_refusal_drops_a_continuation(
    engine: Engine, peer: Lab, answer: Any, outcome: str, reason: str
) -> None:
    """A refusal drops the continuation, a passing fault does not; an unknown outcome is never sent again."""
    now = utc_now()
    waiting = await engine.follow_ups.wait(GO_ON)
    peer.put("run_1", "completed", created=peer.now)
    await engine.refresh()
    peer.script(answer)
    await engine.follow_ups.work()
    await engine.follow_ups.work()
    found = await became(engine, waiting)
    assert (found[0], reason in found[1], len(peer.posts)) == (outcome, True, 1)

    await engine.cache.writer.run(lambda held: held.execute("DELETE FROM budget"))
    await engine.client.budget.load()
    later = replace(engine.actions, clock=lambda: now + timedelta(minutes=1))
    await FollowUps(later, engine.cache, engine.usable_state, engine.events.publish).work()
    assert len(peer.posts) == (2 if outcome == "queued" else 1)


async def test_a_continuation_waits_while_an_earlier_outcome_is_unknown(engine: Engine, peer: Lab) -> None:
    """Nothing is sent while an earlier outcome is unknown, and the reason names the action to resolve."""
    peer.script(Drop())
    earlier = await engine.actions.submit(GO_ON)
    waiting = await engine.follow_ups.wait(GO_ON)
    peer.put("run_1", "completed", created=peer.now)
    await looked(engine)

    assert earlier.state == "unknown"
    outcome, reason = await became(engine, waiting)
    assert (outcome, earlier.action_id in reason, len(peer.posts)) == ("queued", True, 1), reason


async def test_a_continuation_is_dropped_a_minute_after_its_run_vanishes(engine: Engine, peer: Lab) -> None:
    """The continuation is dropped a minute after the service last listed the run.

    If the cache does not hold the run, after a day.
    """
    now = utc_now()
    gone = await engine.follow_ups.wait(GO_ON)
    never = await engine.follow_ups.wait(replace(GO_ON, run_id="run_never"))
    del peer.runs["run_1"]
    peer.put("run_2", "working", created=peer.now)
    await looked(engine)
    assert (await became(engine, gone))[0] == "queued"
    engine.runs.clock = lambda: utc_now() + LIST_LAG
    await looked(engine, 3)
    first = [await became(engine, each) for each in (gone, never)]
    late = replace(engine.actions, clock=lambda: now + timedelta(days=2))
    await FollowUps(late, engine.cache, engine.usable_state, engine.events.publish).work()

    assert [outcome for outcome, _ in first] == ["expired", "queued"]
    assert await became(engine, never) == ("expired", "the service no longer lists the run")
    assert peer.posts == []
