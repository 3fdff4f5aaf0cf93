"""Child processes that are stopped with all their descendants; each leads a session of its own."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")
_SLICES: Final = 15
"""The parts that a deadline is measured in."""


async def within(deadline_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work with a process, within this much of this process's own time, or cancel it.

    The time is measured in parts: one in which this process was stopped itself counts once, however long it took.
    After it, `TimeoutError` is raised.
    """
    task = asyncio.create_task(work)
    try:
        for _ in range(_SLICES):
            if (await asyncio.wait({task}, timeout=deadline_s / _SLICES))[0]:
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()


async def start_program(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a program in a new session. If the start is cancelled, the program and its children are killed."""
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, start_new_session=True, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # asyncio itself would kill the program alone.
        with suppress(OSError, ValueError):
            await end_group(await starting)
        raise


async def end_group(process: asyncio.subprocess.Process, grace_s: float = 0.0) -> None:
    """Stop a process and its helpers; they are signalled, and get `grace_s` to stop by themselves."""
    if grace_s:
        signal_group(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await process.wait()
    signal_group(process, signal.SIGKILL)
    await process.wait()


def signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process and its helpers, as far as they live."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
