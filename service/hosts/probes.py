"""Probes: one question to one code host, and what its answer means."""

import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.execution.git import Git, GitError, login
from service.hosts.http import Answer, UnreachableError, ask
from service.settings import Probing
from service.store.hosts import Host

_GITHUB_LIMITS: Final = "/rate_limit"
_GITHUB_VERSIONS: Final = "/versions"
_GITLAB_VERSION: Final = "/version"
_UNAUTHORIZED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
_SUCCESS: Final = range(200, 300)
_SHOWN: Final = 300

_REFUSALS: Final = re.compile(
    r"authentication failed|(permission|access) denied|could not read (username|password)|returned error: 40[13]\b",
    re.IGNORECASE,
)
_TROUBLES: Final = re.compile(r"returned error: (404|429|5\d\d)\b|repository '.*' not found", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a code host is."""

    status: str
    """`ok`, `degraded`, `unauthorized` or `unreachable`."""
    reason: str | None = None
    """Why it is not ok, with the cure where there is one."""


OK: Final = Verdict("ok")


def probe_api(host: Host, token: str | None, settings: Probing) -> Verdict:
    """Ask a host's HTTP API, with its token if it has one."""
    base = (host.api_url or "").rstrip("/")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        if host.platform == "gitlab":
            answer = ask(base + _GITLAB_VERSION, settings.timeout_s, headers=headers)
        else:
            answer = ask(base + _GITHUB_LIMITS, settings.timeout_s, headers=headers)
            if answer.status == _NOT_FOUND:
                # A GitHub Enterprise Server without rate limits has no such page; the one with versions it has.
                answer = ask(base + _GITHUB_VERSIONS, settings.timeout_s, headers=headers)
    except UnreachableError as error:
        return Verdict("unreachable", str(error))
    return _judged(host, answer, settings)


def probe_git(url: str, token: str | None, settings: Probing) -> Verdict:
    """Ask for a repository's HEAD with `git ls-remote`."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="runwarden-probe-") as home:
        try:
            Git(Path(home), settings.timeout_s, login(url, token))("ls-remote", "--", url, "HEAD")
        except GitError as error:
            said = " ".join(str(error).split())[-_SHOWN:]
            if _REFUSALS.search(said):
                return Verdict("unauthorized", f"{said}; check the token (--token-env) or the ssh key")
            return Verdict("degraded" if _TROUBLES.search(said) else "unreachable", said)
    return _timely(time.monotonic() - started, settings)


def _judged(host: Host, answer: Answer, settings: Probing) -> Verdict:
    if answer.status == _TOO_MANY or (answer.status in _UNAUTHORIZED and _spent(answer)):
        return Verdict("degraded", f"{host.host} answered {answer.status}: the rate limit of the token is spent")
    if answer.status in _UNAUTHORIZED:
        cure = f"check the token in {host.token_env}" if host.token_env else "give the host a token with --token-env"
        return Verdict("unauthorized", f"{host.host} answered {answer.status}; {cure}")
    if answer.status not in _SUCCESS:
        return Verdict("degraded", f"{host.host} answered {answer.status}; check --api-url if it stays so")
    if not isinstance(answer.body, dict | list):
        return Verdict("degraded", f"{host.host} answered what is no JSON; check --api-url, which is {host.api_url}")
    if _core_limit_left(answer.body) == 0:
        return Verdict("degraded", f"the rate limit of the token at {host.host} is spent")
    return _timely(answer.took_s, settings)


def _spent(answer: Answer) -> bool:
    """Whether a refusal is about the number of requests: GitHub answers 403 for it, and says so in headers."""
    return answer.headers.get("x-ratelimit-remaining") == "0" or "retry-after" in answer.headers


def _core_limit_left(body: object) -> object:
    """Return what GitHub's /rate_limit says is left of the core limit; None when the answer says nothing of it."""
    for key in ("resources", "core", "remaining"):
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _timely(took_s: float, settings: Probing) -> Verdict:
    if took_s < settings.slow_s:
        return OK
    return Verdict("degraded", f"the answer took {took_s:.1f} s, more than probing.slow_s = {settings.slow_s:g}")
