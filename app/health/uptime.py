"""How much of the time a platform was well, as far as anybody looked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from app.health.levels import Level, level
from storage.records import HealthSpan

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SPEAKS_FROM: Final = 0.5
"""The part of a slice that must be known before it is called well."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """One platform in one window."""

    window: timedelta
    well_s: float
    known_s: float
    """Time of which the status is known; the rest counts neither as up nor as down."""

    @property
    def share(self) -> float | None:
        """The well part of the known time, 0 to 1. None: nothing is known."""
        return self.well_s / self.known_s if self.known_s else None

    @property
    def known_share(self) -> float:
        """The known part of the window, 0 to 1."""
        return min(1.0, self.known_s / self.window.total_seconds())


def uptime(spans: Sequence[HealthSpan], window: timedelta, now: datetime, healthy_words: Collection[str]) -> Uptime:
    """One platform's spans, added up over the window that ends now."""
    well_s = known_s = 0.0
    for span in spans:
        seconds = _overlap_s(span, now - window, now)
        known_s += seconds
        if level(span.status, healthy_words) == "well":
            well_s += seconds
    return Uptime(window, well_s, known_s)


def slices(
    spans: Sequence[HealthSpan], now: datetime, count: int, each: timedelta, healthy_words: Collection[str]
) -> tuple[Level | None, ...]:
    """One platform's last `count` slices of time, oldest first, each at the worst level it had; None: not known.

    They begin at whole multiples of `each`, so that a slice stays what it is; the last one holds now.
    """
    start = _EPOCH + ((now - _EPOCH) // each - (count - 1)) * each
    seconds: list[dict[Level, float]] = [{} for _ in range(count)]
    for span in spans:
        found = level(span.status, healthy_words)
        first, last = (span.start - start) // each, (span.end - start) // each
        for index in range(max(0, first), min(count - 1, last) + 1):
            there = _overlap_s(span, start + index * each, start + (index + 1) * each)
            seconds[index][found] = seconds[index].get(found, 0.0) + there
    # The last slice is about now: whatever was seen in it speaks for it.
    needed_s = [_SPEAKS_FROM * each.total_seconds()] * (count - 1) + [0.0]
    return tuple(_worst(part, well_s) for part, well_s in zip(seconds, needed_s, strict=True))


def _overlap_s(span: HealthSpan, start: datetime, end: datetime) -> float:
    return max(0.0, (min(span.end, end) - max(span.start, start)).total_seconds())


def _worst(seconds: dict[Level, float], well_s: float) -> Level | None:
    if "bad" in seconds:
        return "bad"
    if "impaired" in seconds:
        return "impaired"
    return "well" if seconds.get("well", -1.0) >= well_s else None
