"""An event loop whose time passes only while nothing is left to do: hours of waiting in a moment."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Passes the time instead of waiting for it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test without sockets on a loop of its own, which starts at 0.

    What would run on a thread is run at once: it takes no time.
    """

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        selector = _Selector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            loop = runner.get_loop()
            loop.time = lambda: selector.now_s  # type: ignore[method-assign]
            loop.run_in_executor = partial(_at_once, loop)  # type: ignore[assignment,method-assign]
            runner.run(test(*args, **kwargs))

    return run


def _at_once(
    loop: asyncio.AbstractEventLoop, _executor: object, call: Callable[..., Any], *args: Any
) -> asyncio.Future[Any]:
    future = loop.create_future()
    try:
        future.set_result(call(*args))
    except Exception as error:  # noqa: BLE001 — as an executor does
        future.set_exception(error)
    return future
