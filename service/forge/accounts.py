"""The service's own accounts on code hosts, whose deliveries start no runs."""

import threading
import time
from typing import Final

from service.forge.client import ForgeError
from service.forge.handlers import FORGES
from service.hosts.http import token_of
from service.store import hosts, repositories
from service.store.database import Database

_KEPT_S: Final = 3600.0
_FAILED_KEPT_S: Final = 300.0
"""How long a failure is remembered; the token of a GitHub App's installation may never ask."""
_TIMEOUT_S: Final = 3.0
"""Short, because code hosts wait only ten seconds for an answer to a delivery."""


class OwnAccounts:
    """Asks code hosts for the accounts of their tokens, and remembers the answers for an hour."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[tuple[str, str], tuple[str | None, float]] = {}
        """API address and token to the account, and to the monotonic second at which the entry expires."""
        self._lock = threading.Lock()

    def of(self, platform: str, path: str) -> frozenset[str]:
        """Return the accounts, in lower case, of all organizations that configured a repository."""
        with self._database.read() as connection:
            owners = {owner for owner, _ in repositories.everywhere(connection, platform, path)}
            connected = [host for owner in sorted(owners) for host in hosts.of(connection, owner)]
        named = set()
        for host in connected:
            token = token_of(host)
            if host.platform == platform and host.api_url is not None and token is not None:
                named.add(self._account(platform, host.api_url, path, token))
        return frozenset(name.lower() for name in named if name)

    def _account(self, platform: str, api_url: str, path: str, token: str) -> str | None:
        with self._lock:
            name, until = self._known.get((api_url, token), (None, 0.0))
        if time.monotonic() < until:
            return name
        forge = FORGES[platform](api_url, path, token, _TIMEOUT_S)
        try:
            name, kept_s = forge.account(), _KEPT_S
        except ForgeError:
            # The service's own pushes are still recognized by their commits.
            name, kept_s = None, _FAILED_KEPT_S
        with self._lock:
            self._known[api_url, token] = name, time.monotonic() + kept_s
        return name
