"""Writes over a real ledger, a real cache, and a server that fails in every way: each is sent at most once."""

import asyncio
import json
import math
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.actions.actions import Actions
from app.actions.reconciliation import Reconciliation
from app.actions.refusals import (
    AlreadyAskedError,
    BlockedError,
    DoubtfulIdError,
    DuplicateError,
    InvalidRequestError,
    ReadOnlyError,
    branch_problem,
    problems,
)
from app.api.client import Client
from app.api.requests import (
    CancelRun,
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    ResendInvitation,
    SayToRun,
    StartAgent,
    StartRun,
    WriteRequest,
)
from app.engine.events import ActionChanged, Event, RunsChanged, StorageFailed
from app.profiles.token import Token
from app.results.service import ServiceExtension
from app.sync.listing import Listing
from app.sync.runs import RunSync
from storage.cache.cache import Cache
from storage.errors import WrongStateError
from storage.ledger import Ledger
from storage.records import Action, PollOutcome, Repository, RunFilter
from storage.values import utc_now
from tests.lab import EXECUTION, ORGANIZATION, RUN, Drop, Hang, Raw, Respond, Server, Step
from tests.waiting import present

API = Repository.parse("acme/api")
ADA = CreateOrganization("Ada@Customer.example")
PATIENT, HASTY = 120.0, 1.5
"""Deadlines in seconds."""


@dataclass
class Desk:
    """Actions on one ledger, in front of a faulty server."""

    server: Server
    ledger: Ledger
    cache: Cache
    client: Client
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        ring = self.events.append
        self.runs = RunSync(self.client, self.cache, ring, clock=utc_now, page_size=100, first_runs=100)

    def actions(self, *, read_only: bool = False) -> Actions:
        store = partial(self.runs.reader.store, is_of_write=True)
        return Actions(self.client, self.ledger, store, self.events.append, utc_now, "test", read_only)


