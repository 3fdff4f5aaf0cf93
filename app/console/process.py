"""The console's process: it follows the window's size, and ends in order on a signal or without its terminal."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""The signals that end the app in order."""
SIGNAL_STATUS: Final = 128
"""Shells add a signal's number to this."""
PATIENCE_MS: Final = 5_000
"""The time for the console to end in order, and for its process after that: one without a terminal may hang."""


@contextmanager
def on_terminal() -> Iterator[None]:
    """A context for an app, which draws on stdout, and follows the window's size.

    The process ends by SIGHUP once its terminal is gone, and by force if SIGHUP does not end it.
    """
    if sys.__stderr__ is None or not sys.__stderr__.isatty():
        sys.__stderr__ = sys.__stdout__  # type: ignore[misc]  # where Textual draws, which has no parameter for it
    if sys.stdin.isatty() and sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ:
        # A size in the environment would override every change of the window; a browser sends its own.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
    if not sys.stdin.isatty():
        yield
        return
    reading_end, end = os.pipe()
    watch = threading.Thread(target=_watch, args=(sys.stdin.fileno(), reading_end), name="terminal watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        os.close(end)


def _watch(terminal: int, ended: int) -> None:
    """End the process if the terminal is gone before `ended`, the reading end of a pipe, is closed at its other end."""
    poll = select.poll()
    # Input is Textual's to read; a lost terminal is reported without asking for it.
    poll.register(terminal, 0)
    poll.register(ended, 0)
    if poll.poll(0):
        return  # This system never reports a lost terminal, or always reports one.
    if any(descriptor == ended for descriptor, _ in poll.poll()):
        os.close(ended)
        return
    # The streams that use the terminal are redirected to the null device, so that no later write fails.
    null = os.open(os.devnull, os.O_RDWR)
    device = os.fstat(terminal).st_rdev
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if os.fstat(descriptor).st_rdev == device:
                os.dup2(null, descriptor)
    os.close(null)
    os.kill(os.getpid(), signal.SIGHUP)
    poll.unregister(terminal)
    if poll.poll(PATIENCE_MS):
        # The console's opener still cleans up; then the interpreter waits for all threads, and one may never exit.
        threading.main_thread().join()
        time.sleep(PATIENCE_MS / 1000)
    os._exit(SIGNAL_STATUS + signal.SIGHUP)
