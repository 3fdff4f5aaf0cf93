"""What the process owes its terminal: to follow its size, and to end in order when told to or when it is gone."""

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from textual.app import App

SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def restore_on_signals(app: "App[Any]") -> None:
    """From now on a signal ends the app in order, with 128 + its number as return code."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, _end, app, number)
        except (ValueError, RuntimeError):
            return  # Not the main thread, such as under a test runner: signals are not ours there.


def _end(app: "App[Any]", number: signal.Signals) -> None:
    app.exit(return_code=SIGNAL_STATUS + number)


def is_on_terminal() -> bool:
    """Whether a terminal is drawn on; in a browser it is not."""
    return sys.stdin.isatty() and sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ


def follow_window() -> None:
    """Forget the size in the environment: exported there, it would hold however the window changes."""
    if is_on_terminal():
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


SIGNAL_STATUS: Final = 128
"""Shells add a signal's number to this."""
_PATIENCE_MS: Final = 5_000
"""To end in order; an app that has nowhere left to draw may not find its end."""


@contextmanager
def ending_with_terminal() -> Iterator[None]:
    """Within it the process ends by SIGHUP when its terminal is gone, and by force if that is not enough."""
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
    """Point what still writes to the terminal to nowhere, in place of an error at each attempt."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    place = os.fstat(terminal).st_rdev
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if os.fstat(descriptor).st_rdev == place:
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
