"""Back-up and restore of a service on SQLite: one file with its database, settings, logs and diffs."""

import contextlib
import gzip
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import sqlalchemy as sa

from service import trees
from service.clock import SECOND_MICROS, Micros, now_micros, rfc3339
from service.errors import ServiceError
from service.processes.worker import hold_lock, lock_beside
from service.settings import DataFolder
from service.store import audit
from service.store.database import Database
from service.store.runs import FINAL
from service.store.schema import organizations, runs, turns

_SQLITE: Final = sa.create_engine("sqlite://").dialect.loaded_dbapi
_DAMAGED: Final = "the database is damaged"
_DATABASE, _SETTINGS = "service.sqlite", "service.toml"
_NAME: Final = re.compile(
    rf"{_DATABASE}|{_SETTINGS}|runs/run_[0-9A-Z]{{26}}/turn-[1-9][0-9]{{0,8}}\.(log|diff|run\.diff)", re.ASCII
)
"""The allowed names of members, so that none can lead out of the target folder."""


class BackupError(ServiceError):
    """A back-up cannot be made or used; the text says how to fix it."""


def back_up(folder: DataFolder, target: Path, now: Micros) -> int:
    """Write a back-up that only its owner can read, while the service runs; return the number of its files.

    An earlier back-up is replaced only by a complete one. `now` is in microseconds since 1970.

    Raises:
        BackupError: It cannot be written, or the file is something else.
    """
    if target.exists() and target.stat().st_size:
        first = None
        with contextlib.suppress(tarfile.TarError, EOFError, OSError, zlib.error), tarfile.open(target) as tar:
            first = tar.next()
        if first is None or first.name != _DATABASE:
            raise BackupError(f"{target} exists and is no back-up; choose another file")
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with (
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch,
            os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file,
        ):
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar:
                copy = Path(scratch) / _DATABASE
                # As of one moment, without blocking writers.
                with (
                    contextlib.closing(Database(folder.database_url)) as database,
                    contextlib.closing(Database(f"sqlite:///{copy}")) as copied,
                    contextlib.closing(database.engine.raw_connection()) as reading,
                    contextlib.closing(copied.engine.raw_connection()) as writing,
                ):
                    reading.driver_connection.backup(writing.driver_connection)  # type: ignore[union-attr]  # both are sqlite3 connections
                    (fault,) = writing.cursor().execute("PRAGMA integrity_check(1)").fetchone()
                    if fault != "ok":
                        raise BackupError(f"{_DAMAGED} ({fault}); restore an earlier back-up")
                os.utime(copy, (now // SECOND_MICROS,) * 2)
                tar.add(copy, _DATABASE)
                for path in (folder.settings_file, *sorted(folder.runs.glob("*/*"))):
                    name = str(path.relative_to(folder.root))
                    # Retention may remove the file at this moment.
                    with contextlib.suppress(FileNotFoundError):
                        if _NAME.fullmatch(name):
                            tar.add(path, name)
                number = len(tar.getmembers())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except (sa.exc.DatabaseError, _SQLITE.DatabaseError, OSError) as error:
        name = getattr(getattr(error, "orig", error), "sqlite_errorname", "")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise BackupError(f"{_DAMAGED} ({error}); restore an earlier back-up") from error
        fix = "free some space, or choose another file"
        raise BackupError(f"the back-up {target} cannot be written: {error}; {fix}") from error
    finally:
        draft.unlink(missing_ok=True)
    return number


def restore(source: Path, folder: DataFolder, actor: str, *, force: bool) -> dict[str, int]:
    """Restore a back-up into a data folder on which no service runs; with `force`, replace everything in the folder.

    The back-up is unpacked and checked in a separate folder before anything is replaced. Return when it was made
    (`made_at`, in microseconds since 1970), and how many `organizations`, `runs`, turns that had not ended
    (`queued_again`) and `files` are restored.

    Raises:
        BackupError: The back-up is damaged, or the folder is not empty.
        StartError: The service is running.
        DatabaseError: The back-up's database belongs to another program or to a newer version.
    """
    for _ in _members(source):
        pass
    folder.create(restoring=True)
    refusal = f"a service is running on {folder.root}; stop it before you restore it"
    staged = folder.root / "restored"
    with (
        hold_lock(folder.lock_file, refusal),
        hold_lock(folder.worker_lock_file, refusal),
        hold_lock(lock_beside(folder.database_file), refusal),
    ):
        contents = (folder.database_file, folder.restoring_file, *folder.runs.iterdir())
        if any(map(Path.exists, contents)) and not force:
            raise BackupError(f"{folder.root} is not empty; give --force to replace ALL of it, or another --data-dir")
        trees.remove(staged)
        (staged / "runs").mkdir(mode=0o700, parents=True)
        made_at, files = 0, 0
        for entry, file in _members(source):
            path = staged / entry.name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as target:
                shutil.copyfileobj(file, target)
            if entry.name == _DATABASE:
                made_at = int(entry.mtime) * SECOND_MICROS
            files += entry.name.startswith("runs/")
        with contextlib.closing(Database(f"sqlite:///{staged / _DATABASE}")) as database:
            database.migrate()
            with database.write() as connection:
                if connection.exec_driver_sql("PRAGMA integrity_check").scalar() != "ok":
                    raise BackupError("the back-up's database is damaged; use another back-up")
                audit.record(connection, actor, "restore", now_micros(), detail=f"the back-up of {rfc3339(made_at)}")
                counted = {
                    "organizations": sa.select(sa.func.count()).select_from(organizations),
                    "runs": sa.select(sa.func.count()).select_from(runs),
                    "queued_again": sa.select(sa.func.count()).where(turns.c.status.notin_(FINAL)),
                }
                counts = {name: int(connection.execute(query).scalar_one()) for name, query in counted.items()}
        # No process starts on the folder until this restore, or a later one, is complete.
        folder.restoring_file.touch(0o600)
        for stale in (folder.runs, folder.work):
            if not trees.remove(stale):
                raise BackupError(f"{stale} cannot be removed; remove it by hand, and restore again with --force")
        # SQLite would roll the old file's journal back into the new file.
        for kind in ("-journal", "-wal", "-shm", ""):
            folder.database_file.with_name(f"{folder.database_file.name}{kind}").unlink(missing_ok=True)
        for path in staged.iterdir():
            path.replace(folder.root / path.name)
        trees.remove(staged)
        folder.restoring_file.unlink()
    folder.create()
    return {"made_at": made_at, **counts, "files": files}


def _members(source: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Yield the files of an undamaged back-up; read each file before asking for the next."""
    try:
        with gzip.open(source) as whole:
            while whole.read(1 << 20):
                pass
        with tarfile.open(source, mode="r:gz") as tar:
            number = Counter(tar.getnames())
            if _DATABASE not in number:
                raise BackupError(f"{source} is not a back-up of this service: it does not contain {_DATABASE}")
            for entry in tar:
                file = None
                if entry.isreg() and _NAME.fullmatch(entry.name):
                    file = tar.extractfile(entry)
                if file is None or number[entry.name] > 1:
                    raise BackupError(f"{source} is not a back-up of this service: it contains {entry.name!r}")
                yield entry, file
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise BackupError(f"{source} is damaged or not a back-up: {error}; use another one") from error
