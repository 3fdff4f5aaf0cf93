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

    @property
    def ratio(self) -> float:
        """How many times the yardstick."""
        return self.value / self.yardstick_value


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def paired(first: Callable[[], float], second: Callable[[], float], *, rounds: int = 7) -> tuple[float, float]:
    """The medians of two measurements taken in turn, so that a machine that slows down slows both.

    Args:
        first: Measures once and returns seconds.
        second: Likewise.
        rounds: How often; a warm-up comes before.
    """
    first(), second()
    pairs = [(first(), second()) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)
