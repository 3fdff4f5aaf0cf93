"""The context of every endpoint, with its threads and its memory for bodies."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeVar
from weakref import WeakValueDictionary

import anyio.to_thread
from fastapi import Depends, Request

from service.clock import Clock
from service.forge.accounts import OwnAccounts
from service.hosts.health import HealthProbes
from service.hosts.tokens import HostTokens
from service.observability.metrics import ServiceMetrics, operators_token
from service.observability.traces import Tracer
from service.outgoing.mail import Mailer
from service.settings import DataFolder, Settings
from service.store.database import Database
from service.store.rate_limits import RateLimiter
from service.store.runs import RunCounter

T = TypeVar("T")
CONTEXT: Final = "runwarden.context"
"""Key in the ASGI scope's `state` for a context that applies only to this request."""


class Threads:
    """Threads for calls: at most `size` at a time, and at most `share` of them for one caller; further calls wait."""

    def __init__(self, size: int, share: int | None = None) -> None:
        self._all = anyio.CapacityLimiter(size)
        self._share = share or size
        self._callers: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    async def run(self, call: Callable[[], T], caller: str = "") -> T:
        limiter = self._callers.get(caller)
        if limiter is None:
            limiter = self._callers[caller] = anyio.CapacityLimiter(self._share)
        async with limiter:
            return await anyio.to_thread.run_sync(call, limiter=self._all)


@dataclass(eq=False)
class Reserve:
    """Memory for the bodies of unknown callers; used only on the event loop."""

    left: int
    """How many bytes are free."""


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running service."""

    database: Database
    settings: Settings
    clock: Clock
    expiry_clock: Clock
    """The present for decisions about expiry: the same as `clock`, unless the lab shifts it."""
    metrics: ServiceMetrics
    rate: RateLimiter
    mailer: Mailer
    probes: HealthProbes
    page_key: bytes
    """The key that signs page tokens, the same in every process on one database."""
    counts: RunCounter
    wake: Callable[[], None]
    folder: DataFolder
    """The data folder; on SQLite it contains the logs and diffs of turns."""
    tokens: HostTokens
    accounts: OwnAccounts
    tracer: Tracer
    closing: threading.Event = field(default_factory=threading.Event)
    """Set at shutdown: requests stop waiting for logs to grow."""
    parsing: Threads = field(default_factory=lambda: Threads(1))
    scrapes: Threads = field(default_factory=lambda: Threads(1))
    """The thread for `/metrics`, so that scrapes run one after the other."""
    outgoing: Threads = field(default_factory=lambda: Threads(32, share=4))
    """The threads for requests to code hosts: a slow host uses up only its organization's share."""
    unproven_deliveries: Reserve = field(default_factory=lambda: Reserve(64 << 20))
    """Memory for large bodies of unknown senders: a signature can only be checked after the body was read."""
    unproven_forms: Reserve = field(default_factory=lambda: Reserve(64 << 20))
    """Memory for large forms: each is read before its sender is known, so that it can be shown again."""

    @property
    def operator_token(self) -> str | None:
        """The token that opens the operator's view on the page; if None, there is no such view."""
        return operators_token(self.settings.page.operator_token_env, os.environ)


def context_of(request: Request) -> Context:
    """Return the request's own context if the lab set one, otherwise the application's."""
    context: Context = request.scope.get("state", {}).get(CONTEXT) or request.app.state.context
    return context


RequestContext = Annotated[Context, Depends(context_of)]
