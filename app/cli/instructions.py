"""Instructions for an agent: from the command line, a file, stdin or an editor."""

import os
import sys
from pathlib import Path
from typing import Final

import click

from app.cli.exits import failed

LONGEST: Final = 1_000_000
"""Bytes; a longer request would not be accepted anywhere."""


def gather(words: tuple[str, ...], file: Path | None) -> str:
    """The instructions, whichever way they were given.

    Args:
        words: From the command line; a lone `-` means stdin; none means the file, or else an editor.
        file: From `--file`; `-` means stdin.

    Raises:
        CommandFailed: They were given twice, cannot be read, or are empty.
    """
    if words and file is not None:
        raise failed("usage", "Give the instructions as words or with --file, not both.")
    text = _read(words, file)
    if not text.strip():
        raise failed("usage", "The instructions are empty: say what the agent shall do.")
    return text


def _read(words: tuple[str, ...], file: Path | None) -> str:
    if words == ("-",) or str(file) == "-":
        return _decoded(sys.stdin.buffer.read(LONGEST + 1), "stdin")
    if words:
        return " ".join(words)
    if file is not None:
        return _from_file(file)
    return _from_editor()


def _from_file(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return _decoded(stream.read(LONGEST + 1), str(file))
    except OSError as error:
        raise failed("usage", f"{file} cannot be read: {error.strerror}.") from error


def _decoded(content: bytes, origin: str) -> str:
    if len(content) > LONGEST:
        raise failed("usage", f"{origin} holds more than {LONGEST} bytes of instructions.")
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise failed("usage", f"{origin} is not UTF-8 text.") from error


def _from_editor() -> str:
    has_editor = bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))
    if not (has_editor or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise failed("usage", "Give the instructions as words, with --file, with - for stdin, or set EDITOR.")
    written = click.edit("", extension=".md", require_save=True)
    if not (written or "").strip():
        raise failed("usage", "The editor was left without instructions; nothing was sent.")
    return (written or "").strip()
