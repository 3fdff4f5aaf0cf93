"""A command's work on an event loop, which a signal cancels; and the log of a command or console."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TypeVar

from app.cli.context import Invocation, StoppedError
from app.cli.exits import STOPPING, command_error
from app.engine.text import safe_text
from app.engine.times import rfc3339

T = TypeVar("T")
OURS: Final = ("app", "storage")
"""The loggers that are written: the lines of libraries may hold headers, and with them the token."""
_MAX_LINE: Final = 4_000


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time, level, part of the program, message: one printable line, and a traceback below it."""
        at = rfc3339(datetime.fromtimestamp(record.created, UTC))
        text = super().format(record).splitlines()
        first, *more = [str(safe_text(line, limit=_MAX_LINE)) for line in text] or [""]
        return "\n".join([f"{at} {record.levelname.lower()} {record.name}: {first}", *more])


def begin_log(invocation: Invocation) -> None:
    """Begin the log that the options ask for: on stderr, or in a file (0600) that is appended to."""
    file = invocation.log_file
    if file is None and not invocation.verbose:
        return
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        try:
            file.touch(mode=0o600)
            handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise command_error("usage", f"{file} cannot be written: {error.strerror}.") from error
    handler.setFormatter(_Line("%(message)s"))
    for name in OURS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG if invocation.verbose else logging.INFO)
        logger.handlers = [handler]


def run(invocation: Invocation, work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a command's work on an event loop; `StoppedError`: a signal cancelled it before it had a result."""
    if threading.current_thread() is not threading.main_thread():
        # An MCP tool runs this in a thread, which receives no signals.
        return asyncio.run(work())

    async def stoppable() -> T:
        _listen(invocation)
        return await work()

    begin_log(invocation)
    # Imported modules live until the process ends: the collector need not look at them.
    gc.freeze()
    gc.enable()
    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError as error:
        raise StoppedError from error


def raise_if_stopped(invocation: Invocation) -> None:
    """Raise `CancelledError` after a signal: a batch has to check between two writes, which finish even then."""
    if invocation.stopped_by is not None:
        raise asyncio.CancelledError


@contextmanager
def asking(invocation: Invocation) -> Iterator[None]:
    """Let the user answer a prompt within `run`: it blocks the loop, so a signal stops the process at once."""
    for number in STOPPING:
        asyncio.get_running_loop().remove_signal_handler(number)
    yield
    _listen(invocation)


def _listen(invocation: Invocation) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def stop(number: signal.Signals) -> None:
        invocation.stopped_by = number
        for other in STOPPING:
            loop.remove_signal_handler(other)
            # A second signal stops the process at once; the ledger has the writes in flight.
            signal.signal(other, signal.SIG_DFL)
            if invocation.at_second_signal is not None:
                loop.add_signal_handler(other, invocation.at_second_signal, other)
        if task is not None:
            task.cancel()

    for number in STOPPING:
        loop.add_signal_handler(number, stop, number)
