"""The context: what every endpoint may use, handed in by whoever builds the application."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from service.api.rate import RateLimit
from service.clock import Clock
from service.hosts.health import HealthProbes
from service.mail.outbox import Mailer
from service.settings import Settings
from service.store.database import Database


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running service."""

    database: Database
    settings: Settings
    clock: Clock
    rate: RateLimit
    mailer: Mailer
    probes: HealthProbes
    page_key: bytes
    """Signs page tokens; the same in every process on one database."""
    wake: Callable[[], None]
    """Tells the worker of this process, if there is one, that a turn was accepted."""


def context_of(request: Request) -> Context:
    """Return the context of the application that a request came to."""
    context: Context = request.app.state.context
    return context


Services = Annotated[Context, Depends(context_of)]
