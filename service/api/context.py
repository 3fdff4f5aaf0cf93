"""The context: what every endpoint may use, given to the application when it is built."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import Depends, Request

from service.api.log_watch import LogWatch
from service.api.threads import Threads
from service.clock import Clock
from service.forge.accounts import OwnAccounts
from service.hosts.health import HealthProbes
from service.mail.message import Mailer
from service.observability.metrics import Exposition
from service.observability.traces import NoTracer, Tracer
from service.settings import Settings
from service.store.database import Database
from service.store.rate_limits import RateLimiter
from service.store.results import Results
from service.store.runs import RunCounts

CONTEXT: Final = "runwarden.context"
"""Key in the ASGI scope's `state`: a context for this one request."""


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
    """Signs page tokens; the same in every process on one database."""
    counts: RunCounts
    """The lengths of lists of runs; long ones moments old."""
    wake: Callable[[], None]
    """Tells the worker of this process, if there is one, that a turn was accepted."""
    results: Results
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
    """Asks code hosts; a slow one takes a few places of its organization, and none of the threads for requests."""


def context_of(request: Request) -> Context:
    """Return the context that a request brings along, else that of the application it came to."""
    context: Context = request.scope.get("state", {}).get(CONTEXT) or request.app.state.context
    return context


Services = Annotated[Context, Depends(context_of)]
