"""Reconciliation finds candidates for an unknown outcome automatically, and leaves the decision to the user."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.actions.refusals import AlreadyAskedError
from app.api.requests import ContinueRun, StartRun, WriteRequest
from app.engine.engine import Engine
from app.engine.events import ActionChanged, Event
from storage.errors import WrongStateError
from storage.ledger import new_action_id
from storage.records import Action, ActionFailure, Repository
from storage.values import utc_now
from tests.cli.conftest import CommandLine
from tests.lab import Drop, Lab, Received, Step
from tests.service.conftest import Laboratory
from tests.service_process import start_service
from tests.sync.conftest import MINUTE, Desk
from tests.waiting import until

HOUR = timedelta(hours=1)
API, WEB = Repository.parse("acme/api"), Repository.parse("acme/web")
WEB_DOCUMENT = {"platform": "github", "data": {"owner": "acme", "repo": "web"}}


def local(offset: timedelta) -> Callable[[datetime], str]:
    """Times as some services write them: local, and without an offset."""
    return lambda at: (at + offset).replace(tzinfo=None).isoformat()


QUIRKS: dict[str, dict[str, Any]] = {
    "none": {},
    "clock hours ahead, no date": {"clock_offset": 3 * HOUR, "is_dated": False},
    "local time, no date filter": {"show_time": local(-9 * HOUR), "date_filter": ""},
    "no filters, clock ahead": {"date_filter": "", "ignore_status": True, "clock_offset": 10 * MINUTE},
    "unreadable times": {"show_time": "moment {:%H.%M}".format},
}


@pytest.fixture
def peer() -> Iterator[Lab]:
    """A scripted service with some history and the real time."""
    with Lab(clock=utc_now) as peer:
        yield peer


def with_history(peer: Lab, **quirks: Any) -> None:
    """Give it its quirks, then runs of the last hours by others."""
    for name, value in quirks.items():
        setattr(peer, name, value)
    peer.fill(30, until=peer.now - 3 * MINUTE, every_s=420)
    peer.put("run_talk", "completed", created=peer.now - 50 * HOUR, updated=peer.now - 2 * MINUTE, branch_name="talk")


@pytest.fixture
async def engine(peer: Lab, tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine that has read the newest runs of such a service."""
    with_history(peer)
    async with Desk(peer, tmp_path).engine() as opened:
        await opened.refresh()
        yield opened


async def lost(engine: Engine, peer: Lab, request: WriteRequest) -> Action:
    """Carry the request out, but lose its answer."""

    def losing(request: Received) -> Step:
        step = peer.answer(request)
        return Drop() if request.method == "POST" else step

    peer.otherwise = losing
    action = await engine.actions.submit(request)
    peer.otherwise = None
    assert action.state == "unknown"
    return action


def others(peer: Lab) -> None:
    """Add runs that colleagues start at the same time."""
    peer.put("run_elsewhere", "queued", repository=WEB_DOCUMENT, branch_name="fix/x")
    peer.put("run_other_branch", "queued", branch_name="fix/y")


async def proposed(engine: Engine, action: Action) -> list[str]:
    """Reconnect and poll; return the candidates' ids, none of which is certain."""
    assert await engine.refresh() is None
    await engine.reconciliation.work()
    found = await engine.reconciliation.cached_proposal(action)
    assert not found.is_certain
    return [candidate.run.run_id for candidate in found.candidates]


@pytest.mark.parametrize(
    ("quirks", "polls"),
    [*((quirks, 1) for quirks in QUIRKS.values()), (QUIRKS["none"], 0), (QUIRKS["clock hours ahead, no date"], 0)],
    ids=[*QUIRKS, "none, empty cache", "clock hours ahead, no date, empty cache"],
)
async def test_a_lost_start_has_one_candidate_whatever_the_services_clock(
    peer: Lab, tmp_path: Path, quirks: dict[str, Any], polls: int
) -> None:
    """The only candidate is the new run on its repository and branch, even with an empty cache."""
    with_history(peer, **quirks)
    events: list[Event] = []
    async with Desk(peer, tmp_path).engine() as engine:
        engine.events.subscribe(events.append)
        for _ in range(polls):
            await engine.refresh()
        action = await lost(engine, peer, StartRun("Fix it.", API, "fix/x"))
        made = next(reversed(peer.runs))
        others(peer)
        events.clear()

        assert await proposed(engine, action) == [made]
        assert ActionChanged(action.action_id) in events
        assert await engine.ledger.action(action.action_id) == action


