"""Health of code hosts: asked of the hosts themselves, all at once, and remembered for a few seconds."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.execution.git import Git, GitError, login
from service.hosts.access import token_of
from service.hosts.http import UnreachableError, ask
from service.settings import Probing
from service.store.hosts import Host
from service.store.repositories import Repository

_API_PATHS: Final = {"github": "/rate_limit", "gitlab": "/version"}
_UNAUTHORIZED: Final = frozenset({401, 403})
_SUCCESS: Final = range(200, 300)
_LOGIN_WORDS: Final = ("authentication failed", "permission denied", "could not read username", "403", "401")
_PARALLEL: Final = 8


@dataclass(frozen=True, slots=True)
class _Question:
    host: Host
    url: str | None
    """What git is asked about; None: there is nothing to ask about."""
    token: str | None


class HealthProbes:
    """Asks hosts for their health: `ok`, `degraded`, `unauthorized` or `unreachable`."""

    def __init__(self, settings: Probing, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="probe")
        self._known: dict[_Question, tuple[float, Future[str]]] = {}
        self._lock = threading.Lock()

    def ask(self, hosts: Iterable[Host], repositories: list[Repository]) -> dict[str, str]:
        """Return platform to status; takes as long as the slowest host, and at most the probing time-out."""
        asked = {host.platform: self._future(_question(host, repositories)) for host in hosts}
        return {platform: self._result(future) for platform, future in asked.items()}

    def close(self) -> None:
        """Let go of what is still being asked."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _future(self, question: _Question) -> Future[str]:
        now = self._monotonic()
        with self._lock:
            known = self._known.get(question)
            # Callers who come while a question is open share its answer.
            if known is not None and (not known[1].done() or now - known[0] < self._settings.cache_s):
                return known[1]
            self._known = {one: kept for one, kept in self._known.items() if not kept[1].done()}
            future = self._pool.submit(self._probe, question)
            self._known[question] = (now, future)
            return future

    def _result(self, future: Future[str]) -> str:
        try:
            return future.result(self._settings.timeout_s + 1)
        except TimeoutError:
            return "unreachable"

    def _probe(self, question: _Question) -> str:
        return self._ask_api(question) if question.host.probe == "api" else self._ask_git(question)

    def _ask_api(self, question: _Question) -> str:
        host = question.host
        token = {"Authorization": f"Bearer {question.token}"} if question.token else {}
        url = (host.api_url or "").rstrip("/") + _API_PATHS[host.platform]
        try:
            answer = ask(url, self._settings.timeout_s, headers=token)
        except UnreachableError:
            return "unreachable"
        if answer.status in _UNAUTHORIZED:
            return "unauthorized"
        return "ok" if answer.status in _SUCCESS and answer.took_s < self._settings.slow_s else "degraded"

    def _ask_git(self, question: _Question) -> str:
        if question.url is None:
            return "degraded"
        started = self._monotonic()
        with tempfile.TemporaryDirectory(prefix="runwarden-probe-") as home:
            git = Git(Path(home), self._settings.timeout_s, login(question.url, question.token))
            try:
                git("ls-remote", "--", question.url, "HEAD")
            except GitError as error:
                refused = any(word in str(error).lower() for word in _LOGIN_WORDS)
                return "unauthorized" if refused else "unreachable"
        return "ok" if self._monotonic() - started < self._settings.slow_s else "degraded"


def _question(host: Host, repositories: list[Repository]) -> _Question:
    url = next((one.url for one in repositories if one.platform == host.platform), None)
    if url is None and host.clone_url is not None and "{path}" not in host.clone_url:
        url = host.clone_url
    return _Question(host, url if host.probe == "git" else None, token_of(host))
