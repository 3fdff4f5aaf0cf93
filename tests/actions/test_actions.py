"""Acting once: real ledger, real cache, and a server that fails in every way a server can."""

import asyncio

import pytest

from app.actions import (
    AlreadyAskedError,
    BlockedError,
    DuplicateError,
    InvalidRequestError,
    ReadOnlyError,
)
from app.api.requests import ContinueRun, CreateOrganization, StartAgent, StartRun, WriteRequest
from app.events import ActionChanged, RunsChanged
from storage.ledger import WrongStateError
from storage.records import Action, RunFilter
from tests.actions.conftest import ADA, API, HASTY, Desk
from tests.lab import EXECUTION, ORGANIZATION, RUN, Drop, Hang, Raw, Respond


@pytest.mark.parametrize(
    ("request_", "answer", "result_id"),
    [
        (StartRun("Look", API), RUN, "run_1"),
        (ContinueRun("run_1", "Again", API), RUN, "run_1"),
        (ADA, ORGANIZATION, "org_1"),
        (StartAgent("nightly", "acme/api"), EXECUTION, "exe_1"),
    ],
)
async def test_a_success_is_confirmed_with_what_it_made(
    desk: Desk, request_: WriteRequest, answer: dict[str, object], result_id: str
) -> None:
    """The ledger has the id and the answer; a run is in the cache before any poll has seen it."""
    desk.server.script(Respond(201, answer))
    action = await desk.actions().submit(request_)

    assert (action.state, action.result_id) == ("confirmed", result_id)
    assert action.sending_at is not None
    assert [event for event in desk.events if isinstance(event, ActionChanged)]
    assert await desk.cache.count(RunFilter()) == (answer is RUN)
    assert any(isinstance(event, RunsChanged) for event in desk.events) == (answer is RUN)


@pytest.mark.parametrize("status", [400, 401, 409, 429])
async def test_a_refusal_is_rejected_with_the_services_words(desk: Desk, status: int) -> None:
    """A 4xx promises that nothing was done; the same email may be tried again at once."""
    desk.server.script(Respond(status, {"message": "no, because", "error_code": "E7"}), Respond(201, ORGANIZATION))
    action = await desk.actions().submit(ADA)
    second = await desk.actions().submit(ADA)

    assert action.state == "rejected"
    assert action.error is not None
    assert (action.error.message, action.error.http_status) == ("no, because", status)
    assert second.state == "confirmed"


@pytest.mark.parametrize(
    "step", [Drop(), Respond(500, {"message": "half done"}), Respond(201, b"{"), Raw(b"HTTP/1.1 2")]
)
async def test_doubt_is_unknown_and_blocks_the_email(desk: Desk, step: Respond | Drop | Raw) -> None:
    """Lost answer, 5xx, unreadable success: one POST went out, and a second attempt is refused with the way out."""
    desk.server.script(step)
    action = await desk.actions().submit(ADA)
    with pytest.raises(BlockedError, match=f"runwarden actions resolve {action.action_id}"):
        await desk.actions().submit(CreateOrganization("ada@customer.EXAMPLE"))

    assert action.state == "unknown"
    assert [request.method for request in desk.server.requests] == ["POST"]


@pytest.mark.parametrize("desk", [HASTY], indirect=True)
async def test_a_time_out_after_sending_is_unknown(desk: Desk) -> None:
    """The request arrived whole; whether it was carried out is unknown here."""
    desk.server.script(Hang())
    action = await desk.actions().submit(ADA)
    while action.state == "not_sent":  # the machine stood still before the first byte
        action = await desk.actions().submit(ADA)

    assert action.state == "unknown"
    assert action.error is not None
    assert action.error.kind == "timed_out"


async def test_a_closed_ledger_sends_nothing(desk: Desk) -> None:
    """If the commit before the first byte fails, no byte leaves."""
    actions = desk.actions()

    async def sending(action_id: str) -> None:
        raise OSError("disk gone")

    desk.ledger.sending = sending  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="disk gone"):
        await actions.submit(ADA)

    assert desk.server.requests == []
    (action,) = await desk.ledger.actions()
    assert action.state == "not_sent"


async def test_the_same_key_sends_once(desk: Desk) -> None:
    """Twenty intentions with one key make one request, and every one of them hears its result."""
    desk.server.otherwise = lambda _: Respond(201, RUN)
    attempts = [desk.actions().submit(StartRun("Look", API), key="nightly/2026-05-01") for _ in range(20)]
    done = await asyncio.gather(*attempts, return_exceptions=True)

    others = [each.existing for each in done if isinstance(each, AlreadyAskedError)]
    assert len(others) == 19
    assert {other.result_id for other in others} == {"run_1"}
    assert len(desk.server.requests) == 1


@pytest.mark.parametrize("step", [Respond(429, {"message": "slow down"}), Respond(400, {"message": "no"})])
async def test_a_key_sends_again_after_what_certainly_had_no_effect(desk: Desk, step: Respond) -> None:
    """A refused attempt leaves its key; once a request may have been executed, the key is used up."""
    desk.server.script(step, Respond(201, ORGANIZATION))
    first = await desk.actions().submit(ADA, key="k")
    second = await desk.actions().submit(ADA, key="k")
    with pytest.raises(AlreadyAskedError) as asked:
        await desk.actions().submit(ADA, key="k")

    with pytest.raises(WrongStateError):
        await desk.actions().send_again(second.action_id)

    assert [first.state, second.state] == ["rejected", "confirmed"]
    assert asked.value.existing == second
    assert len(desk.server.requests) == 2


async def test_a_second_organization_for_an_address_needs_a_knowing_yes(desk: Desk) -> None:
    """Eight at once, and one after the other: one is created; `again` creates another one."""
    desk.server.otherwise = lambda _: Respond(201, ORGANIZATION)
    done = await asyncio.gather(*(desk.actions().submit(ADA) for _ in range(8)), return_exceptions=True)
    with pytest.raises(DuplicateError, match="was created for"):
        await desk.actions().submit(ADA)
    made = await desk.actions().submit(ADA, again=True)

    assert sum(isinstance(each, Action) for each in done) == 1
    assert made.state == "confirmed"
    assert len(desk.server.requests) == 2


async def test_a_resolution_is_undone_and_made_another_way(desk: Desk) -> None:
    """A slip of the finger is not for good; read-only it stays."""
    desk.server.script(Drop())
    action = await desk.actions().submit(ADA)
    await desk.actions().resolve_created(action.action_id, "hello")
    with pytest.raises(ReadOnlyError):
        await desk.actions(read_only=True).undo_resolution(action.action_id)

    assert await desk.actions().undo_resolution(action.action_id) == action
    assert (await desk.actions().resolve_not_created(action.action_id)).state == "not_created"


async def test_invalid_and_read_only_leave_no_trace(desk: Desk) -> None:
    """What was never going to be sent does not enter the ledger."""
    with pytest.raises(InvalidRequestError, match="email"):
        await desk.actions().submit(CreateOrganization("nobody"))
    with pytest.raises(ReadOnlyError):
        await desk.actions(read_only=True).submit(ADA)

    assert await desk.ledger.actions() == ()


async def test_closing_breaks_off_what_is_on_its_way_and_writes_it_down(desk: Desk) -> None:
    """The next process that closes the ledger finds it settled: no guess at the next start."""
    desk.server.script(Hang())
    actions = desk.actions()
    sending = asyncio.create_task(actions.submit(ADA))
    await asyncio.to_thread(desk.server.wait_for, 1)
    await actions.in_flight.close()

    (action,) = await desk.ledger.actions()
    assert action.state == "unknown"
    assert sending.cancelled()
