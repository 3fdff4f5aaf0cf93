"""The context that every endpoint is given, with its threads and the requests that wait for a log to grow."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar
from weakref import WeakValueDictionary

import anyio.to_thread
from fastapi import Depends, Request

from service.clock import Clock
from service.forge.accounts import OwnAccounts
from service.hosts.health import HealthProbes
from service.mail.message import Mailer
from service.observability.metrics import Exposition
from service.observability.traces import NoTracer, Tracer
from service.settings import Settings
from service.store.database import Database
from service.store.rate_limits import RateLimiter
from service.store.results import TurnResults
from service.store.runs import RunCounter
from service.store.turn_files import Key

T = TypeVar("T")
CONTEXT: Final = "runwarden.context"
"""Key in the ASGI scope's `state`: a context for this one request."""
AskLogSizes = Callable[[Sequence[Key]], Awaitable[Mapping[Key, tuple[int, bool]]]]
"""Given turns, returns the length of each log and whether the turn has ended; turns that are gone are left out."""
_PAUSE_S: Final = 0.4


class Threads:
    """Threads for calls: at most `size` at a time, at most `share` of them for one caller; further calls wait."""

    def __init__(self, size: int, share: int | None = None) -> None:
        self._size = size
        self._share = share or size
        self._all: anyio.CapacityLimiter | None = None
        self._callers: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    async def run(self, call: Callable[[], T], caller: str = "") -> T:
        """Call in a thread and return the result."""
        if self._all is None:
            self._all = anyio.CapacityLimiter(self._size)
        own = self._callers.get(caller)
        if own is None:
            own = self._callers[caller] = anyio.CapacityLimiter(self._share)
        async with own:
            return await anyio.to_thread.run_sync(call, limiter=self._all)


class LogWatch:
    """Wakes requests that wait for a log, on one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[Key, set[tuple[int, asyncio.Future[None]]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def grown(self, ask_sizes: AskLogSizes, key: Key, size: int, patience_s: float) -> None:
        """Wait until a log is longer than a size, or its turn has ended or is gone, but at most `patience_s`."""
        if self._is_closed or patience_s <= 0:
            return
        entry = (size, asyncio.get_running_loop().create_future())
        self._waiting[key].add(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(ask_sizes))
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(entry[1], patience_s)
        finally:
            self._waiting[key].discard(entry)
            if not self._waiting[key]:
                del self._waiting[key]

    def close(self) -> None:
        """Wake all waiting requests, and let no more of them wait: the service shuts down."""
        self._is_closed = True
        self._wake({})

    async def _watch(self, ask_sizes: AskLogSizes) -> None:
        while self._waiting:
            try:
                found = await ask_sizes(list(self._waiting))
            except Exception:  # noqa: BLE001 — the boundary: each waiting request asks again itself, and answers with the fault
                found = {}
            self._wake(found)
            await asyncio.sleep(_PAUSE_S)

    def _wake(self, found: Mapping[Key, tuple[int, bool]]) -> None:
        for key, entries in self._waiting.items():
            length, is_over = found.get(key, (0, True))
            for size, future in entries:
                if not future.done() and (is_over or length > size):
                    future.set_result(None)


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running service."""

    database: Database
    settings: Settings
    clock: Clock
    expiry_clock: Clock
    """The present for decisions about expiry: `clock`, unless the lab shifts it."""
    rate: RateLimiter
    mailer: Mailer
    probes: HealthProbes
    page_key: bytes
    """The key that signs page tokens; the same in every process on one database."""
    counts: RunCounter
    """Counts the runs in lists; the count of a long list may be moments old."""
    wake: Callable[[], None]
    """Tells the worker of this process, if there is one, that a turn was accepted."""
    results: TurnResults
    """The stored logs and diffs of turns."""
    accounts: OwnAccounts | None = None
    """The owners of code hosts' tokens; None: only `triggers.own_accounts` names them."""
    exposition: Exposition | None = None
    """None: `/metrics` is not offered."""
    tracer: Tracer = field(default_factory=NoTracer)
    log_watch: LogWatch = field(default_factory=LogWatch)
    """Requests that wait for a log to grow."""
    parsing: Threads = field(default_factory=lambda: Threads(1))
    """Reads large bodies."""
    scrapes: Threads = field(default_factory=lambda: Threads(1))
    """Asks the database for `/metrics`; a scrape waits for the one before it."""
    outgoing: Threads = field(default_factory=lambda: Threads(32, share=4))
    """Asks code hosts; a slow one uses up the share of its organization, and no thread for requests."""


def context_of(request: Request) -> Context:
    """Return the context in a request's own state, which the lab sets, or else that of the application."""
    context: Context = request.scope.get("state", {}).get(CONTEXT) or request.app.state.context
    return context


RequestContext = Annotated[Context, Depends(context_of)]
