"""Facts missing from a delivery, asked of its code host: the service's own accounts, and the pull request."""

import contextlib
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Final

from service.forge import ForgeError
from service.forge.handlers import FORGES
from service.forge.poster import forge_of
from service.hosts.tokens import HostTokens, TokenError
from service.reference import PLATFORMS
from service.rules import HookEvent
from service.store import hosts, repositories
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository

_KEPT_S: Final = 3600.0
_FAILED_KEPT_S: Final = 300.0
"""How long a failure is remembered; the token of a GitHub App's installation may never ask."""
_TIMEOUT_S: Final = 3.0
_PATIENCE_S: Final = 4.0
"""How long a delivery waits for each of the two facts: code hosts wait only ten seconds for its answer."""
_MAX_THREADS: Final = 32


@dataclass(eq=False, repr=False)
class OwnAccounts:
    """Asks code hosts for the accounts of their tokens, and remembers the answers for an hour."""

    _database: Database
    _tokens: HostTokens
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_MAX_THREADS, "accounts"))
    _known: dict[tuple[str, str], tuple[str | None, float]] = field(default_factory=dict)
    """API address and token to the account, and to the monotonic second at which the entry expires."""
    _asked: dict[tuple[str, str], tuple[Future[str | None], float]] = field(default_factory=dict)
    """The last question by platform and organization, and when nobody waits for its answer any more."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, platform: str, path: str) -> dict[str, frozenset[str]]:
        """Return, for each organization that configured a repository, the accounts of the service on its code host.

        In lower case. Those of other organizations are among them, whose pushes and comments could go round in circles
        with its own, but only if an address that it uses itself reports them: another's host may claim any name.
        """
        with self._database.read() as connection:
            configured = repositories.everywhere(connection, platform, path)
            found = ((owner, hosts.at(connection, owner, platform, row.url)) for owner, row in configured)
            connected = {owner: host for owner, host in found if host is not None and host.api_url}
        questions = {}
        with self._lock:
            for owner, host in connected.items():
                last = self._asked.get((platform, owner))
                if last is None or last[0].done():
                    last = self._threads.submit(self._account, host, path), time.monotonic() + _PATIENCE_S
                    self._asked[platform, owner] = last
                questions[owner] = last
        accounts: defaultdict[str | None, set[str]] = defaultdict(set)
        for owner, (answer, until) in questions.items():
            # Without an answer, the commits still identify the service's own pushes.
            if wait([answer], max(0.0, until - time.monotonic())).done and (name := answer.result()):
                accounts[connected[owner].api_url].add(name.lower())
        return {owner: frozenset(accounts[host.api_url]) for owner, host in connected.items()}

    def _account(self, host: Host, path: str) -> str | None:
        url, token = host.api_url or "", None
        with contextlib.suppress(TokenError):
            token = self._tokens.of(host)
        if token is None:
            return None
        name, until = self._known.get((url, token), (None, 0.0))
        if time.monotonic() < until:
            return name
        try:
            name = FORGES[host.platform](url, path, token, _TIMEOUT_S).account()
            kept_s = _KEPT_S
        except ForgeError:
            name, kept_s = None, _FAILED_KEPT_S
        self._known[url, token] = name, time.monotonic() + kept_s
        return name


def complete_event(database: Database, tokens: HostTokens, platform: str, event: HookEvent) -> dict[str, HookEvent]:
    """Return an event with its pull request, as reported by the host of each organization with a rule for the event.

    One organization's host says nothing about another's repository.
    """
    with database.read() as connection:
        configured = [
            (owner, repository, hosts.at(connection, owner, platform, repository.url))
            for owner, repository in repositories.everywhere(connection, platform, event.path)
            if not event.fault and any(rule.mismatch(event) is None for rule in repository.triggers)
        ]
    # A GitHub App's token can take longer than code hosts wait.
    threads = ThreadPoolExecutor(_MAX_THREADS, "pull requests")
    answers = {owner: threads.submit(_with_pull_request, tokens, of, at, event) for owner, of, at in configured}
    threads.shutdown(wait=False)
    done = wait(answers.values(), _PATIENCE_S).done
    late = replace(event, fault="the pull request cannot be read: its code host gave no answer in time")
    return {owner: answer.result() if answer in done else late for owner, answer in answers.items()}


def _with_pull_request(tokens: HostTokens, repository: Repository, host: Host | None, event: HookEvent) -> HookEvent:
    try:
        forge = forge_of(tokens, host, repository, _TIMEOUT_S)
        requests = [forge.pull_request(event.number)] if event.number else forge.pull_requests(event.head)
    except ForgeError as error:
        return replace(event, fault=f"the pull request cannot be read: {error}")
    request = next((request for request in requests if request.state == "open"), None)
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
