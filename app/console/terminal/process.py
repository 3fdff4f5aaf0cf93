"""The process and its terminal: it follows the window's size, and ends in order on a signal or without a terminal."""

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
    """End the app in order on a signal, with 128 + its number as return code; go on in order after a stop."""
    # After a stop the terminal shows nothing of the frame, although nothing has changed.
    app.app_resume_signal.subscribe(app, lambda _: app.refresh())
    loop = asyncio.get_running_loop()
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, _end, app, number)
        if app._driver is not None and app._driver.can_suspend:  # noqa: SLF001 — it has no other name
            loop.add_signal_handler(signal.SIGCONT, _go_on, app._driver)  # noqa: SLF001 — as above
    except (ValueError, RuntimeError):
        return  # Only the main thread can handle signals; a test runner may use another.


def _end(app: "App[Any]", number: signal.Signals) -> None:
    app.exit(return_code=SIGNAL_STATUS + number)


def _go_on(driver: Any) -> None:
    """Take the terminal up again after a stop.

    A process gets no notice of a SIGSTOP, so Textual would begin a second time: two threads would read the keys, and
    the console's modes would be restored at the end as those from before it.
    """
    if driver._auto_restart:  # noqa: SLF001 — whether the terminal is ours, or an editor's
        if not driver._must_signal_resume:  # noqa: SLF001 — whether Textual stopped it
            driver.suspend_application_mode()
            driver._must_signal_resume = True  # noqa: SLF001 — as above
        driver.resume_application_mode()


def is_on_terminal() -> bool:
    """Whether the console runs on a terminal, and not in a browser."""
    return sys.stdin.isatty() and sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ


def follow_window() -> None:
    """Remove the size from the environment, which would override every change of the window."""
    if is_on_terminal():
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


SIGNAL_STATUS: Final = 128
"""Shells add a signal's number to this."""
_PATIENCE_MS: Final = 5_000
"""The time to end in order before the process is ended by force: an app without a terminal may hang."""


@contextmanager
def ending_with_terminal() -> Iterator[None]:
    """Inside, the process ends by SIGHUP when its terminal is gone, and by force after a while."""
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
    # Input is Textual's to read; a lost terminal is reported without asking for it.
    poll.register(terminal, 0)
    poll.register(over, 0)
    if poll.poll(0):
        return  # This system reports nothing about terminals, or always the same.
    if any(place == over for place, _ in poll.poll()):
        return
    _let_go(terminal)
    os.kill(os.getpid(), signal.SIGHUP)
    poll.unregister(terminal)
    if not poll.poll(_PATIENCE_MS):
        os._exit(SIGNAL_STATUS + signal.SIGHUP)


def _let_go(terminal: int) -> None:
    """Redirect the streams that use the terminal to the null device, so that no later write fails."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    place = os.fstat(terminal).st_rdev
    for descriptor in (0, 1, 2):
        with suppress(OSError):
            if os.fstat(descriptor).st_rdev == place:
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
