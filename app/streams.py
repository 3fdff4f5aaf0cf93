"""The process's three streams: something is behind each of them, and what cannot be written is noticed once."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class ReaderGoneError(Exception):
    """Whoever read stdout has seen enough. No OSError: click would end the process with its own exit code."""


class NotPrintedError(Exception):
    """Stdout cannot be written: what was found out did not get out, whatever became of what was asked."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The output cannot be written: {reason}.")
        self.reason = reason


def open_missing() -> None:
    """Puts the null device behind each of the streams that the process was started without, as with `>&-`.

    The next file to be opened would take the free number, and what is meant for a stream would land in it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 — its only parameter
    # Text mode on the same numbers; the interpreter left None where it found nothing.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 — the process's own
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 — the process's own
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 — the process's own


@contextmanager
def printing() -> Iterator[None]:
    """What goes wrong while something is written to stdout, told apart.

    Raises:
        ReaderGone: Nobody reads on.
        NotPrinted: There is no room for it, or the like.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise NotPrintedError(error.strerror or type(error).__name__) from error


def let_go_of_stdout() -> None:
    """What is still held back is dropped: the interpreter's own flush at exit must not complain about it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
