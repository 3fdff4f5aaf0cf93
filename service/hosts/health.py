"""Health of code hosts: asked of the hosts themselves, all at once, and remembered for a few seconds."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from service.hosts.access import token_at, token_of
from service.hosts.probes import Verdict, probe_api, probe_git
from service.settings import Probing
from service.store.hosts import Host
from service.store.repositories import Repository

_log = logging.getLogger(__name__)
_PARALLEL: Final = 32
_GRACE_S: Final = 1.0
"""What a question may take beyond its own time-out: name look-ups have none."""
_NOTHING_TO_ASK: Final = Verdict(
    "degraded", "no repository is configured through which git could be asked; add one with: repository add"
)


@dataclass(frozen=True, slots=True)
class _Question:
    host: Host
    url: str | None
    """What git is asked about; None: the host's API is asked, or there is nothing to ask about."""
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Asked:
    at_s: float
    """Monotonic."""
    answer: Future[Verdict]


class HealthProbes:
    """Asks hosts for their health, each question once for all who have it."""

    def __init__(self, settings: Probing, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(_PARALLEL, thread_name_prefix="probe")
        self._asked: dict[_Question, _Asked] = {}
        self._said: dict[Host, str] = {}
        """Host to the status that the log knows."""
        self._lock = threading.Lock()

    def ask(self, hosts: Iterable[Host], repositories: list[Repository]) -> dict[str, Verdict]:
        """Return platform to verdict; takes as long as the slowest host, and little more than the probing time-out."""
        questions = [_question(host, repositories) for host in hosts]
        asked = [(question, self._put(question)) for question in questions]
        until = self._monotonic() + self._settings.timeout_s + _GRACE_S
        return {question.host.platform: self._answered(question.host, one, until) for question, one in asked}

    def close(self) -> None:
        """Let go of what is still being asked."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _put(self, question: _Question) -> _Asked:
        now = self._monotonic()
        with self._lock:
            # Callers who come while a question is open share its answer.
            self._asked = {key: one for key, one in self._asked.items() if self._holds(one, now)}
            if question not in self._asked:
                self._asked[question] = _Asked(now, self._pool.submit(self._probe, question))
            return self._asked[question]

    def _holds(self, one: _Asked, now: float) -> bool:
        return not one.answer.done() or now - one.at_s < self._settings.cache_s

    def _answered(self, host: Host, asked: _Asked, until: float) -> Verdict:
        try:
            verdict = asked.answer.result(max(0.0, until - self._monotonic()))
        except TimeoutError:
            verdict = Verdict("unreachable", f"{host.host} gave no answer within {self._settings.timeout_s:g} s")
        self._tell(host, verdict)
        return verdict

    def _probe(self, question: _Question) -> Verdict:
        if question.host.probe == "api":
            return probe_api(question.host, question.token, self._settings)
        return _NOTHING_TO_ASK if question.url is None else probe_git(question.url, question.token, self._settings)

    def _tell(self, host: Host, verdict: Verdict) -> None:
        """Log a change: callers are told a word only, and somebody will ask why."""
        with self._lock:
            before, self._said[host] = self._said.get(host, "ok"), verdict.status
        if verdict.status != before:
            level = logging.INFO if verdict.status == "ok" else logging.WARNING
            reason = verdict.reason or "it answers as it should"
            _log.log(level, "%s at %s is %s: %s", host.platform, host.host, verdict.status, reason)


def _question(host: Host, repositories: list[Repository]) -> _Question:
    if host.probe == "api":
        return _Question(host, None, token_of(host))
    url = next((one.url for one in repositories if one.platform == host.platform), None)
    if url is None and host.clone_url is not None and "{path}" not in host.clone_url:
        url = host.clone_url
    return _Question(host, url, None if url is None else token_at(host, url))
