"""The process's three streams: each is open, and a failed write is reported once."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from storage import RunwardenError


class ReaderGoneError(Exception):
    """The reader of stdout has closed it. Not an OSError: click would end the process with its own exit code."""


class NotPrintedError(RunwardenError):
    """Writing stdout failed; the command itself may have succeeded."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The output cannot be written: {reason}.")
        self.reason = reason


def open_missing() -> None:
    """Open the null device for each stream that the process was started without, as with `>&-`.

    Otherwise the next file to be opened would get that number, and output for the stream would land in it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Text mode on the same numbers: the interpreter left None for missing ones.
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


@contextmanager
def printing() -> Iterator[None]:
    """Translate failures while stdout is written.

    Raises:
        ReaderGoneError: The reader has closed the pipe.
        NotPrintedError: The disk is full, or the like.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise NotPrintedError(error.strerror or type(error).__name__) from error


@contextmanager
def remarking(stream: TextIO) -> Iterator[None]:
    """Continue without the stream if it cannot be written: a remark never changes a command's outcome."""
    try:
        yield
    except OSError:
        discard_output(stream)


def discard_output(stream: TextIO) -> None:
    """Drop buffered output, so that the interpreter's flush at exit does not complain about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
