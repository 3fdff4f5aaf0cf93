"""Copies of a database while it is in use."""

from contextlib import closing
from pathlib import Path
from typing import Final

from storage.database import check_integrity, connect
from storage.errors import translated
from storage.private_file import make_private

_CURE: Final = "Restore it from an earlier copy, or save what can be saved with `sqlite3 FILE .recover`."


def copy_database(source: Path, target: Path) -> None:
    """Copy a database, while others may write to it, into a new file that only its owner can read.

    Raises:
        StorageError: One of them cannot be used, or the copy is damaged; no target is left behind.
        FileExistsError: The target exists already.
    """
    partial = target.with_name(f".{target.name}.part")
    if target.exists():
        raise FileExistsError(target)
    partial.unlink(missing_ok=True)
    make_private(partial)
    try:
        with translated(source, _CURE), closing(connect(source, {})) as reading:
            reading.execute("VACUUM INTO ?", (str(partial),))
        with translated(partial, _CURE), closing(connect(partial, {})) as copy:
            check_integrity(copy, source, _CURE)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