async def test_the_poller_announces_candidates_once_the_link_is_back(peer: Lab, tmp_path: Path) -> None:
    """Without a key or a command, the poller announces the candidates; the outcome stays unknown."""
    with_history(peer)
    announced: list[Event] = []
    async with Desk(peer, tmp_path).engine(runs_s=0.05, health_s=60.0) as engine:
        await engine.refresh()
        action = await lost(engine, peer, StartRun("Fix it.", API, "fix/x"))
        made = next(reversed(peer.runs))
        engine.events.subscribe(announced.append)
        engine.start_polling()
        await until(lambda: ActionChanged(action.action_id) in announced, "the action is announced")
        found = await engine.reconciliation.cached_proposal(action)
        held = await engine.ledger.action(action.action_id)

    assert [candidate.run.run_id for candidate in found.candidates] == [made]
    assert held == action


@pytest.mark.parametrize(("path", "body"), [("cancel", "{}"), ("/cancel", "{}"), ("/runs/run_1/cancel", "[]")])
async def test_a_cancellation_that_cannot_be_read_stays_unknown(
    engine: Engine, peer: Lab, path: str, body: str
) -> None:
    """The poller passes over an unknown cancellation of another version, and looks for the other results."""
    at = utc_now()
    entry = Action(new_action_id(at), "run.cancel", "run_1", "key", path, body, "cli:me", "prepared", at)
    await engine.ledger.prepare(entry, again=False)
    await engine.ledger.sending(entry.action_id)
    unreadable = await engine.ledger.settle(entry.action_id, "unknown", ActionFailure("timed_out", "No answer."))

    action = await lost(engine, peer, StartRun("Fix it.", API, "fix/x"))

    assert await proposed(engine, action) == [next(reversed(peer.runs))]
    assert await engine.ledger.action(entry.action_id) == unreadable


@pytest.mark.parametrize(
    ("quirks", "makes"),
    [
        (QUIRKS["clock hours ahead, no date"], "a turn"),
        (QUIRKS["local time, no date filter"], "a run"),
        (QUIRKS["unreadable times"], "a run"),
    ],
    ids=["clock hours ahead, no date", "local time, no date filter", "unreadable times"],
)
async def test_a_lost_continuation_is_matched_by_conversation_or_branch(
    peer: Lab, tmp_path: Path, quirks: dict[str, Any], makes: str
) -> None:
    """The service may add a turn to the same run, or create another run."""
    with_history(peer, **quirks)
    peer.continues_as_new = makes == "a run"
    async with Desk(peer, tmp_path).engine() as engine:
        await engine.refresh()
        await engine.backfill.run()
        action = await lost(engine, peer, ContinueRun("run_talk", "Go on.", API, "talk"))
        made = next(reversed(peer.runs)) if peer.continues_as_new else "run_talk"
        others(peer)

        found = await proposed(engine, action)

    assert found[0] == made
    assert len(found) <= 2


async def unsent(engine: Engine, peer: Lab, request: WriteRequest) -> Action:
    """The service fails before it carries the request out, without saying so."""
    peer.refused["test-token"] = 503
    action = await engine.actions.submit(request)
    peer.refused.clear()
    await engine.cache.writer.run(lambda connection: connection.execute("DELETE FROM budget WHERE name = 'failures'"))
    return action


@pytest.mark.parametrize("request_", [StartRun("Fix it.", API, "fix/x"), ContinueRun("run_talk", "Go on.", API)])
async def test_a_write_that_was_not_executed_has_no_candidates(
    engine: Engine, peer: Lab, request_: WriteRequest
) -> None:
    """All runs around the send are known, so that the absence of candidates is certain."""
    await engine.backfill.run()
    action = await unsent(engine, peer, request_)
    others(peer)

    assert await proposed(engine, action) == []
    assert (await engine.reconciliation.ask(action)).is_whole


async def test_a_colleagues_run_on_the_same_branch_is_a_candidate_and_never_certain(engine: Engine, peer: Lab) -> None:
    """Anyone can name the branch, so even the only run after the send proves nothing."""
    peer.put("run_minute_before", "queued", created=peer.now - MINUTE, branch_name="fix/x")
    action = await unsent(engine, peer, StartRun("Fix it.", API, "fix/x"))
    peer.put("run_theirs", "queued", branch_name="fix/x")

    assert await proposed(engine, action) == ["run_theirs"]


async def test_a_run_older_than_one_seen_before_sending_is_no_candidate(peer: Lab, tmp_path: Path) -> None:
    """The order of the service's own times decides, even if its clock is unknown."""
    with_history(peer, **QUIRKS["clock hours ahead, no date"])
    peer.put("run_seen", "completed", created=peer.now - 10 * MINUTE, branch_name="fix/x")
    async with Desk(peer, tmp_path).engine() as engine:
        await engine.refresh()
        await engine.cache.writer.run(
            lambda held: held.execute("UPDATE runs SET first_seen_us = first_seen_us - 600000000")
        )
        peer.put("run_old", "queued", created=peer.now - 20 * MINUTE, branch_name="fix/x")
        action = await lost(engine, peer, StartRun("Fix it.", API, "fix/x"))
        made = next(reversed(peer.runs))

        assert await proposed(engine, action) == [made]


