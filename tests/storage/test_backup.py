"""Backups: complete and of one moment, while others write."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from storage.database import copy_database
from storage.errors import StorageError


def written(path: Path, pairs: int) -> None:
    """A database whose two tables always hold as many rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS a (n INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS b (n INTEGER)")
        for number in range(pairs):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO a VALUES (?)", (number,))
            connection.execute("INSERT INTO b VALUES (?)", (number,))
            connection.execute("COMMIT")


def test_a_copy_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    """Never half a transaction, and its owner's alone."""
    source = tmp_path / "ledger.sqlite3"
    written(source, 50)
    writer = threading.Thread(target=written, args=(source, 100))
    writer.start()
    for number in range(5):
        copy_database(source, target := tmp_path / f"copy-{number}.sqlite3")
        with closing(sqlite3.connect(target)) as connection:
            (a,), (b,) = (connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in "ab")
        assert a == b >= 50
        assert target.stat().st_mode & 0o77 == 0
    writer.join()


def test_a_damaged_database_is_not_copied_and_nothing_is_overwritten(tmp_path: Path) -> None:
    """No file is left that looks like a backup."""
    source, target = tmp_path / "ledger.sqlite3", tmp_path / "copy.sqlite3"
    source.write_bytes(b"no database at all" * 1_000)
    with pytest.raises(StorageError):
        copy_database(source, target)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.sqlite3"]
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        copy_database(source, target)
    assert target.read_text() == "mine"
