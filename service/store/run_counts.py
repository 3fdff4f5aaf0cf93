"""Run counts: exact where that is quick, and moments old where counting takes long."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from service.store import runs
from service.store.runs import Filters

EXACT_BELOW: Final = 10_000
_KEPT_S_PER_RUN: Final = 5e-6
"""Counting takes about a tenth of a microsecond a run: at most a fiftieth of the time goes into it."""
_LARGEST: Final = 1000


class RunCounts:
    """Counts what filters match; a count of 10,000 or more is kept for up to 5 s per million."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kept: OrderedDict[Filters, tuple[int, float]] = OrderedDict()
        """Filters to (count, monotonic seconds until which it is good), oldest first."""
        self._lock = threading.Lock()

    def count(self, connection: sa.Connection, filters: Filters) -> int:
        """Return how many runs match."""
        with self._lock:
            number, good_until = self._kept.get(filters, (0, 0.0))
        if self._monotonic() < good_until:
            return number
        number = runs.count(connection, filters)
        if number >= EXACT_BELOW:
            self._keep(filters, number)
        return number

    def _keep(self, filters: Filters, number: int) -> None:
        with self._lock:
            self._kept[filters] = number, self._monotonic() + number * _KEPT_S_PER_RUN
            self._kept.move_to_end(filters)
            while len(self._kept) > _LARGEST:
                self._kept.popitem(last=False)
