"""Living processes, as /proc shows them."""

import os
from itertools import count
from pathlib import Path
from typing import Final

_NUMBERS: Final = count(100)


def long_sleep() -> str:
    """Return seconds to sleep that tell their process from all others of the machine, another suite's among them."""
    return f"{os.getpid()}{next(_NUMBERS)}"


def running(*words: str) -> list[str]:
    """Return the command lines that hold all the words."""
    lines = [_read(entry / "cmdline") for entry in Path("/proc").glob("[0-9]*")]
    return [line.replace("\0", " ") for line in lines if set(words) <= set(line.split("\0"))]


def naming(text: str) -> list[str]:
    """Return the command lines that hold a text."""
    lines = [_read(entry / "cmdline").replace("\0", " ") for entry in Path("/proc").glob("[0-9]*")]
    return [line for line in lines if text in line]


def marked(*marks: str) -> list[str]:
    """Return the command lines of processes whose environment holds one of the marks."""
    found = [entry for entry in Path("/proc").glob("[0-9]*") if any(mark in _read(entry / "environ") for mark in marks)]
    return [_read(entry / "cmdline").replace("\0", " ") for entry in found]


def _read(file: Path) -> str:
    """Return a file's text, nothing where the process has ended or is not ours to look into."""
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
