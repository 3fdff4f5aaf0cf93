"""A measured figure and the yardstick it was held against in the same run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    name: str
    value: float
    """Seconds, the median, unless the unit says otherwise."""
    yardstick: str
    """What it was compared with."""
    yardstick_value: float
    """The yardstick's own value, from the same run."""
    unit: str = "ms"
    factor: float = 1e3
    """From the value to the unit."""
    bar: float | None = None
    """The ratio that it must not exceed. None: for information."""

    @property
    def ratio(self) -> float:
        """How many times the yardstick."""
        return self.value / self.yardstick_value

    @property
    def verdict(self) -> str:
        """Its bar, and whether it stays below it; nothing, where there is none."""
        if self.bar is None:
            return ""
        return f"bar {self.bar:.2f}: {'met' if self.ratio <= self.bar else 'MISSED'}"


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(*measurements: Callable[[], float], rounds: int = 7) -> tuple[float, ...]:
    """The medians of measurements taken in turn, so that a machine that slows down slows them all.

    Args:
        measurements: Each measures once and returns seconds.
        rounds: How often; a warm-up comes before.
    """
    for measure in measurements:
        measure()
    taken = [[measure() for measure in measurements] for _ in range(rounds)]
    return tuple(statistics.median(values) for values in zip(*taken, strict=True))
