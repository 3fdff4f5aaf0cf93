"""A provider's outages, as one turn sees them: since when no request was answered, and what the turn waits for."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.agents.outcome import TurnFailure
from service.egress.refusals import Refusal


@dataclass(frozen=True, slots=True)
class Pause:
    """What a turn waits for without its slot."""

    failure: TurnFailure
    limit_s: float | None
    """How long the provider's limit lasts; None: the provider is away, and does not say for how long."""


class Outages:
    """Decides how long requests are held; `is_away_for_all` stores that the provider gave no answer (see the meter)."""

    def __init__(self, patience_s: float, is_away_for_all: Callable[[], bool]) -> None:
        self._patience_s = patience_s
        self._is_away_for_all = is_away_for_all
        self._since: float | None = None
        """When the first of the requests was made that have got no answer (monotonic seconds); None: all got one."""
        self._pause: Pause | None = None
        self._lock = threading.Lock()

    @property
    def pause(self) -> Pause | None:
        """What the turn would wait for if it ended now; None: it is no provider, or this turn alone gets no answer."""
        return None if self._since is None else self._pause

    def answered(self) -> None:
        """Record that the provider gave a whole answer."""
        with self._lock:
            self._since = None

    def refused(self, asked_at: float, refusal: Refusal) -> None:
        """Record that a request got no answer that could be passed on."""
        is_limit = refusal.wait_s is not None and refusal.wait_s > self._patience_s
        is_for_all = self._is_away_for_all()
        with self._lock:
            self._since = self._since or asked_at
            self._pause = None
            if is_limit or is_for_all:
                self._pause = Pause(refusal.failure, refusal.wait_s if is_limit else None)

    def broke_off(self) -> bool:
        """Record that an answer broke off; return whether that goes on for longer than the patience."""
        now = time.monotonic()
        with self._lock:
            self._since, self._pause = self._since or now, None
            return now > self._since + self._patience_s

    def allows(self, begun: float, until: float) -> bool:
        """Whether a request that was begun may be held until an instant (monotonic seconds)."""
        return until <= min(begun, self._since or begun) + self._patience_s
