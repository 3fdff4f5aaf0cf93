"""Files that are written completely or not at all, readable only for their owner."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

# tempfile is imported at first use: reading such a file comes before the first frame.


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open a text file, UTF-8 and mode 0600, that replaces `path` once the block has written it.

    After an `OSError` the old file is unchanged. Devices, pipes and folders are never replaced.
    """
    import tempfile

    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem[:40]}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make the folder, 0700, and hold its lock, so that no other process changes files in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
