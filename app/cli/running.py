"""A command's work on an event loop: a signal cancels it, so that it can finish a write in flight."""

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal stopped the command before it had an answer."""


class Stoppable(Protocol):
    """An invocation, as signals know it."""

    stopped_by: signal.Signals | None
    at_second_signal: Callable[[signal.Signals], None] | None


def run(invocation: Stoppable, work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run a command's work until it is done or a signal cancels it.

    Raises:
        StoppedError: A signal cancelled the work before it had a result.
    """

    async def stoppable() -> T:
        _listen(invocation)
        return await work()

    # Imported modules live until the process ends: the collector need not look at them.
    gc.freeze()
    gc.enable()
    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError as error:
        raise StoppedError from error


def go_on(invocation: Stoppable) -> None:
    """Raise if a signal asked the command to stop.

    A write records its outcome even when it is cancelled, so a batch has to check between two writes.

    Raises:
        asyncio.CancelledError: A signal asked the command to stop.
    """
    if invocation.stopped_by is not None:
        raise asyncio.CancelledError


@contextmanager
def asking(invocation: Stoppable) -> Iterator[None]:
    """Let the user answer a prompt within `run`: it blocks the loop, so a signal stops the process at once."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.remove_signal_handler(number)
    yield
    _listen(invocation)


def _listen(invocation: Stoppable) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def stop(number: signal.Signals) -> None:
        invocation.stopped_by = number
        for each in STOPPING:
            loop.remove_signal_handler(each)
            # A second signal stops the process at once; the ledger has the writes in flight.
            signal.signal(each, signal.SIG_DFL)
            if invocation.at_second_signal is not None:
                loop.add_signal_handler(each, invocation.at_second_signal, each)
        if task is not None:
            task.cancel()

    for number in STOPPING:
        loop.add_signal_handler(number, stop, number)
