"""Waiting for a condition that another task, thread or process brings about, and `present` for what has to be there.

    eventually(lambda: "done" in log.read_text(), "the agent prints its last line", saw=log.read_text)
    row = await until(lambda: table.selected, "a row is selected", saw=lambda: scene.text)

Both return the first truthy value of the condition. When the deadline passes, they fail with what they waited for and
with what they saw instead: the value of `saw`, or the last value of the condition.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import TypeVar, cast

T = TypeVar("T")

DEADLINE_S = 30.0
COLD_START_S = 120.0
"""Enough for a process that has to import everything first, on a busy machine."""
_MAX_VALUE = 4000


def eventually(
    fact: Callable[[], T],
    what: str = "the condition",
    deadline_s: float = DEADLINE_S,
    *,
    saw: Callable[[], object] | None = None,
    pause_s: float = 0.01,
) -> T:
    """Wait in this thread until `fact()` is truthy, and return its value; pauses between checks grow.

    A slow check is repeated less often, because most of it is work for the process that is waited for.

    Raises:
        AssertionError: It was not within the deadline.
    """
    pauses, begun = _pauses(deadline_s, pause_s), time.monotonic()
    while not (value := fact()):
        if (pause := next(pauses, None)) is None:
            raise AssertionError(_failure(what, deadline_s, saw() if saw else value))
        time.sleep(max(pause, min(2 * (time.monotonic() - begun), 0.2)))
        begun = time.monotonic()
    return value


def present(value: T | None) -> T:
    """Return what has to be there.

    Raises:
        AssertionError: It is None.
    """
    assert value is not None
    return value


async def until(
    fact: Callable[[], T | Awaitable[T]],
    what: str = "the condition",
    deadline_s: float = DEADLINE_S,
    *,
    saw: Callable[[], object] | None = None,
    pause_s: float = 0.005,
) -> T:
    """Wait on the running loop until `fact()`, awaited if it can be, is truthy, and return its value.

    Raises:
        AssertionError: It was not within the deadline, or one check took longer than that.
    """
    pauses = _pauses(deadline_s, pause_s)
    while not (value := await _awaited(fact(), what, deadline_s)):
        if (pause := next(pauses, None)) is None:
            raise AssertionError(_failure(what, deadline_s, saw() if saw else value))
        await asyncio.sleep(pause)
    return value


async def _awaited(value: T | Awaitable[T], what: str, deadline_s: float) -> T:
    if not isawaitable(value):
        return cast("T", value)
    try:
        return await asyncio.wait_for(value, deadline_s)
    except TimeoutError as error:
        raise AssertionError(_failure(what, deadline_s, "a look that did not return")) from error


def _pauses(deadline_s: float, pause_s: float) -> Iterator[float]:
    """Yield growing pauses until the deadline: a check often costs the other process more than the wait."""
    end, longest_s = time.monotonic() + deadline_s, max(0.1, 4 * pause_s)
    while time.monotonic() < end:
        yield pause_s
        pause_s = min(pause_s * 1.3, longest_s)


def _failure(what: str, deadline_s: float, saw: object) -> str:
    text = saw if isinstance(saw, str) else repr(saw)
    return f"not within {deadline_s:g} s: {what}; saw instead: {text[-_MAX_VALUE:]}"
