"""The ledger's methods: the state that each leads to, and what it leaves behind; the rest is proven by the model."""

import runpy
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from sqlite3 import IntegrityError
from unittest.mock import patch

import pytest

from storage import database
from storage.ledger import (
    Ledger,
    NoSuchActionError,
)
from storage.records import Action, ActionFailure, Author
from tests.storage.conftest import NOON

Prepare = Callable[..., Awaitable[Action]]


async def test_an_error_is_kept_until_it_is_overcome(ledger: Ledger, prepare: Prepare) -> None:
    """An unknown outcome says why; once a person knows that it was created there is no error any more."""
    action_id = (await prepare()).action_id
    await ledger.sending(action_id)
    error = ActionFailure("server_failed", "half done", http_status=500, error_code="E1")

    unknown = await ledger.unknown(action_id, error)
    assert unknown.error == error
    assert unknown.is_open

    created = await ledger.resolve_created(action_id, "org_9")
    assert (created.error, created.result_id, created.resolution) == (None, "org_9", "created")


async def test_every_step_stays_on_record(ledger_path: Path) -> None:
    """Who, from where, when and what; a resolution and its undoing too, and no entry is ever changed."""
    ann = Author("ann", "laptop", "console")
    async with await Ledger.open(ledger_path, author=ann, clock=lambda: NOON) as ledger:
        action = await ledger.prepare(
            action_id=None,
            kind="organization.create",
            subject="s",
            key="k",
            path="/",
            body_json="{}",
            actor="console:ann",
            base_url="https://api.test/v1",
        )
        await ledger.sending(action.action_id)
        await ledger.unknown(action.action_id, ActionFailure("timed_out", "No answer within 20 s."))
        await ledger.resolve_created(action.action_id, "org_2")
        await ledger.unresolve(action.action_id)
        steps = await ledger.audit(action.action_id)

        assert (action.base_url, action.author) == ("https://api.test/v1", ann)
        assert {(step.at, step.action_id, step.author) for step in steps} == {(NOON, action.action_id, ann)}
        assert [(step.transition, step.detail) for step in steps] == [
            ("prepared", "https://api.test/v1"),
            ("sending", None),
            ("unknown", "timed_out"),
            ("resolved_created", "org_2"),
            ("resolution_undone", "created"),
        ]
        for change in ("UPDATE audit SET user = 'eve'", "DELETE FROM audit"):
            with pytest.raises(IntegrityError, match="only ever added to"):
                await ledger.writer.run(lambda connection, sql=change: connection.execute(sql))


async def test_a_resolution_has_its_own_person_machine_and_time(ledger_path: Path) -> None:
    """Not those of the one who sent it, nor of the moment when its outcome became unknown."""
    action = {"action_id": None, "kind": "run.start", "subject": "", "key": "k", "path": "/", "body_json": "{}"}
    async with await Ledger.open(ledger_path, author=Author("ann", "laptop", "console"), clock=lambda: NOON) as ledger:
        number = (await ledger.prepare(**action, actor="console:ann")).action_id
        await ledger.sending(number)
        unknown = await ledger.unknown(number, ActionFailure("timed_out", "No answer within 20 s."))

    bob, later = Author("bob", "desk", "command"), NOON + timedelta(minutes=8)
    async with await Ledger.open(ledger_path, author=bob, clock=lambda: later) as ledger:
        resolved = await ledger.resolve_not_created(number)
        undone = await ledger.unresolve(number)
        again = await ledger.resolve_created(number, "run_1")

    assert (unknown.resolved_at, unknown.resolved_by) == (undone.resolved_at, undone.resolved_by) == (None, Author())
    assert (resolved.settled_at, resolved.resolved_at, resolved.resolved_by) == (NOON, later, bob)
    assert (again.resolved_at, again.resolved_by.name, again.author.name) == (later, "bob@desk", "ann@laptop")


async def test_an_action_that_is_not_there(ledger: Ledger) -> None:
    """Moving it is refused by name; asking for it is answered with nothing."""
    with pytest.raises(NoSuchActionError, match="act_none"):
        await ledger.sending("act_none")

    assert await ledger.action("act_none") is None


async def test_text_that_sqlite_refuses_is_kept_readable(ledger: Ledger, prepare: Prepare) -> None:
    """Lone surrogates, as a shell's arguments may have, become question marks."""
    action = await prepare("k\ud800", subject="s\udcff", actor="cli:\udc80")
    await ledger.sending(action.action_id)

    unknown = await ledger.unknown(action.action_id, ActionFailure("timed_out", "m\ud800"))

    assert (unknown.key, unknown.subject, unknown.actor, unknown.error) == (
        "k?",
        "s?",
        "cli:?",
        ActionFailure("timed_out", "m?"),
    )


async def test_the_ledger_is_on_the_disk_before_it_answers(tmp_path: Path) -> None:
    """No write-ahead log, and every commit is synced with its folder."""
    shipped = runpy.run_path(database.__file__)["PRECIOUS"]
    with patch.dict(database.PRECIOUS, shipped):
        async with await Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
            pragmas = await ledger.writer.run(
                lambda c: tuple(c.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
            )
    extra = 3

    assert pragmas == ("delete", extra)
