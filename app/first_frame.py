"""The first frame: the screen as it was painted last, shown before anything slow is imported, even pathlib."""

from __future__ import annotations

import os
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
    """The frame of one kind and size of terminal; it belongs to one configuration file, as it was then.

    A window of a size never seen is shown the newest frame of its kind, cut at its edges.
    """

    def __init__(self, env: Mapping[str, str], size: Sequence[int]) -> None:
        state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME", "/"), ".local", "state")
        self._folder = os.path.join(env.get("RUNWARDEN_DATA_DIR") or os.path.join(state, "runwarden"), "frames")
        self._key = repr((VERSION, *(env.get(name, "") for name in _VARIABLES)))
        self._kind = f"{zlib.crc32(self._key.encode()):08x}-"
        self._path = os.path.join(self._folder, f"{self._kind}{size[0]}x{size[1]}")
        self._lines = size[1]

    def keep(self, config_path: str, title: str, rows: Iterable[str]) -> None:
        """Keep the frame for the next start; where it cannot be written, the next start shows none."""
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            new = f"{self._path}.{os.getpid()}"
            head = (self._key, f"{_checksum(config_path)} {config_path}", str(time.time()), title)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write("\n".join((*head, *rows)))
            os.replace(new, self._path)
            for old in self._newest_first("")[MOST_FRAMES:]:
                os.unlink(old)
        except (OSError, ValueError):
            return

    def show(self) -> list[Any] | None:
        """Show the frame; return the terminal's modes from before. None: there is no frame, and nothing changed."""
        try:
            text = self.read()
            modes = termios.tcgetattr(sys.stdin.fileno())
            # Keys pressed now wait to be read, and are not echoed on the frame.
            quiet = [*modes[:3], modes[3] & ~(termios.ECHO | termios.ICANON), *modes[4:]]
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
        except (OSError, ValueError, termios.error):
            return None
        _write(f"\x1b[?1049h\x1b[?25l{text}")
        return modes

    def read(self) -> str:
        """Read what is sent to the terminal.

        Raises:
            OSError, ValueError: There is no frame, it is not ours alone, or it belongs to another configuration.
        """
        path = self._path if os.path.exists(self._path) else next(iter(self._newest_first(self._kind)), self._path)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            entry = os.fstat(file.fileno())
            if entry.st_uid != os.getuid() or entry.st_mode & 0o077 or entry.st_size > MOST_BYTES:
                raise ValueError("Others can write or read it, or it is no frame.")
            key, config, at, title, *rows = file.read().split("\n")
        checksum, _, config_path = config.partition(" ")
        if key != self._key or checksum != _checksum(config_path) or not all(map(_is_painted, (title, *rows))):
            raise ValueError("It belongs to another configuration, or holds more than text and colours.")
        kept = time.localtime(float(at))
        day = "" if kept[:3] == time.localtime()[:3] else time.strftime("%d %b ", kept)
        rows[0] = f"{title}as of {day}{time.strftime('%H:%M:%S', kept)} · opening\x1b[K"
        painted = "".join(f"\x1b[{line};1H{row}\x1b[0m" for line, row in enumerate(rows[: self._lines], 1))
        return f"\x1b[?7l{painted}\x1b[?7h"

    def _newest_first(self, prefix: str) -> list[str]:
        frames = [entry for entry in os.scandir(self._folder) if entry.name.startswith(prefix)]
        return [entry.path for entry in sorted(frames, key=lambda entry: -entry.stat().st_mtime)]


def take_down(modes: list[Any]) -> None:
    """Give the terminal back where the console did not take over."""
    _write("\x1b[?25h\x1b[?1049l")
    termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)


def _checksum(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return str(zlib.crc32(file.read()))
    except FileNotFoundError:
        return "none"


def _is_painted(row: str) -> bool:
    """Tell whether a row holds nothing but printable text and colours: a terminal would obey anything else."""
    text, *coloured = row.split("\x1b")
    parts = [part.partition("m") for part in coloured]
    colours = all(code[:1] == "[" and code[1:].replace(";", "").isdecimal() and end for code, end, _ in parts)
    return colours and all(text.isprintable() for text in (text, *(rest for _, _, rest in parts)))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
