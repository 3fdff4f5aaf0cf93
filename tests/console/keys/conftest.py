import asyncio
from collections.abc import Callable

from tests.console.conftest import DEADLINE_S


async def until(fact: Callable[[], bool]) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(DEADLINE_S):
        while not fact():  # noqa: ASYNC110 — what makes it so has no event to wait for
            await asyncio.sleep(0.005)
