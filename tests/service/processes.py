"""Living processes, as /proc shows them."""

import os
from itertools import count
from pathlib import Path
from typing import Final

_NUMBERS: Final = count(100)


def long_sleep() -> str:
    """Return seconds to sleep that tell their process from all others of the machine, another suite's among them."""
    return f"{os.getpid()}{next(_NUMBERS)}"


def running(*words: str, naming: str = "", marks: tuple[str, ...] = ("",)) -> list[str]:
    """Return the command lines that hold all the words and a text, with one of the marks in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        line = _read(entry / "cmdline")
        if set(words) <= set(line.split("\0")) and naming in line.replace("\0", " "):
            found += [line.replace("\0", " ")] * any(mark in _read(entry / "environ") for mark in marks)
    return found


def _read(file: Path) -> str:
    """Return a file's text, nothing where the process has ended or is not ours to look into."""
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
