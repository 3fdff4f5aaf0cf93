"""A provider's outages, as one turn sees them: how long requests are held, and whether the model answered."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from service.agents.outcome import Ending, TurnFailure
from service.egress.refusals import Refusal
from service.settings import AgentLimits


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a turn waits without its slot."""

    failure: TurnFailure
    limit_s: float | None
    """How long the provider's limit lasts; None: the provider is down for an unknown time."""


@dataclass(eq=False)
class ModelState:
    """The state of one turn's model: its last answer, its failures, and for how long requests are held.

    `away_s` stores that the provider gave no answer (see the meter).
    """

    limits: AgentLimits
    away_s: Callable[[], float | None]
    outage_s: float = inf
    """The longest wait for the end of an outage or limit, even a known one: longer ones are for a fallback."""
    has_answered: bool = False
    """Whether the model answered at all."""
    trouble: TurnFailure | None = None
    """Why the last request that costs something failed; None: it was answered."""
    ending: Ending | None = None
    """How the last answer ended; None: normally."""
    answered_by: str = "the model"
    """The model that gave the last answer, in words."""
    end: TurnFailure | None = None
    """Why the agent must be stopped."""
    overspent: TurnFailure | None = None
    """Why the turn fails even if its agent makes no further request."""
    waiting: int = 0
    """How many requests are with the provider, or are held because it is down."""
    _since: float | None = None
    """When the first unanswered request was made (monotonic seconds); None: all were answered."""
    _pause: Pause | None = None
    _until: float = inf
    """Until when requests may be held for the present outage or limit."""
    _silent: tuple[float, Callable[[float], Refusal]] | None = None
    """The first request since the provider's last word: its time (monotonic seconds), and the words for silence."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pause(self) -> Pause | None:
        """Why the turn would wait if it ended now; None: no provider is down, or only this turn gets no answer."""
        return None if self._since is None else self._pause

    def answered(self, ending: Ending | None, by: str) -> None:
        """Record a whole answer to a request that costs something."""
        with self._lock:
            self.has_answered = True
            if self.end is None:
                self._since = self.trouble = None
            self.ending, self.answered_by = ending, by

    def fail(self, failure: TurnFailure, *, is_final: bool = False) -> None:
        """Record why a request failed; a final failure stops the agent."""
        with self._lock:
            self.trouble = failure
            self.end = self.end or (failure if is_final else None)

    def count(self, change: int) -> None:
        """Count requests in or out of `waiting`."""
        with self._lock:
            self.waiting += change

    def refused(self, asked_at: float, refusal: Refusal) -> None:
        """Record that a request got no answer that could be passed on."""
        is_limit = (refusal.wait_s or 0) > min(self.limits.model_patience_s, self.outage_s)
        away_s = self.away_s()
        with self._lock:
            self._since = self._since or asked_at
            self._pause, self._until, self._silent = None, inf, None
            if is_limit or away_s is not None:
                self._pause = Pause(refusal.failure, refusal.wait_s if is_limit else None)
                self._until = time.monotonic() - (away_s or 0) + self.outage_s

    def asked(self, at: float, explain: Callable[[float], Refusal]) -> None:
        """Record that a request was sent; `explain` makes a refusal of seconds of silence."""
        with self._lock:
            self._silent = self._silent or (at, explain)

    def heard(self) -> None:
        """Record that the provider said something."""
        self._silent = None

    def stopped(self, least_s: float) -> None:
        """Record that the agent was stopped, or gave up: a provider that was silent for `least_s` by then is down."""
        if (silent := self._silent) is not None and (silent_s := time.monotonic() - silent[0]) >= least_s:
            self.refused(silent[0], silent[1](round(silent_s)))

    def broke_off(self) -> bool:
        """Record that an answer broke off; return whether answers have been breaking off for `model_patience_s`."""
        now = time.monotonic()
        with self._lock:
            self._since, self._pause = self._since or now, None
            return now > self._since + self.limits.model_patience_s

    def allows(self, begun: float, until: float) -> bool:
        """Whether a request that was begun may be held until an instant (monotonic seconds)."""
        return until <= min(self._until, min(begun, self._since or begun) + self.limits.model_patience_s)
