"""Opening a ledger of another version, or a damaged one: it is read, and never written or rebuilt."""

import sqlite3
from pathlib import Path

import pytest

from storage.errors import DatabaseDamagedError, DatabaseNewerError, DatabaseOlderError, StorageError
from storage.ledger import Ledger
from tests.storage.conftest import JUNK, spoil, written

ENTRY = {"action_id": None, "kind": "run.start", "subject": "", "path": "/", "actor": "cli:ann"}


@pytest.mark.parametrize(
    ("step", "problem", "cure"),
    [
        ("0099_future", DatabaseNewerError, "Install that version again"),
        ("0001_first", DatabaseOlderError, "Settle its open actions with that version"),
    ],
)
async def test_a_ledger_of_another_version_is_read_and_not_written(
    ledger_path: Path, step: str, problem: type[StorageError], cure: str
) -> None:
    """A program does not touch what one with other tables wrote: every write names the file and what to do."""
    async with await Ledger.open(ledger_path) as ledger:
        action = await ledger.prepare(key="k", body_json="{}", **ENTRY)
    with sqlite3.connect(ledger_path) as connection:
        connection.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('ledger', ?, '')",
            (step,),
        )
        connection.execute("ALTER TABLE actions ADD COLUMN of_tomorrow TEXT")
    connection.close()
    before = ledger_path.read_bytes()

    async with await Ledger.open(ledger_path) as ledger:
        assert isinstance(ledger.problem, problem)
        assert (await ledger.actions(), await ledger.adopt_orphans()) == ((action,), ())
        for write in (ledger.prepare(key="k2", body_json="{}", **ENTRY), ledger.sending(action.action_id)):
            with pytest.raises(problem, match=cure) as caught:
                await write
            assert (caught.value.path, str(ledger_path) in caught.value.message) == (ledger_path, True)
    assert ledger_path.read_bytes() == before


async def test_what_damage_left_of_a_ledger_is_read(ledger_path: Path) -> None:
    """The entries before and after a page that is lost; nothing is written, and the file stays as it is."""
    async with await Ledger.open(ledger_path) as ledger:
        body = f'"{"x" * 1500}"'
        ids = [(await ledger.prepare(key=str(n), body_json=body, **ENTRY)).action_id for n in range(40)]
    with sqlite3.connect(ledger_path) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = ledger_path.read_bytes()
    spoil(ledger_path, content.index(ids[20].encode() + b"run.start") // size + 1, size)
    before = ledger_path.read_bytes()

    async with await Ledger.open(ledger_path) as ledger:
        assert isinstance(ledger.problem, DatabaseDamagedError)
        left = [action.action_id for action in await ledger.actions()]
        with pytest.raises(DatabaseDamagedError, match="restore it from a backup"):
            await ledger.prepare(key="k", body_json="{}", **ENTRY)

    assert (left[0], left[-1], len(left) > 30, ids[20] in left) == (ids[39], ids[0], True, False)
    assert ledger_path.read_bytes() == before


async def test_a_damaged_ledger_is_never_rebuilt(ledger_path: Path) -> None:
    """It is the only record of what was sent: it stays as it is, and the message says how to go on."""
    written(ledger_path, JUNK)

    with pytest.raises(DatabaseDamagedError, match="restore it from a backup") as caught:
        await Ledger.open(ledger_path)

    assert str(ledger_path) in caught.value.message
    assert ledger_path.read_bytes() == JUNK


async def test_damage_inside_a_ledger_is_found_when_it_opens(ledger_path: Path) -> None:
    """Every page is looked at, not only those that opening needs."""
    await (await Ledger.open(ledger_path)).close()
    with sqlite3.connect(ledger_path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE '%result_id'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    spoil(ledger_path, page, size)

    with pytest.raises(DatabaseDamagedError, match="never rebuilt"):
        await Ledger.open(ledger_path)
