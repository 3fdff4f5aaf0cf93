"""The state's file system: a network's is refused, because its locks may not hold."""

from pathlib import Path

import pytest

from storage.errors import DatabaseUnopenableError
from storage.private_file import NETWORK, file_system
from storage.state import State


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, *lines: str) -> None:
    (folder / "mounts").write_text("".join(f"1 0 0:1 / {line} x y\n" for line in lines))
    monkeypatch.setattr("storage.private_file.MOUNTS", folder / "mounts")


async def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cure; nothing is made there."""
    for kind in NETWORK:
        mounted(monkeypatch, tmp_path, "/ rw - ext4", f"{tmp_path} rw,nosuid shared:7 - {kind}")
        with pytest.raises(DatabaseUnopenableError, match="Set data_dir"):
            await State.open(tmp_path / "data" / "state.sqlite3")

    assert not (tmp_path / "data").exists()


def test_the_innermost_mount_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local disk below a network's folder, a blank in its name, a link to it, and what was mounted on top.

    Other systems than Linux have no such file: they are trusted.
    """
    lines = ("/ rw - ext4", "/srv rw - nfs", "/srv/my\\040disk rw - xfs", "/top rw - nfs", "/top rw - tmpfs")
    mounted(monkeypatch, tmp_path, *lines)
    (tmp_path / "link").symlink_to("/srv/my disk/data")

    kinds = [file_system(Path(place)) for place in ("/srvs", "/srv/a", "/srv/my disk/a", "/top/a", tmp_path / "link")]
    assert kinds == ["ext4", "nfs", "xfs", "tmpfs", "xfs"]
    monkeypatch.setattr("storage.private_file.MOUNTS", tmp_path / "missing")
    assert file_system(tmp_path) is None
