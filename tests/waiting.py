"""Waiting for what other threads and processes do, and no event tells."""

import asyncio
import time
from collections.abc import Callable


async def until(fact: Callable[[], bool], deadline_s: float = 300) -> None:
    """Wait until a fact holds, on the running loop."""
    async with asyncio.timeout(deadline_s):
        while not fact():
            await asyncio.sleep(0.005)


def eventually(
    fact: Callable[[], bool], name: str = "the fact", deadline_s: float = 300, *, pause_s: float = 0.01
) -> None:
    """Ask for a fact until it holds, first after `pause_s`; fail with its name when it does not in time."""
    deadline, longest_s = time.monotonic() + deadline_s, max(0.1, 4 * pause_s)
    while not fact():
        assert time.monotonic() < deadline, f"not in {deadline_s:g} s: {name}"
        # What takes long is asked seldom: an answer often costs the other process more than the wait.
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, longest_s)
