"""Saved frames: who may read them, and which text they may print."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.start.first_frame import MAX_FRAMES, FirstFrame, configuration

SIZE = (80, 24)
ROWS = ["", "\x1b[1;38;2;1;2;3m● live\x1b[0m text"]


@pytest.fixture
def kept(tmp_path: Path) -> FirstFrame:
    """A frame saved under a configuration."""
    (tmp_path / "config.toml").write_text("")
    frame = FirstFrame({"RUNWARDEN_DATA_DIR": str(tmp_path)})
    frame.keep(configuration(str(tmp_path / "config.toml")), SIZE, " runwarden  acme   ", ROWS)
    return frame


def test_a_stored_frame_is_read(kept: FirstFrame, tmp_path: Path) -> None:
    """The title with the time is followed by the rows, cut to a smaller window; no other user can read the file."""
    text, small = kept.read(SIZE), kept.read((40, 1))
    [file] = (tmp_path / "frames").iterdir()

    assert text.startswith("\x1b[?7l\x1b[1;1H runwarden  acme   as of ")
    assert f"\x1b[2;1H{ROWS[1]}\x1b[0m" in text
    assert ("runwarden  acme" in small, "live" in small) == (True, False)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_frame_fits_its_terminal_and_profile(kept: FirstFrame, tmp_path: Path) -> None:
    """Which colours a terminal has is unknown until it has shown a frame of its own."""
    data = {"RUNWARDEN_DATA_DIR": str(tmp_path)}
    elsewhere = FirstFrame({**data, "COLORTERM": "24bit"})
    plain = elsewhere.read(SIZE)
    elsewhere.keep(configuration(str(tmp_path / "config.toml")), SIZE, "title", ROWS)

    assert "\x1b[2;1H● live text\x1b[0m" in plain
    assert ROWS[1] in elsewhere.read(SIZE)
    assert ROWS[1] in kept.read(SIZE)
    with pytest.raises(OSError, match="frames"):
        FirstFrame({**data, "RUNWARDEN_PROFILE": "acme"}).read(SIZE)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text(file.read_text() + "\x1b]52;c;aGk=\x07"),
        lambda file: file.write_text(file.read_text() + "\x9b2J\u202e"),
        lambda file: file.chmod(0o644),
        lambda file: file.rename(file.with_name("elsewhere")) and file.symlink_to(file.with_name("elsewhere")),
        lambda file: file.unlink() or os.mkfifo(file, 0o600),
        lambda file: (file.parents[1] / "config.toml").unlink(),
    ],
    ids=["osc", "c1", "readable", "link", "pipe", "no-config"],
)
def test_only_a_valid_frame_is_shown(kept: FirstFrame, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """A terminal obeys its input, so only text and colours of our own file under the same configuration are printed."""
    spoil(next((tmp_path / "frames").iterdir()))
    with pytest.raises((OSError, ValueError)):
        kept.read(SIZE)


def test_no_frame_is_stored_in_a_shared_folder(kept: FirstFrame, tmp_path: Path) -> None:
    """Others could put a link in its place. An edited configuration may name another service."""
    config = tmp_path / "config.toml"
    [file] = (tmp_path / "frames").iterdir()
    before, name = file.read_text(), configuration(str(config))
    file.parent.chmod(0o777)
    kept.keep("none /", SIZE, "title", ROWS)
    assert file.read_text() == before
    file.parent.chmod(0o700)
    for width in range(MAX_FRAMES + 5):
        kept.keep("", (width, 24), "title", ROWS)
    assert len(list(file.parent.iterdir())) == MAX_FRAMES

    config.write_text('default_profile = "another"')
    kept.keep(name, SIZE, "title", ROWS)
    with pytest.raises(ValueError, match="another configuration"):
        kept.read(SIZE)
    for unreadable in (tmp_path, tmp_path / "missing"):
        assert configuration(str(unreadable)) == f"none {unreadable}"
