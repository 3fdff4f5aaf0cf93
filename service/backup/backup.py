"""Making a back-up, while the service runs: the database at one moment, and the logs and diffs of its runs."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from service.backup import archive, tables
from service.backup.archive import ArchiveWriter, Manifest
from service.clock import Clock
from service.settings import DataFolder
from service.store.database import Database
from service.store.schema import VERSION, runs


def back_up(database: Database, folder: DataFolder, target: Path, clock: Clock) -> Manifest:
    """Write a back-up of a service and return its manifest.

    Raises:
        BackupError: It cannot be written.
    """
    made_at = clock()
    with (
        archive.writing(target) as writer,
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch,
        _snapshot(database, Path(scratch)) as connection,
    ):
        for dialect in ("sqlite", "postgresql"):
            place = Path(scratch) / f"{dialect}.json"
            place.write_text(json.dumps(tables.creation(dialect)), "utf-8")
            with place.open("rb") as file:
                writer.add(f"schema/{dialect}.json", file)
        for table in tables.TABLES:
            place = Path(scratch) / f"{table.name}.jsonl"
            tables.dump(connection, table, place)
            with place.open("rb") as file:
                writer.add(f"tables/{table.name}.jsonl", file)
            place.unlink()
        _add_files(writer, folder, connection)
        kind = "sqlite" if database.is_sqlite else "postgresql"
        return writer.finish(schema_version=VERSION, made_at=made_at, database=kind)


@contextlib.contextmanager
def _snapshot(database: Database, scratch: Path) -> Iterator[sa.Connection]:
    """Open the database as it is now, however long it is read."""
    if not database.is_sqlite:
        with database.read() as connection:
            yield connection
        return
    # A reader keeps SQLite's writers waiting: the file is copied at once, and the copy is read.
    with contextlib.closing(Database(f"sqlite:///{scratch / 'snapshot.sqlite'}")) as copy:
        raw = (database.engine.raw_connection(), copy.engine.raw_connection())
        with contextlib.closing(raw[0]) as source, contextlib.closing(raw[1]) as target:
            source.driver_connection.backup(target.driver_connection)  # type: ignore[union-attr]  # sqlite3's
        with copy.read() as connection:
            yield connection


def _add_files(writer: ArchiveWriter, folder: DataFolder, connection: sa.Connection) -> None:
    known = frozenset(connection.execute(sa.select(runs.c.id)).scalars())
    if folder.settings_file.exists():
        with folder.settings_file.open("rb") as file:
            writer.add("service.toml", file)
    for place in sorted(folder.runs.iterdir() if folder.runs.exists() else ()):
        for one in sorted(place.iterdir()) if place.name in known else ():
            # Pruned while we look: it is gone then.
            with contextlib.suppress(FileNotFoundError), one.open("rb") as file:
                writer.add(f"runs/{place.name}/{one.name}", file)
