"""Health of code hosts: all asked at the same time, and cached for a few seconds."""

import logging
import re
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from http import HTTPStatus
from typing import Final

from service.git import GitCommandError
from service.hosts import HostResponse, HostUnreachableError, ask
from service.hosts.tokens import HostTokens, TokenError
from service.reference import PLATFORMS
from service.settings import ProbingSettings
from service.store.hosts import Host
from service.store.repositories import Repository
from service.text import table

_UNAUTHORIZED: Final = frozenset({401, 403})
_SHOWN: Final = 300

_REFUSALS: Final = re.compile(
    r"authentication failed|(permission|access) denied|could not read (username|password)|returned error: 40[13]\b",
    re.IGNORECASE,
)
_TROUBLES: Final = re.compile(r"returned error: (404|429|5\d\d)\b|repository '.*' not found", re.IGNORECASE)
_logger = logging.getLogger(__name__)
_GRACE_S: Final = 1.0
"""How long a probe may exceed its own time-out, which does not limit name look-ups."""


@dataclass(frozen=True, slots=True)
class HostState:
    """A code host's status, with its reason."""

    status: str
    """`ok`, `degraded`, `unauthorized` or `unreachable`."""
    reason: str | None = None
    """Why the status is not `ok`, with the fix if there is one."""
    token_ends: str | None = None
    """The day on which the token expires, as GitHub reports it (ISO 8601)."""


@dataclass(eq=False)
class HealthProbes:
    """Asks hosts for their health: one probe serves all organizations that connected the same host."""

    _tokens: HostTokens
    _settings: ProbingSettings
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32, thread_name_prefix="probe"))
    _running: dict[tuple[Host, str | None], tuple[float, Future[HostState]]] = field(default_factory=dict)
    """A host, and the repository that git is asked for, to the probe's start (monotonic seconds) and answer."""
    _last_status: dict[Host, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, hosts: Iterable[Host], repositories: list[Repository]) -> dict[str, HostState]:
        """Return each platform's verdict, in little more time than the probing time-out."""
        answers = []
        for host in hosts:
            url = None
            if host.probe != "api":
                template = None
                if host.clone_url is not None and "{path}" not in host.clone_url:
                    template = host.clone_url
                url = next((row.url for row in repositories if row.platform == host.platform), template)
            now = time.monotonic()
            with self._lock:
                # Callers during a probe share its answer.
                self._running = {
                    key: (at, answer)
                    for key, (at, answer) in self._running.items()
                    if not answer.done() or now - at < self._settings.cache_s
                }
                if (host, url) not in self._running:
                    self._running[host, url] = now, self._pool.submit(self._probe, host, url)
                answers.append((host, self._running[host, url][1]))
        until = time.monotonic() + self._settings.timeout_s + _GRACE_S
        verdicts = {}
        for host, answer in answers:
            try:
                verdict = answer.result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                who = "gave no answer"
                if host.token_command or host.app:
                    who = "the answer, or its token, did not come"
                verdict = HostState("unreachable", f"{host.host}: {who} within {self._settings.timeout_s:g} s")
            # A change is logged with its reason, which callers do not see.
            with self._lock:
                before, self._last_status[host] = self._last_status.get(host, "ok"), verdict.status
            if verdict.status != before:
                level = logging.INFO if verdict.status == "ok" else logging.WARNING
                reason = verdict.reason or "it answers as it should"
                _logger.log(level, "%s at %s is %s: %s", host.platform, host.host, verdict.status, reason)
            verdicts[host.platform] = verdict
        return verdicts

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _probe(self, host: Host, url: str | None) -> HostState:
        if host.probe == "api":
            return self._ask_api(host)
        if url is None:
            text = "no repository is configured through which git could be asked; add one with: repository add"
            return HostState("degraded", text)
        started = time.monotonic()
        try:
            self._tokens.read_head(host, url, self._settings.timeout_s)
        except GitCommandError as error:
            message = " ".join(str(error).split())[-_SHOWN:]
            if _REFUSALS.search(message):
                return HostState("unauthorized", f"{message}; check the token (--token-env) or the ssh key")
            return HostState("degraded" if _TROUBLES.search(message) else "unreachable", message)
        return self._timely(time.monotonic() - started)

    def _ask_api(self, host: Host) -> HostState:
        base = (host.api_url or "").rstrip("/")
        try:
            token = self._tokens.of(host)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            first, *others = PLATFORMS[host.platform].probes
            answer = ask(base + first, self._settings.timeout_s, headers=headers)
            if answer.status == HTTPStatus.NOT_FOUND:
                for path in others:
                    answer = ask(base + path, self._settings.timeout_s, headers=headers)
        except TokenError as error:
            return HostState("unreachable" if error.is_unreachable else "unauthorized", str(error))
        except HostUnreachableError as error:
            return HostState("unreachable", str(error))
        try:
            # As in `2026-12-01 08:00:00 UTC`.
            ends = date.fromisoformat(answer.headers.get("github-authentication-token-expiration", "")[:10]).isoformat()
        except ValueError:
            ends = None
        return replace(self._judge(host, answer), token_ends=ends)

    def _judge(self, host: Host, answer: HostResponse) -> HostState:
        answered = f"{host.host} answered {answer.status}"
        # GitHub also answers 403 for too many requests, which its headers show.
        is_spent = answer.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in answer.headers
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS or (answer.status in _UNAUTHORIZED and is_spent):
            return HostState("degraded", f"{answered}: the rate limit of the token is spent")
        if answer.status in _UNAUTHORIZED:
            fix = "give the host a token with --token-env"
            if host.token_env:
                fix = f"check the token in {host.token_env}"
            fix = "check what its token may do" if host.token_command or host.app else fix
            return HostState("unauthorized", f"{answered}; {fix}")
        if not answer.is_success:
            return HostState("degraded", f"{answered}; check --api-url if it stays so")
        if not isinstance(answer.body, dict | list):
            text = f"{host.host} did not answer with JSON; check --api-url, which is {host.api_url}"
            return HostState("degraded", text)
        # GitHub's rate limits.
        core = table(table(table(answer.body).get("resources")).get("core"))
        if core.get("remaining") == 0:
            return HostState("degraded", f"the rate limit of the token at {host.host} is spent")
        return self._timely(answer.took_s)

    def _timely(self, took_s: float) -> HostState:
        if took_s < (slow_s := self._settings.slow_s):
            return HostState("ok")
        return HostState("degraded", f"the answer took {took_s:.1f} s, more than probing.slow_s = {slow_s:g}")
