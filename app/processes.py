"""Ending a process of ours with all that it started; it leads a session of its own (`start_new_session`)."""

import asyncio
import os
import signal
from contextlib import suppress


async def end_group(process: asyncio.subprocess.Process, grace_s: float = 0.0) -> None:
    """End a process and its helpers; within `grace_s` they may end by themselves, having been told."""
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
