"""A file is replaced as a whole, or not touched."""

import os
from pathlib import Path

import pytest

from app.engine.atomic_file import replacing


def test_an_interrupted_write_leaves_the_file_unchanged(tmp_path: Path) -> None:
    """A full disk only loses the text being written. A new file is private."""
    path = tmp_path / "runs.csv"
    path.touch(mode=0o644)

    def write(*, full: bool) -> None:
        with replacing(path) as file:
            file.write("after\n")
            if full:
                raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write(full=True)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"runs.csv": ""}

    write(full=False)
    assert path.read_bytes() == b"after\n"
    assert path.stat().st_mode & 0o777 == 0o600

    # A device or a pipe that a user names is written to, not replaced.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"), replacing(tmp_path / "pipe") as file:
        file.write("x")
    assert (tmp_path / "pipe").is_fifo()
