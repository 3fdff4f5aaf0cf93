"""The usual ways to limit requests, by a time that the caller states."""

from dataclasses import dataclass, field
from typing import Literal, get_args

LimiterKind = Literal["bucket", "fixed window", "sliding window"]
KINDS: tuple[LimiterKind, ...] = get_args(LimiterKind)


@dataclass
class Limiter:
    """So many requests in a window; a bucket holds as many and refills steadily. Time is what the caller says."""

    kind: LimiterKind
    requests: int
    window_s: float
    _passed: list[float] = field(default_factory=list)
    _tokens: float = 0.0
    _filled_at_s: float = float("-inf")

    def wait_s(self, now_s: float) -> float | None:
        """Let a request through, or say in how many seconds one may come."""
        found = self._bucket(now_s) if self.kind == "bucket" else self._window(now_s)
        if found is None:
            self._passed.append(now_s)
        return found

    def _bucket(self, now_s: float) -> float | None:
        per_s = self.requests / self.window_s
        self._tokens = min(float(self.requests), self._tokens + (now_s - self._filled_at_s) * per_s)
        self._filled_at_s = now_s
        self._tokens -= (passes := self._tokens >= 1)
        return None if passes else (1 - self._tokens) / per_s

    def _window(self, now_s: float) -> float | None:
        start_s = now_s - now_s % self.window_s if self.kind == "fixed window" else now_s - self.window_s
        recent = [at_s for at_s in self._passed[-self.requests :] if at_s > start_s or at_s == start_s == now_s]
        if len(recent) < self.requests:
            return None
        return (start_s if self.kind == "fixed window" else recent[0]) + self.window_s - now_s
