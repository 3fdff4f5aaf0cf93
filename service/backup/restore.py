"""Restores a back-up: checks it, unpacks it beside the old state, then moves it into the place of that state."""

import base64
import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import sqlalchemy as sa

from service.backup import archive
from service.backup.archive import BackupError, Manifest
from service.backup.backup import ROWS_AT_ONCE, TABLES
from service.clock import SECOND_MICROS, Clock, rfc3339
from service.execution import trees
from service.settings import DataFolder
from service.store import audit, workers
from service.store import runs as run_store
from service.store.database import Database
from service.store.migrations import migrate, stamp, version
from service.store.schema import VERSION, metadata, organizations, runs, turns
from service.store.turns import MADE_UP
from service.text import plural
from service.worker_process import held

_RUNNING = "a service runs on {0}; stop it before it is restored"


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    """What was restored, in numbers."""

    made_at: int
    organizations: int
    runs: int
    queued: int
    """Turns that had not ended, and are executed again."""
    files: int


class Restore:
    """Puts one back-up into one data folder and database."""

    def __init__(self, source: Path, folder: DataFolder, url: str | None, actor: str, clock: Clock) -> None:
        self._source = source
        self._folder = folder
        self._url = url
        self._actor = actor
        self._clock = clock
        self._staged = folder.root / "runs.restored"

    def run(self, *, force: bool) -> RestoreSummary:
        """Restore; with `force` over an existing state.

        Raises:
            BackupError: The back-up is damaged or of another version, or the target is not empty.
            StartError: The service runs.
            DatabaseError: The database cannot be used.
        """
        manifest = archive.checked(self._source)
        _check_version(manifest)
        self._folder.create(restoring=True)
        refusal = _RUNNING.format(self._folder.root)
        with held(self._folder.lock_file, refusal), held(self._folder.worker_lock_file, refusal):
            self._check_target(force=force)
            files = self._stage_files()
            with self._marked():
                restored = self._load_elsewhere(manifest) if self._url is None else self._load(self._url, manifest)
            self._place_files()
            self._folder.restoring_file.unlink()
        return RestoreSummary(manifest.made_at, *restored, files)

    @contextlib.contextmanager
    def _marked(self) -> Iterator[None]:
        """Mark the folder, so that nothing starts on it until this restore, or a later one, is complete."""
        was_cut_off = self._folder.restoring_file.exists()
        self._folder.restoring_file.touch(0o600)
        try:
            yield
        except BaseException:
            if not was_cut_off:
                # Nothing was changed yet.
                self._folder.restoring_file.unlink()
            raise

    def _check_target(self, *, force: bool) -> None:
        found = self._found()
        has_logs = any(self._folder.runs.iterdir())
        if (found or has_logs or self._folder.restoring_file.exists()) and not force:
            raise BackupError(
                f"{self._folder.root} is not empty: it has {found or 'no organization, but logs'}; "
                "give --force to replace ALL of it, or name another --data-dir"
            )

    def _found(self) -> str | None:
        """Describe the existing state that would be replaced; None: there is none."""
        if self._url is None and not self._folder.exists():
            return None
        with contextlib.closing(Database(self._url or self._folder.database_url)) as database:
            try:
                number = _organizations(database, self._clock)
            except sa.exc.DatabaseError as error:
                if self._url is not None:
                    raise
                # A damaged database is a common reason to restore.
                return f"a database that cannot be read ({error.orig})"
        return plural(number, "organization") if number else None

    def _stage_files(self) -> int:
        """Write logs and diffs beside the present ones; return how many."""
        trees.remove(self._staged)
        self._staged.mkdir(mode=0o700)
        number = 0
        for name, file in archive.members(self._source):
            kind, _, rest = name.partition("/")
            if kind == "runs":
                path = self._staged / rest
                path.parent.mkdir(mode=0o700, exist_ok=True)
                _write(path, file)
                number += 1
        return number

    def _place_files(self) -> None:
        for stale in (self._folder.runs, self._folder.work):
            if not trees.remove(stale):
                raise BackupError(f"{stale} cannot be removed; remove it by hand, and restore again with --force")
        self._staged.rename(self._folder.runs)
        self._folder.create(restoring=True)
        for name, file in archive.members(self._source):
            if name == "service.toml":
                self._folder.settings_file.unlink(missing_ok=True)
                _write(self._folder.settings_file, file)

    def _load_elsewhere(self, manifest: Manifest) -> tuple[int, int, int]:
        """Fill a new SQLite file, and move it into the place of the present one when it is complete."""
        target = self._folder.database_file
        draft = target.with_name("service.sqlite.restored")
        for stale in (draft, draft.with_name(f"{draft.name}-journal")):
            stale.unlink(missing_ok=True)
        loaded = self._load(f"sqlite:///{draft}", manifest)
        # A journal of the old file would be rolled back into the new one.
        for kind in ("journal", "wal", "shm"):
            target.with_name(f"{target.name}-{kind}").unlink(missing_ok=True)
        draft.replace(target)
        return loaded

    def _load(self, url: str, manifest: Manifest) -> tuple[int, int, int]:
        """Replace the content of a database, in one transaction; return organizations, runs, and turns queued again."""
        with contextlib.closing(Database(url)) as database, database.exclusive() as connection:
            _clear(connection)
            number = self._load_tables(connection, manifest.schema_version)
            migrate(connection)
            queued = queue_again(connection, self._clock)
            detail = f"the back-up of {rfc3339(manifest.made_at)}"
            audit.record(connection, self._actor, "restore", self._clock(), detail=detail)
        return number["organizations"], number["runs"], queued

    def _load_tables(self, connection: sa.Connection, made_by: int) -> dict[str, int]:
        """Create the tables as of the back-up's version, and fill them; return the number of rows of each."""
        number: dict[str, int] = {}
        made = sa.MetaData()
        for name, file in archive.members(self._source):
            kind, _, rest = name.partition("/")
            try:
                if name == f"schema/{connection.dialect.name}.json":
                    made = _made_tables(connection, file.read())
                    stamp(connection, made_by)
                elif kind == "tables":
                    table = made.tables[rest.removesuffix(".jsonl")]
                    number[table.name] = _load_table(connection, table, file)
            except (LookupError, ValueError, TypeError, sa.exc.StatementError) as error:
                raise BackupError(f"{self._source} does not fit: {name}: {error}; use another back-up") from error
        # Only tables that the back-up's version had are expected.
        there = (table.name for table in TABLES if not made.tables or table.name in made.tables)
        if missing := [name for name in there if name not in number]:
            raise BackupError(f"{self._source} lacks the table {missing[0]}; use another back-up")
        return number


