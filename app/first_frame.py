"""The first frame: the screen as it was painted last, shown before anything slow is imported, even pathlib."""

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

VERSION = 1
MOST_FRAMES, MOST_BYTES = 20, 1 << 20
_VARIABLES = (
    *("TERM", "COLORTERM", "NO_COLOR", "HOME", "XDG_CONFIG_HOME"),
    *("RUNWARDEN_CONFIG", "RUNWARDEN_PROFILE", "RUNWARDEN_BASE_URL", "RUNWARDEN_DATA_DIR"),
)
"""What decides which profile is on show, and in which colours."""


class FirstFrame:
    """The frames of one kind of terminal, one for each size; each belongs to the configuration file as it was then.

    A window of a size never seen is shown the newest frame, cut at its edges.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME", "/"), ".local", "state")
        self._folder = os.path.join(env.get("RUNWARDEN_DATA_DIR") or os.path.join(state, "runwarden"), "frames")
        self._key = repr((VERSION, *(env.get(name, "") for name in _VARIABLES)))
        self._kind = f"{zlib.crc32(self._key.encode()):08x}-"
        self.is_shown = False

    def keep(self, config: str, size: Sequence[int], title: str, rows: Iterable[str]) -> None:
        """Keep a frame for the next start, which shows none where this cannot be written.

        Args:
            config: The configuration that it shows, as `configuration` told it before that was read.
            size: Columns and lines.
            title: The beginning of the first line; the time is written after it.
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
            for old in self._newest_first("")[MOST_FRAMES:]:
                os.unlink(old)
        except (OSError, ValueError):
            return

    def show(self, size: Sequence[int]) -> None:
        """Show the frame for this size of window, where there is one."""
        try:
            text = self.read(size)
        except (OSError, ValueError):
            return
        # Before it is written: a signal may come in the middle.
        self.is_shown = True
        _write(f"\x1b[?1049h\x1b[?25l{text}")

    def read(self, size: Sequence[int]) -> str:
        """Read what is sent to the terminal.

        Raises:
            OSError, ValueError: There is no frame, it is not ours alone, or it belongs to another configuration.
        """
        path = self._path(size)
        path = path if os.path.exists(path) else next(iter(self._newest_first(self._kind)), path)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            self._refuse_shared(entry := os.fstat(file.fileno()))
            if not stat.S_ISREG(entry.st_mode) or entry.st_mode & 0o077 or entry.st_size > MOST_BYTES:
                raise ValueError("It is no frame, or others can read it.")
            key, config, at, title, *rows = file.read().split("\n")
        if key != self._key or config != configuration(config.partition(" ")[2]):
            raise ValueError("It belongs to another configuration.")
        if not all(map(_is_painted, (title, *rows))):
            raise ValueError("It holds more than text and colours.")
        kept = time.localtime(float(at))
        day = "" if kept[:3] == time.localtime()[:3] else time.strftime("%d %b ", kept)
        rows[0] = f"{title}as of {day}{time.strftime('%H:%M:%S', kept)} · opening\x1b[K"
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
    """A checksum of the configuration file as it is now, and its path."""
    try:
        with open(path, "rb") as file:
            return f"{zlib.crc32(file.read())} {path}"
    except OSError:
        return f"none {path}"


def quieten() -> list[Any] | None:
    """Let keys wait to be read, without an echo on the frame; return the modes from before. None: no terminal."""
    try:
        modes = termios.tcgetattr(sys.stdin.fileno())
        quiet = [*modes[:3], modes[3] & ~(termios.ECHO | termios.ICANON), *modes[4:]]
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
    except (OSError, termios.error):
        return None
    return modes


def take_down(modes: list[Any] | None, *, is_shown: bool) -> None:
    """Give the terminal back: its screen, where the frame is still shown, and its modes; one that is gone has none."""
    from contextlib import suppress  # not before the frame

    if is_shown:
        with suppress(OSError):
            _write("\x1b[?25h\x1b[?1049l")
    if modes is not None:
        with suppress(OSError, termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)


def _is_painted(row: str) -> bool:
    """Tell whether a row holds nothing but printable text and colours: a terminal would obey anything else."""
    text, *coloured = row.split("\x1b")
    parts = [part.partition("m") for part in coloured]
    colours = all(code[:1] == "[" and code[1:].replace(";", "").isdecimal() and end for code, end, _ in parts)
    return colours and all(text.isprintable() for text in (text, *(rest for _, _, rest in parts)))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
