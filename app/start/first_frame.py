"""The first frame: the last painted screen, shown before anything slow is imported, even pathlib."""

from __future__ import annotations

import os
import stat
import sys
import termios
import time
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

VERSION = 2
MAX_FRAMES, MAX_BYTES = 20, 1 << 20
_PROFILE = (
    *("HOME", "XDG_CONFIG_HOME", "RUNWARDEN_CONFIG"),
    *("RUNWARDEN_PROFILE", "RUNWARDEN_BASE_URL", "RUNWARDEN_DATA_DIR"),
)
"""The variables that select the profile."""
_COLOURS = ("TERM", "COLORTERM", "NO_COLOR")
"""The variables that select the colours."""


class FirstFrame:
    """The frames of a profile, one for each size and kind of terminal; each belongs to one state of the configuration.

    A window of a new size is shown the newest frame, cut at its edges; a new kind of terminal one without colours.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME", "/"), ".local", "state")
        self._folder = os.path.join(env.get("RUNWARDEN_DATA_DIR") or os.path.join(state, "runwarden"), "frames")
        self._key = repr((VERSION, *(env.get(name, "") for name in _PROFILE)))
        self._profile = f"{zlib.crc32(self._key.encode()):08x}-"
        colours = repr([env.get(name, "") for name in _COLOURS])
        self._kind = f"{self._profile}{zlib.crc32(colours.encode()):08x}-"
        self.is_shown = False

    def keep(self, config: str, size: Sequence[int], title: str, rows: Iterable[str]) -> None:
        """Keep a frame for the next start; if it cannot be written, that start shows none.

        Args:
            config: The state of the configuration that it shows, from `configuration` before that was read.
            size: Columns and lines.
            title: The beginning of the first line; the time is appended.
            rows: Every line; the first is replaced.
        """
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._refuse_shared(os.stat(self._folder))
            path = self._path(size)
            new = f"{path}.{os.getpid()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(new, flags, 0o600), "w", encoding="utf-8") as file:
                file.write("\n".join((self._key, config, str(time.time()), title, *rows)))
            os.replace(new, path)
            for old in self._newest_first("")[MAX_FRAMES:]:
                os.unlink(old)
        except (OSError, ValueError):
            return

    def show(self, size: Sequence[int]) -> None:
        """Show the frame for this window size, if there is one."""
        try:
            text = self.read(size)
        except (OSError, ValueError):
            return
        # Before it is written: a signal may arrive half-way.
        self.is_shown = True
        _write(f"\x1b[?1049h\x1b[?25l{text}")

    def read(self, size: Sequence[int]) -> str:
        """Read the frame's bytes for the terminal.

        Raises:
            OSError, ValueError: There is no frame, it is not ours alone, or it belongs to another configuration.
        """
        path = self._path(size)
        if not os.path.exists(path):
            path = next(iter([*self._newest_first(self._kind), *self._newest_first(self._profile)]), path)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            self._refuse_shared(entry := os.fstat(file.fileno()))
            if not stat.S_ISREG(entry.st_mode) or entry.st_mode & 0o077 or entry.st_size > MAX_BYTES:
                raise ValueError("It is no frame, or others can read it.")
            key, config, at, title, *rows = file.read().split("\n")
        if key != self._key or config != configuration(config.partition(" ")[2]):
            raise ValueError("It belongs to another configuration.")
        texts = [_text_of(row) for row in (title, *rows)]
        if not os.path.basename(path).startswith(self._kind):
            title, *rows = texts
        painted_at = time.localtime(float(at))
        day = "" if painted_at[:3] == time.localtime()[:3] else time.strftime("%d %b ", painted_at)
        rows[0] = f"{title}as of {day}{time.strftime('%H:%M:%S', painted_at)} · opening\x1b[K"
        painted = "".join(f"\x1b[{line};1H{row}\x1b[0m" for line, row in enumerate(rows[: size[1]], 1))
        return f"\x1b[?7l{painted}\x1b[?7h"

    def _path(self, size: Sequence[int]) -> str:
        return os.path.join(self._folder, f"{self._kind}{size[0]}x{size[1]}")

    def _newest_first(self, prefix: str) -> list[str]:
        frames = [entry for entry in os.scandir(self._folder) if entry.name.startswith(prefix)]
        return [entry.path for entry in sorted(frames, key=lambda entry: -entry.stat().st_mtime)]

    def _refuse_shared(self, entry: os.stat_result) -> None:
        if entry.st_uid != os.getuid() or entry.st_mode & 0o022:
            raise ValueError("Others can write it.")


def configuration(path: str) -> str:
    """Return the configuration file's path and a checksum of its current content."""
    try:
        with open(path, "rb") as file:
            return f"{zlib.crc32(file.read())} {path}"
    except OSError:
        return f"none {path}"


def quieten() -> list[Any] | None:
    """Let keys wait without an echo on the frame; return the previous modes. None: no terminal."""
    try:
        modes = termios.tcgetattr(sys.stdin.fileno())
        quiet = [*modes[:3], modes[3] & ~(termios.ECHO | termios.ICANON), *modes[4:]]
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
    except (OSError, termios.error):
        return None
    return modes


def take_down(modes: list[Any] | None, *, is_shown: bool) -> None:
    """Restore the terminal's modes, and its screen if the frame is still shown; without a terminal, do nothing."""
    from contextlib import suppress  # not before the frame

    if is_shown:
        with suppress(OSError):
            _write("\x1b[?25h\x1b[?1049l")
    if modes is not None:
        with suppress(OSError, termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)


def _text_of(row: str) -> str:
    """The text of a row without its colours; `ValueError`: it holds anything else, on which a terminal would act."""
    text, *coloured = row.split("\x1b")
    for part in coloured:
        code, end, after = part.partition("m")
        if not (end and code[:1] == "[" and code[1:].replace(";", "").isdecimal()):
            raise ValueError("It holds more than text and colours.")
        text += after
    if not text.isprintable():
        raise ValueError("It holds more than text and colours.")
    return text


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
