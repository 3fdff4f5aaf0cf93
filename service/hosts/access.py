"""Access: the token of a code host, from the service's environment."""

import os

import sqlalchemy as sa

from service.reference import location
from service.store import hosts
from service.store.hosts import Host
from service.store.runs import Run


def token_of(host: Host) -> str | None:
    """Return a host's token; None: none is configured, or its variable is empty."""
    return (os.environ.get(host.token_env) or None) if host.token_env else None


def token_at(host: Host, url: str) -> str | None:
    """Return a host's token for git at an address; None when the address is not on that host: it must not leak."""
    where = location(url)
    return token_of(host) if where is not None and where.host == host.host else None


def host_token(connection: sa.Connection, run: Run) -> str | None:
    """Return the token for a run's repository; None when no connected host is the one it is on."""
    of_platform = (host for host in hosts.of(connection, run.organization_id) if host.platform == run.platform)
    return next((token for host in of_platform if (token := token_at(host, run.url))), None)
