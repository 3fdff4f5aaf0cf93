"""Database files: private to their owner, created by one process at a time, never deleted silently."""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from storage.errors import DatabaseBusyError, DatabaseReadOnlyError, DatabaseUnopenableError, StorageError

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
SIDE_FILES: Final = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps next to a database."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""An escaped character in a mount point, such as a blank."""
MOUNTS: Final = Path("/proc/self/mountinfo")
NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p"),
        *("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "davfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.rclone", "fuse.s3fs", "fuse.davfs2", "fuse.gcsfuse"),
    }
)
"""File systems whose locks may not hold between machines, or at all."""
_OPENING_WAIT_S: Final = 10.0
_RETRY_S: Final = 0.01


def make_private(path: Path) -> None:
    """Create the file if it is missing, readable and writable only for its owner."""
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        try:
            # O_EXCL: opening and closing a file that this process uses as a database would drop SQLite's locks on it.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))
        except FileExistsError:
            if path.stat().st_mode & 0o777 != FILE_MODE:
                path.chmod(FILE_MODE)
    except OSError as error:
        raise _file_error(error, path) from error


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Let one process at a time create, check and migrate the database; the others wait for 10 s."""
    lock_path = path.with_name(path.name + ".opening")
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise _file_error(error, lock_path) from error
    deadline = time.monotonic() + _OPENING_WAIT_S
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise DatabaseBusyError(
                        f"Another process has been opening {path} for {_OPENING_WAIT_S:.0f} s. End it, then try again.",
                        path=path,
                    ) from error
                time.sleep(_RETRY_S)
        yield
    finally:
        os.close(lock)


def move_aside(path: Path, reason: str, stamp: str) -> Path:
    """Move the database and its side files aside, replacing earlier ones for the same reason; return the new place."""
    aside = path.with_name(f"{path.name}.{reason}-{stamp}")
    try:
        for earlier in path.parent.glob(f"{path.name}.{reason}-*"):
            earlier.unlink(missing_ok=True)
        for suffix in SIDE_FILES:
            side = path.with_name(path.name + suffix)
            if side.exists():
                side.rename(aside.with_name(aside.name + suffix))
        path.rename(aside)
    except OSError as error:
        raise _file_error(error, path) from error
    return aside


def file_identity(path: Path) -> tuple[int, int] | None:
    """A file's identity, which changes when another file replaces it; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def last_written(path: Path) -> list[tuple[int, int]] | None:
    """When a database and its WAL were last written, and their sizes. None: the file system counts whole seconds.

    It costs no thread and no lock. Two writes within a tick of the system's clock, some milliseconds, look the same.
    """
    writes = []
    for file in (str(path), f"{path}-wal"):
        with suppress(OSError):
            entry = os.stat(file)  # noqa: PTH116 — a path object would cost as much as the call
            writes.append((entry.st_mtime_ns, entry.st_size))
    return writes if all(at % 1_000_000_000 for at, _ in writes) else None


def check_locks(path: Path) -> None:
    """Check that the file is, or will be, on a file system where locks hold: on no network file system."""
    if (kind := file_system(path.parent)) in NETWORK:
        raise DatabaseUnopenableError(
            f"{path} is on a network file system ({kind}): two bots could both hold a lock there and act twice. Set"
            " data_dir in the configuration, or RUNWARDEN_DATA_DIR, to a folder on a local disk.",
            path=path,
        )


def file_system(folder: Path) -> str | None:
    """The kind of the file system that a folder is on, or will be; None: the system does not report it."""
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    path, best, kind = folder.resolve(), -1, None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4]))
        # If several mounts share a mount point, the last one is visible.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split(" ")[0]
    return kind


def _file_error(error: OSError, path: Path) -> StorageError:
    reason = error.strerror or str(error)
    if isinstance(error, PermissionError):
        fix = "Give yourself write access, or choose another data folder."
        return DatabaseReadOnlyError(f"{path} may not be written ({reason}). {fix}", path=path)
    return DatabaseUnopenableError(f"{path} cannot be made ({reason}). Choose another data folder.", path=path)
