"""Makes a back-up while the service runs: the database at one moment, and the logs and diffs of its runs."""

import base64
import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from service.backup import archive
from service.backup.archive import ArchiveWriter, Manifest
from service.clock import Clock
from service.settings import DataFolder
from service.store.database import Database
from service.store.schema import VERSION, metadata, rate_limits, runs, workers

_OF_PROCESSES: Final = frozenset({workers.name, rate_limits.name})
"""Tables that only running processes need."""
ROWS_AT_ONCE: Final = 1000
TABLES: Final = tuple(table for table in metadata.sorted_tables if table.name not in _OF_PROCESSES)
"""All other tables, in an order in which rows can be inserted."""


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
            path = Path(scratch) / f"{dialect}.json"
            path.write_text(json.dumps(_creation(dialect)), "utf-8")
            with path.open("rb") as file:
                writer.add(f"schema/{dialect}.json", file)
        for table in TABLES:
            path = Path(scratch) / f"{table.name}.jsonl"
            dump(connection, table, path)
            with path.open("rb") as file:
                writer.add(f"tables/{table.name}.jsonl", file)
            path.unlink()
        _add_files(writer, folder, connection)
        kind = "sqlite" if database.is_sqlite else "postgresql"
        return writer.finish(schema_version=VERSION, made_at=made_at, database=kind)


@contextlib.contextmanager
def _snapshot(database: Database, scratch: Path) -> Iterator[sa.Connection]:
    """Open the database in its present state, which does not change while it is read."""
    if not database.is_sqlite:
        with database.read() as connection:
            yield connection
        return
    # A long read would keep SQLite's writers waiting, so the file is copied first and the copy is read.
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
    for run_folder in sorted(folder.runs.iterdir() if folder.runs.exists() else ()):
        for one in sorted(run_folder.iterdir()) if run_folder.name in known else ():
            # Retention may remove the file at this moment.
            with contextlib.suppress(FileNotFoundError), one.open("rb") as file:
                writer.add(f"runs/{run_folder.name}/{one.name}", file)


def _creation(dialect: str) -> list[str]:
    """Return the statements that create the tables of the present version."""
    statements: list[str] = []

    def note(statement: Any, *_: object, **__: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)).strip())

    engine = sa.create_mock_engine(f"{dialect}://", note)
    metadata.create_all(engine, checkfirst=False)
    return statements


def dump(connection: sa.Connection, table: sa.Table, path: Path) -> None:
    """Write a table into a file: the names of its columns, then a line for each row."""
    binary = [index for index, column in enumerate(table.c) if isinstance(column.type, sa.LargeBinary)]
    with path.open("x", encoding="utf-8") as file:
        file.write(json.dumps([column.name for column in table.c]) + "\n")
        for row in connection.execution_options(yield_per=ROWS_AT_ONCE).execute(sa.select(table)):
            values = list(row)
            for index in binary:
                values[index] = base64.b64encode(values[index]).decode()
            file.write(json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n")
