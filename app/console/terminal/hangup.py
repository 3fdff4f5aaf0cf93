"""A terminal that vanishes takes its program along: not every one that goes sends the signal for it."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

SIGNAL_STATUS: Final = 128
"""Shells add a signal's number to this."""
_PATIENCE_MS: Final = 5_000
"""To end in order; an app that has nowhere left to draw may not find its end."""


@contextmanager
def ending_with_terminal() -> Iterator[None]:
    """Meanwhile the process ends by SIGHUP when its terminal is gone, and by force if that is not enough."""
    if not sys.stdin.isatty():
        yield
        return
    over, end = os.pipe()
    watch = threading.Thread(target=_watch, args=(sys.stdin.fileno(), over), name="terminal watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        os.close(end)
        watch.join()
        os.close(over)


def _watch(terminal: int, over: int) -> None:
    poll = select.poll()
    # Not asked for input, which is Textual's to read: what is gone is reported all the same.
    poll.register(terminal, 0)
    poll.register(over, 0)
    if poll.poll(0):
        return  # This system reports nothing of a terminal, or always the same.
    if any(place == over for place, _ in poll.poll()):
        return
    _let_go(terminal)
    os.kill(os.getpid(), signal.SIGHUP)
    poll.unregister(terminal)
    if not poll.poll(_PATIENCE_MS):
        os._exit(SIGNAL_STATUS + signal.SIGHUP)


def _let_go(terminal: int) -> None:
    """Has whoever still writes to the terminal write to nowhere, in place of an error at each attempt."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    place = os.fstat(terminal).st_rdev
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if os.fstat(descriptor).st_rdev == place:
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