def _check_version(manifest: Manifest) -> None:
    if manifest.schema_version > VERSION:
        raise BackupError(
            f"the back-up has schema version {manifest.schema_version}, this program knows {VERSION}: "
            "install the release that made it, or newer"
        )


def _organizations(database: Database, clock: Clock) -> int:
    """Return how many organizations there are.

    Raises:
        BackupError: A worker on another machine is alive.
    """
    with database.read() as connection:
        there = sa.inspect(connection)
        # `version` raises an error if the database belongs to another program.
        if version(connection) is None or not there.has_table(organizations.name):
            return 0
        if not database.is_sqlite and (living := workers.heard_within(connection, 10 * SECOND_MICROS, clock)):
            raise BackupError(f"{len(living)} workers run on the database; stop every serve and worker before")
        return connection.execute(sa.select(sa.func.count()).select_from(organizations)).scalar_one()


def _clear(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        # The old queue would count a turn that it has executed before as done.
        connection.exec_driver_sql("DROP SCHEMA IF EXISTS dbos CASCADE")
    metadata.drop_all(connection)
    connection.exec_driver_sql("DROP TABLE IF EXISTS alembic_version")


def _write(path: Path, file: IO[bytes]) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(file, target)


def _made_tables(connection: sa.Connection, statements: bytes) -> sa.MetaData:
    """Create the empty tables of the back-up's version, and return them."""
    for statement in json.loads(statements):
        connection.execute(sa.DDL(str(statement).replace("%", "%%")))  # type: ignore[no-untyped-call]  # SQLAlchemy's
    made = sa.MetaData()
    made.reflect(connection)
    return made


def _load_table(connection: sa.Connection, table: sa.Table, file: IO[bytes]) -> int:
    """Insert a table's dump; return the number of rows.

    Raises:
        BackupError: The dump has other columns than the table.
    """
    lines = iter(file)
    names = json.loads(next(lines, b"null"))
    if names != [column.name for column in table.c]:
        raise BackupError(f"the back-up's table {table.name} is not that of its schema version; use another back-up")
    # Parameters have numbers, as `key` and others are no valid names. None becomes NULL, not JSON's null.
    kinds = {c.name: sa.JSON(none_as_null=True) if isinstance(c.type, sa.JSON) else c.type for c in table.c}
    values = {name: sa.bindparam(f"p{index}", type_=kinds[name]) for index, name in enumerate(names)}
    statement = sa.insert(table).values(values)
    number = 0
    while batch := list(itertools.islice(_rows(table, lines), ROWS_AT_ONCE)):
        connection.execute(statement, batch)
        number += len(batch)
    return number


def _rows(table: sa.Table, lines: Iterator[bytes]) -> Iterator[dict[str, object]]:
    binary = [index for index, column in enumerate(table.c) if isinstance(column.type, sa.LargeBinary)]
    for line in lines:
        values = json.loads(line)
        for index in binary:
            values[index] = base64.b64decode(values[index])
        yield {f"p{index}": value for index, value in enumerate(values)}


def queue_again(connection: sa.Connection, clock: Clock) -> int:
    """Queue the turns that had not ended, since the back-up has no queue; return their number.

    Each may have pushed a commit after the back-up. Only a second or later attempt looks for that commit, so every turn
    counts as attempted.
    """
    still = sa.and_(turns.c.status.notin_(run_store.FINAL), turns.c.executor.is_distinct_from(MADE_UP))
    attempt = sa.case((turns.c.attempt < 1, 1), else_=turns.c.attempt)
    again = {"status": "queued", "dispatched_at": None, "executor": None, "attempt": attempt}
    number = connection.execute(sa.update(turns).where(still).values(again)).rowcount
    waiting = sa.select(turns.c.run_id).where(turns.c.status == "queued")
    open_again = (runs.c.id.in_(waiting), runs.c.status != "queued")
    connection.execute(sa.update(runs).where(*open_again).values(status="queued", updated_at=clock()))
    return number