async def test_the_same_id_cannot_be_recorded_for_two_actions(engine: Engine, peer: Lab) -> None:
    """Of two people who record the same id, the second one hears that the write is resolved."""
    action = await lost(engine, peer, StartRun("Fix it.", API, "fix/x"))
    (made,) = await proposed(engine, action)
    await engine.actions.resolve(action.action_id, made)

    await engine.reconciliation.check(action, made)
    with pytest.raises(WrongStateError, match="resolved as created"):
        await engine.actions.resolve(action.action_id, made)


async def test_runs_of_other_actions_are_no_candidates(engine: Engine, peer: Lab) -> None:
    """Runs of starts before and after it, and of a later continuation, are excluded."""
    await engine.backfill.run()
    start, talk = StartRun("Fix it.", API, "fix/x"), ContinueRun("run_talk", "Go on.", API)
    await engine.actions.submit(start)
    action, turn = await unsent(engine, peer, start), await unsent(engine, peer, talk)
    await engine.actions.submit(start)
    await engine.actions.resolve(turn.action_id, None)
    later = await engine.actions.submit(talk)

    assert later.state == "confirmed"
    assert await proposed(engine, action) == []
    assert await proposed(engine, turn) == []


@pytest.mark.parametrize(
    ("request_", "is_certain"),
    [
        (StartRun("Fix it.", API, "fix/{action}"), True),
        (StartRun("Fix it.", API, "fix/x", {"sent by": "{action}", "n": 3}), True),
        (ContinueRun("run_talk", "Go on.", API, metadata={"sent by": "{action}"}), False),
    ],
)
async def test_only_the_actions_id_makes_a_candidate_certain(
    peer: Lab,
    tmp_path: Path,
    request_: StartRun | ContinueRun,
    is_certain: bool,
) -> None:
    """The id may be in the branch or the metadata, and outweighs a colleague's run of the same moment."""
    with_history(peer, echoes_metadata=True)
    async with Desk(peer, tmp_path).engine() as engine:
        await engine.refresh()
        await engine.backfill.run()
        action = await lost(engine, peer, request_)
        made = "run_talk" if isinstance(request_, ContinueRun) else next(reversed(peer.runs))
        peer.put("run_theirs", "queued", branch_name=request_.branch_name or "talk", metadata={"sent by": "them"})
        await engine.refresh()
        found = await engine.reconciliation.ask(action)

    assert (found.candidates[0].run.run_id, found.is_certain) == (made, is_certain)
    assert {candidate.run.run_id for candidate in found.candidates[1:]} <= {"run_theirs"}


async def test_a_key_sends_a_marked_request_once(peer: Lab, tmp_path: Path) -> None:
    """The key covers the same request, although each attempt has its own id."""
    async with Desk(peer, tmp_path).engine() as engine:
        request = StartRun("Fix it.", API, "fix/{action}")
        first = await engine.actions.submit(request, key="nightly")
        with pytest.raises(AlreadyAskedError) as asked:
            await engine.actions.submit(request, key="nightly")

    assert asked.value.existing == first
    assert peer.document(next(iter(peer.runs.values())))["branch_name"] == f"fix/{first.action_id}"


def test_lost_writes_are_found_and_linked(tmp_path: Path) -> None:
    """With the real service, a start is found by its branch and a continuation by its conversation.

    Neither is certain.
    """
    lab = Laboratory(start_service(tmp_path / "service", arguments=["--lab"]))
    runwarden = CommandLine(tmp_path, lab.service.base_url, lab.service.admin_token)

    def lost(*arguments: str) -> Any:
        lab.script("start_run", "lose_answer")
        written = runwarden("runs", *arguments, "--json")
        assert written.code == 6
        action_id = written.json()["action_id"]
        return runwarden("actions", "show", action_id, "--candidates", "--json").json()

    started = lost("start", "-R", "acme/api", "--branch", "fix/x", "nothing")
    [run] = started["candidates"]
    resolve = ("actions", "resolve", started["action"]["action_id"], "--json")
    doubted = runwarden(*resolve, "--created", run["run_id"][:-1])
    linked = runwarden(*resolve, "--created", run["run_id"])
    ended = runwarden("runs", "wait", run["run_id"], "--json")
    continued = lost("continue", run["run_id"], "nothing")
    lab.service.stop()

    assert (run["branch_name"], started["certain"]) == ("fix/x", False)
    assert doubted.json()["error"]["kind"] == "doubtful_id"
    assert (linked.code, linked.json()["run"]) == (0, {"run_id": run["run_id"]})
    assert ended.code in {0, 1}
    assert [each["run_id"] for each in continued["candidates"]] == [run["run_id"]]