@pytest.fixture(params=[PATIENT])
async def desk(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """`request.param` is the deadline in seconds, or the token."""
    deadline_s, token = (PATIENT, request.param) if isinstance(request.param, str) else (request.param, "test-token")
    with Server() as server:
        async with (
            await Cache.open(tmp_path / "cache.sqlite3") as cache,
            await Ledger.open(tmp_path / "ledger.sqlite3") as ledger,
            aclosing(Client(server.base_url, Token(token), deadline_s=deadline_s)) as client,
        ):
            yield Desk(server, ledger, cache, client)


@pytest.mark.parametrize(
    ("request_", "answer", "result_id"),
    [
        (StartRun("Look", API), RUN, "run_1"),
        (ContinueRun("run_1", "Again", API), RUN, "run_1"),
        (ADA, ORGANIZATION, "org_1"),
        (StartAgent("nightly", "acme/api"), EXECUTION, "exe_1"),
    ],
)
async def test_a_confirmed_write_has_its_id_in_ledger_and_cache(
    desk: Desk, request_: WriteRequest, answer: dict[str, object], result_id: str
) -> None:
    """The ledger has the id and the answer, and the cache has the run before any poll has seen it."""
    desk.server.script(Respond(201, answer))
    action = await desk.actions().submit(request_)

    assert (action.state, action.result_id) == ("confirmed", result_id)
    assert action.sending_at is not None
    assert [event for event in desk.events if isinstance(event, ActionChanged)]
    assert await desk.cache.count(RunFilter()) == (answer is RUN)
    assert any(isinstance(event, RunsChanged) for event in desk.events) == (answer is RUN)


@pytest.mark.parametrize("status", [400, 401, 429])
async def test_a_4xx_is_rejected_and_frees_email_and_key(desk: Desk, status: int) -> None:
    """A 4xx means that nothing was done, so the email and the key may be used again.

    After a lost request they may not.
    """
    desk.server.script(Respond(status, {"message": "no, because", "error_code": "E7"}), Respond(201, ORGANIZATION))
    action = await desk.actions().submit(ADA, key="k")
    second = await desk.actions().submit(ADA, key="k")
    with pytest.raises(AlreadyAskedError) as asked:
        await desk.actions().submit(ADA, key="k")
    with pytest.raises(WrongStateError):
        await desk.actions().send_again(second.action_id)

    assert action.state == "rejected"
    assert action.error is not None
    assert (action.error.message, action.error.http_status) == ("no, because", status)
    assert second.state == "confirmed"
    assert asked.value.existing == second
    assert len(desk.server.requests) == 2


UNCERTAIN = [
    *(Drop(), Respond(201, b"{"), Raw(b"HTTP/1.1 2"), Respond(204)),
    *(Respond(code, {"message": "hm"}, {"Location": "/v1/x"}) for code in (206, 302, 408, 425, 499, 504)),
]


@pytest.mark.parametrize("step", UNCERTAIN)
async def test_an_unknown_outcome_blocks_a_second_attempt_for_its_email(desk: Desk, step: Respond | Drop | Raw) -> None:
    """After an unknown outcome, a second attempt for the same email is refused, and the error names the way out."""
    desk.server.script(step)
    action = await desk.actions().submit(ADA)
    with pytest.raises(BlockedError, match=f"runwarden actions resolve {action.action_id}"):
        await desk.actions().submit(CreateOrganization("ada@customer.EXAMPLE"))

    assert action.state == "unknown"
    assert [request.method for request in desk.server.requests] == ["POST"]
    # A resolution can be undone, but not while the profile is read-only.
    reading = desk.actions(read_only=True)
    with pytest.raises(ReadOnlyError):
        await reading.resolve(action.action_id, "hello")
    with pytest.raises(ReadOnlyError):
        await reading.resolve(action.action_id, None)
    await desk.actions().resolve(action.action_id, "hello")
    with pytest.raises(ReadOnlyError):
        await reading.undo_resolution(action.action_id)
    assert await desk.actions().undo_resolution(action.action_id) == action
    assert (await desk.actions().resolve(action.action_id, None)).state == "not_created"


@pytest.mark.parametrize("request_", [CancelRun("run_1"), SayToRun("run_1", "Stop."), ResendInvitation("inv_1")])
async def test_a_404_of_an_extension_is_rejected_but_a_gateways_501_is_unknown(
    desk: Desk, request_: WriteRequest
) -> None:
    """A message that a gateway answers with 501 may have arrived, so it is not sent again under its key."""
    desk.server.script(*(Respond(status, {"message": "Not here."}) for status in (404, 405, 501)))
    actions = [await desk.actions().submit(request_, key="k") for _ in range(3)]
    with pytest.raises(AlreadyAskedError):
        await desk.actions().submit(request_, key="k")

    told = [(action.state, present(action.error).kind) for action in actions]
    assert told == [("rejected", "not_offered"), ("rejected", "not_offered"), ("unknown", "server_failed")]
    assert len(desk.server.requests) == 3
    assert await desk.ledger.unresolved() == (actions[-1],)


@pytest.mark.parametrize("desk", [HASTY], indirect=True)
async def test_a_time_out_after_sending_is_unknown(desk: Desk) -> None:
    """If the deadline passes after the whole request was sent, the outcome is unknown."""
    desk.server.script(Hang())
    action = await desk.actions().submit(ADA)
    while action.state == "not_sent":  # the machine was suspended before the first byte
        action = await desk.actions().submit(ADA)

    assert action.state == "unknown"
    assert present(action.error).kind == "timed_out"


async def test_a_closed_ledger_sends_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the commit before the first byte fails, no byte leaves."""

    async def sending(_: str) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr(desk.ledger, "sending", sending)
    with pytest.raises(OSError, match="disk gone"):
        await desk.actions().submit(ADA)

    assert desk.server.requests == []
    assert [action.state for action in await desk.ledger.actions()] == ["not_sent"]


async def test_the_same_key_sends_once(desk: Desk) -> None:
    """Twenty submissions with one key make one request, and each of them gets its result."""
    desk.server.otherwise = lambda _: Respond(201, RUN)
    attempts = [desk.actions().submit(StartRun("Look", API), key="nightly/2026-05-01") for _ in range(20)]
    done = await asyncio.gather(*attempts, return_exceptions=True)

    others = [each.existing.result_id for each in done if isinstance(each, AlreadyAskedError)]
    assert others == ["run_1"] * 19
    assert len(desk.server.requests) == 1


async def test_a_second_organization_for_an_email_needs_again(desk: Desk) -> None:
    """A second organization for an address is only created with `again`, one after the other or eight at once."""
    desk.server.otherwise = lambda _: Respond(201, ORGANIZATION)
    done = await asyncio.gather(*(desk.actions().submit(ADA) for _ in range(8)), return_exceptions=True)
    for refused in (desk.actions().submit(ADA), desk.actions().rehearse(ADA)):
        with pytest.raises(DuplicateError, match="was created for"):
            await refused
    await desk.actions().rehearse(ADA, again=True)
    made = await desk.actions().submit(ADA, again=True)

    assert sum(isinstance(each, Action) for each in done) == 1
    assert made.state == "confirmed"
    assert len(desk.server.requests) == 2


async def test_invalid_and_read_only_writes_are_not_recorded(desk: Desk) -> None:
    """Invalid writes and writes of a read-only profile are not recorded in the ledger."""
    with pytest.raises(InvalidRequestError, match="email"):
        await desk.actions().submit(CreateOrganization("nobody"))
    for refused in (desk.actions(read_only=True).submit(ADA), desk.actions(read_only=True).rehearse(ADA)):
        with pytest.raises(ReadOnlyError):
            await refused

    assert await desk.ledger.actions() == ()


async def test_closing_interrupts_writes_and_records_their_outcome(desk: Desk) -> None:
    """Closing interrupts writes under way and records their outcome, so that the next start has nothing to guess."""
    desk.server.script(Hang())
    actions = desk.actions()
    sending = asyncio.create_task(actions.submit(ADA))
    await asyncio.to_thread(desk.server.wait_for, 1)
    await actions.in_flight.close()

    (action,) = await desk.ledger.actions()
    assert action.state == "unknown"
    assert sending.cancelled()


# what an answer, or a file that fails, leaves in the ledger: never the token

TOKEN = "s3cr+t/tok~en%41"
ECHOES = {
    "raw": f"Bearer {TOKEN}",
    "slash": TOKEN.replace("/", r"\/"),
    "percent": quote(TOKEN, safe=""),
    "hex": "%" + TOKEN.encode().hex("%"),
    "codes": "".join(f"\\u{ord(letter):04x}" for letter in TOKEN),
}
"""The token in every encoding in which a service may echo it, as it appears inside JSON quotes."""


@pytest.mark.parametrize("desk", [TOKEN], indirect=True)
@pytest.mark.parametrize("status", [201, 400, 500, 302])
async def test_an_echoed_token_is_stored_and_shown_nowhere(desk: Desk, status: int) -> None:
    """An echoed token is in no ledger row, audit entry, message, event or result."""
    echo = ", ".join(f'"{name}": "{text}"' for name, text in ECHOES.items())
    answer = {**RUN, "message": f"{TOKEN} is bad", "error_code": TOKEN}
    body = f'{json.dumps(answer)[:-1]}, "headers": {{{echo}}}}}'
    page = f'{{"runs": [{body}], "page_size": 100, "next_token": null, "total_count": 1}}'
    desk.server.script(Respond(status, body, {"Location": f"/v1/{TOKEN}"}), Respond(200, page))

    action = await desk.actions().submit(StartRun("Look", API))
    read = await desk.client.list_runs()

    assert json.loads(body)["headers"]["codes"] == TOKEN
    kept = await desk.ledger.writer.run(lambda connection: "".join(connection.iterdump()))
    told = "".join(map(str, (action, action.response_json, read, read.runs[0].raw_json, desk.events, kept)))
    assert [name for name, text in ECHOES.items() if text.removeprefix("Bearer ") in told] == []
    assert "[token]" in told


@asynccontextmanager
async def locking(database: Ledger | Cache, busy_ms: int = 10) -> AsyncIterator[sqlite3.Connection]:
    """Another connection to this file; the ledger waits `busy_ms` for its lock."""
    await database.writer.run(lambda connection: connection.execute(f"PRAGMA busy_timeout = {busy_ms}").fetchall())
    with closing(sqlite3.connect(database.writer.path, check_same_thread=False, isolation_level=None)) as other:
        yield other


@pytest.mark.parametrize("step", [Respond(201, RUN), Respond(400, {"message": "no"}), Drop()])
async def test_a_write_is_unknown_if_the_ledger_cannot_record_its_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: Respond | Drop
) -> None:
    """If the ledger stays locked, the error reports what the service answered and the row is left unfinished.

    A short lock is waited out.
    """
    async with locking(desk.ledger) as other:

        def lock(_: object) -> Respond | Drop:
            other.execute("BEGIN EXCLUSIVE")
            if unlocks:
                threading.Timer(0.3, lambda: other.execute("ROLLBACK")).start()
                return Respond(201, RUN)
            return step

        desk.server.otherwise, unlocks = lock, True
        recorded = await desk.actions().submit(StartRun("Look", API))
        assert (recorded.state, recorded.result_id) == ("confirmed", "run_1")
        assert await desk.ledger.action(recorded.action_id) == recorded
        desk.server.requests.clear()
        unlocks = False
        monkeypatch.setattr("app.actions.actions.RETRY_S", 0.0)
        action = await desk.actions().submit(StartRun("Look", API))
        other.execute("ROLLBACK")

    assert (action.state, len(desk.server.requests)) == ("unknown", 1)
    assert action.error is not None
    if isinstance(step, Respond):
        assert action.error.kind == "not_recorded"
        assert "run_1" in action.error.message if step.status == 201 else "refused: no" in action.error.message
    held = await desk.ledger.action(action.action_id)
    assert present(held).state == "sending"


@pytest.mark.parametrize(("desk", "busy_ms"), [(120.0, 10), (0.05, 300)], indirect=["desk"])
async def test_a_ledger_locked_before_the_first_byte_sends_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, busy_ms: int
) -> None:
    """If the ledger is locked, nothing is sent and the error has the action's id, whichever time limit passes first."""
    monkeypatch.setattr("app.actions.actions.RETRY_S", 0.0)
    async with locking(desk.ledger, busy_ms) as other:

        def lock(event: Event) -> None:
            if isinstance(event, ActionChanged) and not other.in_transaction:
                other.execute("BEGIN EXCLUSIVE")

        action = await replace(desk.actions(), announce=lock).submit(ADA)
        other.execute("ROLLBACK")

    assert action.state == "not_sent"
    assert present(action.error).kind in {"database_busy", "timed_out"}
    assert desk.server.requests == []
    (held,) = await desk.ledger.actions()
    assert held.state == "prepared"


@pytest.mark.parametrize("fault", ["locked", "full", "closed", "listener"])
async def test_a_failure_after_the_ledgers_commit_is_a_warning(desk: Desk, fault: str) -> None:
    """A cache that cannot be written or a listener that raises only adds a warning to a confirmed write."""
    desk.server.script(Respond(201, {**RUN, "more": "x" * 500_000}))
    actions = desk.actions()
    async with locking(desk.cache) as other:
        if fault == "locked":
            other.execute("BEGIN IMMEDIATE")
        elif fault == "full":
            await desk.cache.writer.run(lambda c: c.execute("PRAGMA max_page_count = 1").fetchall())
        elif fault == "closed":
            await desk.cache.close()
        else:
            actions = replace(actions, announce=lambda _: 1 // 0)
        action = await actions.submit(StartRun("Look", API))

    assert (action.state, action.result_id) == ("confirmed", "run_1")
    assert await desk.ledger.action(action.action_id) == action
    warned = [event.message for event in desk.events if isinstance(event, StorageFailed)]
    assert len(warned) == (fault != "listener")


# a cancellation of unknown outcome is resolved by the run's turns


def turn(number: int, outcome: str | None, started: timedelta) -> dict[str, Any]:
    at = (datetime.now(UTC) + started).isoformat()
    return {"number": number, "state": outcome or "working", "outcome": outcome, "started_at": at}


BEFORE, AFTER = timedelta(minutes=-5), timedelta(days=1)
"""Now, as of test collection, which may be an hour ago."""


def told(*turns: dict[str, Any]) -> Respond:
    return Respond(200, {"run_id": "run_1", "turns": turns})


@pytest.mark.parametrize(
    ("answer", "resolution"),
    [
        (told(turn(1, "cancelled", BEFORE)), "created"),
        (told(turn(1, "completed", BEFORE)), "not_created"),
        pytest.param(told(turn(1, "cancelled", BEFORE), turn(2, "completed", AFTER)), "created", id="continued since"),
        pytest.param(told(turn(1, None, BEFORE)), None, id="it may still arrive"),
        (told(), None),
        pytest.param(Respond(404, {"message": "Not Found"}), None, id="not told"),
        (Respond(200, "<html>"), None),
        (Drop(), None),
    ],
)
async def test_an_unknown_cancellation_is_resolved_by_the_turn_active_at_sending(
    desk: Desk, answer: Step, resolution: str | None
) -> None:
    """The turn that was active at sending decides.

    While the service does not report it, polls ask less and less often.
    """
    desk.server.script(Drop())
    sent = await desk.actions().submit(CancelRun("run_1"))
    assert sent.state == "unknown"
    desk.server.otherwise = lambda _: answer
    now = datetime.now(UTC)
    actions = replace(desk.actions(), clock=lambda: now)
    extension = ServiceExtension(desk.client, desk.cache.has_no_results, desk.cache.note_no_results)
    chore = Reconciliation(desk.runs, Listing(desk.runs), extension, actions)
    asked = len(desk.server.requests)
    for _ in range(60):
        now += timedelta(minutes=1)
        await chore.work()

    [found] = await desk.ledger.actions(limit=9)
    assert found.resolution == resolution
    assert len(desk.server.requests) - asked <= (1 if resolution else 15)


async def test_unknown_cancellations_are_checked_before_other_searches(desk: Desk) -> None:
    """Runs with unknown cancellations are checked first, even while a newer write is searched for."""
    actions = desk.actions()
    desk.server.script(Drop(), Drop())
    await actions.submit(CancelRun("run_1"))
    await actions.submit(StartRun("Look", API))
    await desk.cache.record_poll(PollOutcome("runs", utc_now()))
    desk.server.otherwise = lambda _: Respond(404, {"message": "Not Found"})
    asked = len(desk.server.requests)
    extension = ServiceExtension(desk.client, desk.cache.has_no_results, desk.cache.note_no_results)
    await Reconciliation(desk.runs, Listing(desk.runs), extension, actions).work()

    paths = [request.path.partition("?")[0] for request in desk.server.requests[asked:]]
    assert paths[0].endswith("/external/runs/run_1")
    assert paths[1].endswith("/external/runs")


async def test_an_invitation_may_be_sent_again_several_times(desk: Desk) -> None:
    """It may be sent again several times: an earlier write with the same result raises no doubt."""
    actions = desk.actions()
    desk.server.script(Respond(200, {"invitation_id": "inv_1"}), Drop())
    first, second = [await actions.submit(ResendInvitation("inv_1")) for _ in range(2)]
    extension = ServiceExtension(desk.client, desk.cache.has_no_results, desk.cache.note_no_results)
    reconciliation = Reconciliation(desk.runs, Listing(desk.runs), extension, actions)

    assert (first.state, second.state) == ("confirmed", "unknown")
    await reconciliation.check(second, "inv_1")
    with pytest.raises(DoubtfulIdError, match="not the invitation that was sent again, inv_1"):
        await reconciliation.check(second, "inv_2")


# what is reported about a request before it is sent


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (StartRun(" \n", API), "instructions"),
        (StartRun("Look", API, "two words"), "branch_name"),
        (StartRun("half \ud800", API), "instructions"),
        *((StartRun("Look", API, metadata={"deep": [{"n": n}]}), "metadata") for n in (2**63, math.nan)),
        (ContinueRun("", "More", API), "run_id"),
        (StartAgent("..", "acme/api"), "name"),
        (StartAgent("reviewer", " "), "repository"),
        *((CreateOrganization(each), "email") for each in ("nobody", "a@b", "two@x.example, three@x.example")),
        (OnboardProject(project_path=" "), "project_path"),
        (CancelRun(" "), "run_id"),
        (SayToRun("..", "More"), "run_id"),
        (ResendInvitation(".."), "invitation_id"),
    ],
)
def test_each_fault_is_reported_at_its_field(request_: WriteRequest, field: str) -> None:
    """Each fault is reported at its field, so that a form can show it there."""
    assert [problem.field for problem in problems(request_)] == [field]


@given(st.text(st.sampled_from("ab/.-@{}~^:?*[\\ \x7f"), min_size=1, max_size=8))
def test_every_accepted_branch_name_is_valid_for_git(name: str) -> None:
    """Every branch name that validation accepts is also accepted by `git check-ref-format --branch`."""
    if branch_problem(name) is None:
        done = subprocess.run(["git", "check-ref-format", "--branch", name], check=False, capture_output=True)
        assert done.returncode == 0, name
