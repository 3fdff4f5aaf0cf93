"""The ledger's methods: the state that each leads to, and what it leaves behind; the rest is proven by the model."""

import runpy
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from sqlite3 import IntegrityError
from unittest.mock import patch

import pytest

from storage import database
from storage.ledger import Ledger, NoSuchActionError
from storage.records import Action, ActionFailure, Author
from tests.storage.conftest import NOON

Prepare = Callable[..., Awaitable[Action]]


ANN, BOB = Author("ann", "laptop", "console"), Author("bob", "desk", "command")
NO_ANSWER = ActionFailure("timed_out", "No answer within 20 s.", http_status=500, error_code="E1")


async def test_every_step_stays_on_record(ledger_path: Path) -> None:
    """Who, from where, when and what; no entry is ever changed. An error is kept until it is overcome.

    A resolution has its own person, machine and time: not those of the sender, nor of when the outcome became unknown.
    """
    facts = {"action_id": None, "kind": "organization.create", "subject": "s", "key": "k", "path": "/"}
    facts |= {"body_json": "{}", "actor": "console:ann", "base_url": "https://api.test/v1"}
    async with await Ledger.open(ledger_path, author=ANN, clock=lambda: NOON) as ledger:
        action = await ledger.prepare(**facts)
        number = action.action_id
        await ledger.sending(number)
        unknown = await ledger.unknown(number, NO_ANSWER)
    later = NOON + timedelta(minutes=8)
    async with await Ledger.open(ledger_path, author=BOB, clock=lambda: later) as ledger:
        resolved = await ledger.resolve_not_created(number)
        undone = await ledger.unresolve(number)
        created = await ledger.resolve_created(number, "org_2")
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


async def test_text_that_sqlite_refuses_is_kept_readable(ledger: Ledger, prepare: Prepare) -> None:
    """Lone surrogates, as a shell's arguments may have, become question marks. What is not there is named."""
    with pytest.raises(NoSuchActionError, match="act_none"):
        await ledger.sending("act_none")
    action = await prepare("k\ud800", subject="s\udcff", actor="cli:\udc80")
    await ledger.sending(action.action_id)
    unknown = await ledger.unknown(action.action_id, ActionFailure("timed_out", "m\ud800"))

    assert await ledger.action("act_none") is None
    assert (unknown.key, unknown.subject, unknown.actor) == ("k?", "s?", "cli:?")
    assert unknown.error == ActionFailure("timed_out", "m?")


async def test_the_ledger_is_on_the_disk_before_it_answers(tmp_path: Path) -> None:
    """No write-ahead log, and every commit is synced with its folder."""
    shipped = runpy.run_path(database.__file__)["PRECIOUS"]
    with patch.dict(database.PRECIOUS, shipped):
        async with await Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
            pragmas = await ledger.writer.run(
                lambda c: tuple(c.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
            )

    assert pragmas == ("delete", 3), "3: EXTRA"
