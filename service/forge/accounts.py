"""Facts missing from a delivery, asked of its code host: the service's own accounts, and the pull request."""

import threading
import time
from dataclasses import replace
from typing import Final

from service.forge.client import ForgeError
from service.forge.handlers import FORGES
from service.forge.poster import forge_of
from service.hosts.tokens import TokenError, token_of
from service.reference import PLATFORMS
from service.store import hosts, repositories
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from service.triggers.events import HookEvent

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

    def of(self, platform: str, path: str) -> dict[str, frozenset[str]]:
        """Return, for each organization that configured a repository, the accounts of the service on its code hosts.

        In lower case. Those of other organizations are among them, whose pushes and comments could go round in circles
        with its own, but only if an address that it uses itself reports them: another's host may claim any name.
        """
        with self._database.read() as connection:
            owners = {owner for owner, _ in repositories.everywhere(connection, platform, path)}
            connected = {owner: hosts.of(connection, owner) for owner in sorted(owners)}
        used: dict[str, set[str]] = {owner: set() for owner in connected}
        named: dict[str, set[str]] = {}
        for owner, its_hosts in connected.items():
            for host in its_hosts:
                try:
                    token = token_of(host)
                except TokenError:
                    # The commits still identify the service's own pushes.
                    token = None
                if host.platform == platform and host.api_url is not None and token is not None:
                    used[owner].add(host.api_url)
                    account = self._account(platform, host.api_url, path, token)
                    named.setdefault(host.api_url, set()).update({account.lower()} if account else ())
        return {owner: frozenset().union(*(named[url] for url in urls)) for owner, urls in used.items()}

    def _account(self, platform: str, api_url: str, path: str, token: str) -> str | None:
        with self._lock:
            name, until = self._known.get((api_url, token), (None, 0.0))
        if time.monotonic() < until:
            return name
        forge = FORGES[platform](api_url, path, token, _TIMEOUT_S)
        try:
            name, kept_s = forge.account(), _KEPT_S
        except ForgeError:
            # The commits still identify the service's own pushes.
            name, kept_s = None, _FAILED_KEPT_S
        with self._lock:
            self._known[api_url, token] = name, time.monotonic() + kept_s
        return name


def completed(database: Database, platform: str, event: HookEvent) -> dict[str, HookEvent]:
    """Return an event with its pull request, as reported by the host of each organization with a rule for the event.

    One organization's host says nothing about another's repository.
    """
    with database.read() as connection:
        found = [
            (owner, one, hosts.of(connection, owner))
            for owner, one in repositories.everywhere(connection, platform, event.path)
            if not event.fault and any(rule.mismatch(event) is None for rule in one.triggers)
        ]
    return {owner: _looked_up(one, connected, event) for owner, one, connected in found}


def _looked_up(repository: Repository, connected: list[Host], event: HookEvent) -> HookEvent:
    try:
        forge = forge_of(connected, repository, _TIMEOUT_S)
        named = [forge.pull_request(event.number)] if event.number else forge.pull_requests(event.head)
    except ForgeError as error:
        return replace(event, fault=f"the pull request cannot be read: {error}")
    request = next((one for one in named if one.state == "open"), None)
    if request is None:
        return replace(event, fault="there is no open pull request")
    if event.head_sha not in {"", request.head}:
        return replace(event, fault=f"the pull request is at {request.head[:12]} by now")
    return replace(
        event,
        number=request.number,
        ref=PLATFORMS[repository.platform].ref.format(request.number),
        head=request.branch,
        head_sha=request.head,
        base=request.base,
        is_fork=request.is_fork,
        labels=request.labels,
    )
