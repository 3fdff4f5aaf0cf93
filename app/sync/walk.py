"""A walk through the list, from its newest run downwards, and the history that it may claim."""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import chain
from statistics import median_high, median_low
from typing import Final

from app.api.timestamps import names_offset
from app.sync.reader import StoredPage
from storage.records import CoverageRange, Run

TICK: Final = timedelta(microseconds=1)
ENDS: Final = 9
"""Runs at an end of a walk that together tell its reach: a few odd times do not matter."""
ODD_SHARE: Final = 0.1
"""Runs that may be out of order before the order itself is in doubt."""
RECENT: Final = 100
"""Runs whose order is checked."""
FAR: Final = timedelta(days=7)
"""A single time this far ahead concerns its run, not the service's clock."""
KEPT: Final = 3
"""Pages of a walk that are held."""
IN_A_ROW: Final = 3
"""After this many known and unchanged runs in a row, the following ones are known as well."""


def reach(runs: Sequence[Run]) -> datetime | None:
    """The creation, inclusive, down to which a list that goes on after these runs has certainly shown every run.

    The spec says "newest first", by creation or by the last change. No run changes before it is created: in the order
    of changes, every run created after the last shown change was shown. None: the times prove nothing.
    """
    created = [run.created_at for run in runs if run.created_at is not None]
    updated = [run.updated_at for run in runs if run.updated_at is not None]
    bounds = [median_high(times[-_ends(times) :]) for times in (created, updated) if times and _descends(times)]
    # Runs of the same instant as the last one may be on the next page.
    return max(bounds) + TICK if bounds and 2 * len(created) > len(runs) else None


def top(runs: Sequence[Run]) -> datetime | None:
    """The creation up to which a list's first page shows every run. None: too few of its times can be read."""
    created = [run.created_at for run in runs if run.created_at is not None]
    return median_low(nlargest(ENDS, created)) if len(created) > 1 else None


def newest(runs: Sequence[Run], present: datetime) -> datetime | None:
    """The latest time on a list's first page, among times that name their offset. None: there is none.

    Of times far beyond the service's present, only one that most of the newest runs reach counts.
    """
    latest = nlargest(ENDS, (max(shown) for run in runs if (shown := _shown(run))))
    times = [time for time, name, raw_json in latest if names_offset(json.loads(raw_json).get(name))]
    plausible = [time for time in times if time <= present + FAR]
    return max([*plausible, *([median_low(times)] if len(times) > 1 else [])], default=None)


def _shown(run: Run) -> list[tuple[datetime, str, str]]:
    shown = ((run.created_at, "created_at"), (run.updated_at, "updated_at"))
    return [(time, name, run.raw_json) for time, name in shown if time is not None]


def _ends(times: Sequence[datetime]) -> int:
    return min(ENDS, (len(times) + 1) // 2)


def _descends(times: Sequence[datetime]) -> bool:
    # The longest run of times that do not rise, by patience sorting from the end.
    tops: list[datetime] = []
    for time in reversed(times):
        index = bisect_right(tops, time)
        tops[index : index + 1] = [time]
    return len(times) - len(tops) <= ODD_SHARE * len(times)


@dataclass(slots=True)
class Walk:
    """A walk from the newest run downwards, page by page, without gaps."""

    as_of: datetime
    """When the first page was requested, by our clock."""
    known: CoverageRange | None = None
    """The newest complete range before it began."""
    pages: list[StoredPage] = field(default_factory=list)
    """The pages that it read; in a long walk only the last few."""
    ended: bool = False
    """Whether the list was read to its end."""
    runs: int = 0
    token: str | None = None
    """The token of the next page."""
    slipped: bool = False
    """Some runs may be on none of its pages: the order is not steady, or runs were deleted while it was read, and later
    runs moved to an earlier page, as they do if tokens count places.
    """
    is_behind: bool = False
    """The service's clock was set back: new runs may be listed below what was claimed."""
    is_inside: bool = False
    """It began in the middle of the list: runs of the same instant as its first one may be above it."""
    _total: int | None = None
    _top: datetime | None = None
    _recent: deque[Run] = field(default_factory=lambda: deque(maxlen=RECENT))

    def step(self, stored: StoredPage) -> None:
        """Add the next page."""
        page = stored.page
        shrank = self._total is not None and page.total_count is not None and page.total_count < self._total
        self.slipped, self._total = self.slipped or shrank or page.is_shuffled, page.total_count
        self.pages = [*self.pages[1 - KEPT :], stored]
        if self.runs == 0:
            self._top = top(page.runs)
            if self._top is not None and self.is_inside:
                self._top -= TICK
        self._recent.extend(page.runs)
        self.runs += len(page.runs)
        self.token, self.ended = page.next_token, page.next_token is None

    def range(self) -> CoverageRange | None:
        """The complete range. None: the times prove nothing."""
        if self.ended:
            return CoverageRange(None, self._top)
        start = reach(self._recent)
        if start is None or self._top is None or start > self._top:
            return None
        return CoverageRange(start, self._top)

    def meets(self, held: Container[str]) -> bool:
        """Whether enough runs in a row are held and unchanged."""
        changed: set[str] = set()
        for each in (stored.changes for stored in self.pages):
            changed |= {*each.new, *each.updated, *(moved.run_id for moved in each.transitions)}
        row = 0
        for run in self.shown():
            row = row + 1 if run.run_id in held and run.run_id not in changed else 0
            if row == IN_A_ROW:
                return True
        return False

    def refutes_known(self) -> bool:
        """Whether a range that counted as complete lacked most runs of the last page: the history is another one."""
        stored, known = self.pages[-1], self.known
        if known is None:
            return False
        new = set(stored.changes.new)
        missed = sum(run.run_id in new and known.holds(run.created_at) for run in stored.page.runs)
        return missed >= IN_A_ROW and 2 * missed > len(stored.page.runs)

    def shown(self) -> Iterator[Run]:
        """The runs of the held pages, in order."""
        return chain.from_iterable(stored.page.runs for stored in self.pages)
