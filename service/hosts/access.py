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


def host_token(connection: sa.Connection, run: Run) -> str | None:
    """Return the token for a run's repository; None when its address is not on the connected host: it must not leak."""
    where = location(run.url)
    for host in hosts.of(connection, run.organization_id):
        if host.platform == run.platform and where is not None and where.host == host.host:
            return token_of(host)
    return None
