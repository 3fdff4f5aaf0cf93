"""What an answer, or a file that fails, leaves in the ledger: the truth, without the token."""

import json
import sqlite3
import threading
from contextlib import closing
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from app.api.requests import StartRun
from app.events import ActionChanged, Event, StorageFailed
from tests.actions.conftest import ADA, API, Desk
from tests.lab import RUN, Drop, Respond

UNCERTAIN = (204, 206, 300, 302, 307, 308, 406, 408, 418, 424, 425, 444, 499, 500, 502, 503, 504)


@pytest.mark.parametrize("status", UNCERTAIN)
async def test_an_answer_that_promises_nothing_is_unknown(desk: Desk, status: int) -> None:
    """Rejected only where it is certain: anything else may come after the request was carried out."""
    desk.server.script(Respond(status, b"" if status == 204 else {"message": "hm"}, {"Location": "/v1/elsewhere"}))
    action = await desk.actions().submit(ADA)

    assert action.state == "unknown"
    assert len(desk.server.requests) == 1


TOKEN = "s3cr+t/tok~en%41"
ECHOES = {
    "raw": f"Bearer {TOKEN}",
    "slash": TOKEN.replace("/", r"\/"),
    "percent": quote(TOKEN, safe=""),
    "hex": "%" + TOKEN.encode().hex("%"),
    "codes": "".join(f"\\u{ord(letter):04x}" for letter in TOKEN),
}
"""The token in every encoding in which a service may send a request back, as it stands between JSON's quotes."""


@pytest.mark.parametrize("desk", [TOKEN], indirect=True)
@pytest.mark.parametrize("status", [201, 200, 400, 429, 500, 302])
async def test_an_answer_that_echoes_the_token_leaves_it_nowhere(desk: Desk, status: int) -> None:
    """Not in the ledger, its audit or a message, not in an event, and not in what is read."""
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


@pytest.mark.parametrize("step", [Respond(201, RUN), Respond(400, {"message": "no"}), Drop()])
async def test_a_ledger_that_cannot_record_the_answer_leaves_it_unknown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: Respond | Drop
) -> None:
    """Locked since the request arrived: what the service said is told, the row stays until its process has ended."""
    monkeypatch.setattr("app.actions.actions.RETRY_S", 0.0)
    await desk.ledger.writer.run(lambda connection: connection.execute("PRAGMA busy_timeout = 10"))
    with closing(sqlite3.connect(desk.ledger.writer.path, check_same_thread=False, isolation_level=None)) as other:

        def lock(_: object) -> Respond | Drop:
            other.execute("BEGIN EXCLUSIVE")
            return step

        desk.server.otherwise = lock
        action = await desk.actions().submit(StartRun("Look", API))
        other.execute("ROLLBACK")

    assert (action.state, len(desk.server.requests)) == ("unknown", 1)
    assert action.error is not None
    if isinstance(step, Respond):
        assert action.error.kind == "not_recorded"
        assert "run_1" in action.error.message if step.status == 201 else "refused: no" in action.error.message
    held = await desk.ledger.action(action.action_id)
    assert held is not None
    assert held.state == "sending"


async def test_a_ledger_that_recovers_gets_the_answer(desk: Desk) -> None:
    """It is tried again for a while: a short lock or a disk that was full for a moment costs nothing."""
    await desk.ledger.writer.run(lambda connection: connection.execute("PRAGMA busy_timeout = 10"))
    with closing(sqlite3.connect(desk.ledger.writer.path, check_same_thread=False, isolation_level=None)) as other:

        def lock(_: object) -> Respond:
            other.execute("BEGIN EXCLUSIVE")
            threading.Timer(0.3, lambda: other.execute("ROLLBACK")).start()
            return Respond(201, RUN)

        desk.server.otherwise = lock
        action = await desk.actions().submit(StartRun("Look", API))

    assert (action.state, action.result_id) == ("confirmed", "run_1")
    assert await desk.ledger.action(action.action_id) == action


@pytest.mark.parametrize(("desk", "busy_ms"), [(120.0, 10), (0.05, 300)], indirect=["desk"])
async def test_a_ledger_locked_before_the_first_byte_sends_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, busy_ms: int
) -> None:
    """It is not sent, and says so with its id, whether the lock or the deadline ends first."""
    monkeypatch.setattr("app.actions.actions.RETRY_S", 0.0)
    await desk.ledger.writer.run(lambda connection: connection.execute(f"PRAGMA busy_timeout = {busy_ms}"))
    with closing(sqlite3.connect(desk.ledger.writer.path, isolation_level=None)) as other:
        actions = desk.actions()

        def lock(event: Event) -> None:
            if isinstance(event, ActionChanged) and not other.in_transaction:
                other.execute("BEGIN EXCLUSIVE")

        action = await replace(actions, announce=lock).submit(ADA)
        other.execute("ROLLBACK")

    assert action.state == "not_sent"
    assert action.error is not None
    assert action.error.kind in {"database_busy", "timed_out"}
    assert desk.server.requests == []
    (held,) = await desk.ledger.actions()
    assert held.state == "prepared"


def broken(_: Event) -> None:
    raise RuntimeError("a listener's mistake")


@pytest.mark.parametrize("fault", ["locked", "full", "closed", "listener"])
async def test_what_fails_after_the_ledgers_word_is_a_warning(desk: Desk, fault: str) -> None:
    """A cache that cannot be written, or a listener that breaks: the write is confirmed, and says what went wrong."""
    desk.server.script(Respond(201, {**RUN, "more": "x" * 500_000}))
    actions = desk.actions()
    await desk.cache.writer.run(lambda c: c.execute("PRAGMA busy_timeout = 10").fetchall())
    with closing(sqlite3.connect(desk.cache.writer.path, isolation_level=None)) as other:
        if fault == "locked":
            other.execute("BEGIN IMMEDIATE")
        elif fault == "full":
            await desk.cache.writer.run(lambda c: c.execute("PRAGMA max_page_count = 1").fetchall())
        elif fault == "closed":
            await desk.cache.close()
        else:
            actions = replace(actions, announce=broken)
        action = await actions.submit(StartRun("Look", API))

    assert (action.state, action.result_id) == ("confirmed", "run_1")
    assert await desk.ledger.action(action.action_id) == action
    warned = [event.message for event in desk.events if isinstance(event, StorageFailed)]
    assert len(warned) == (fault != "listener")
