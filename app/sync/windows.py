"""Windows over missing history: disjoint, newest first, split for idle workers; together they miss nothing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.api.errors import EndlessListError, UnsteadyListError
from app.api.paging import EndCheck
from app.sync.walk import TICK
from storage.records import CoverageGap, RunPage

LONGEST: Final = 20
"""Pages that a window keeps when it is split: the newest part of a long gap is filled first."""
SHORTEST: Final = 2
"""Windows shorter than this number of pages are not split."""
FURTHEST: Final = timedelta(days=3_650)
"""A window that is split keeps no more, however few runs there are."""
DENSE: Final = timedelta(seconds=20)
"""A page that spans less is followed by its token: asking again with dates repeats up to two seconds."""
BARREN: Final = 4
"""Pages after which a window that completes nothing is halved."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Creations from start to end, both inclusive."""

    start: datetime | None
    """None: the stretch begins at the very first run."""
    end: datetime


@dataclass(slots=True, eq=False)
class Window:
    """A stretch of creations, both ends inclusive, that one worker at a time requests from its end down."""

    start: datetime | None
    """None: the stretch begins at the very first run."""
    end: datetime
    """It moves down with every page."""
    is_busy: bool = False
    spacing: timedelta | None = None
    """Time between two of its runs, by its last page. None: not known."""
    token: str | None = None
    """The next page of the stretch `asked`. None: request the rest."""
    asked: Stretch | None = None
    barren: int = 0
    """Pages in a row that completed nothing."""
    check: EndCheck = field(default_factory=EndCheck)
    """Checks the pages of `asked`."""
    is_shuffled: bool = False
    """Whether the pages of `asked` have no steady order, and so complete nothing."""

    def pages_left(self, size: int) -> float:
        """Pages to its start, by the density of its last page. Infinite: not known."""
        if self.start is None or self.spacing is None:
            return math.inf
        return (self.end - self.start) / (max(self.spacing, TICK) * size)

    def ask(self) -> tuple[Stretch, str | None]:
        """The next request: a stretch, and the token of its next page."""
        if self.token is None or self.asked is None:
            self.asked, self.token = Stretch(self.start, self.end), None
            self.check, self.is_shuffled = EndCheck(), False
        return self.asked, self.token


class Windows:
    """The windows over some gaps: taken, advanced and split."""

    def __init__(self, gaps: Iterable[CoverageGap], *, page_size: int, longest: float = LONGEST) -> None:
        """Begin with a window for each gap, the newest gap first; one that is split keeps `longest` pages."""
        self._size = page_size
        self._longest = longest
        self._spacing: timedelta | None = None
        """Time between two runs, by the page that came last."""
        self._open = [
            Window(None if gap.after is None else gap.after + TICK, gap.before - TICK)
            for gap in gaps
            if gap.before is not None and (gap.after is None or gap.before - gap.after > TICK)
        ]

    @property
    def open(self) -> tuple[Window, ...]:
        """The missing stretches, newest first."""
        return tuple(self._open)

    @property
    def runs_left(self) -> float | None:
        """About how many runs are missing. None: not known."""
        if self._spacing is None or any(window.start is None for window in self._open):
            return None
        spans = ((window.end - window.start, window.spacing) for window in self._open if window.start is not None)
        return sum(span / max(spacing or self._spacing, TICK) for span, spacing in spans)

    def take(self) -> Window | None:
        """The newest waiting window, else a part of the longest one; None: all are taken."""
        window = next((each for each in self._open if not each.is_busy), None) or self._split()
        if window is not None:
            window.is_busy = True
        return window

    def advance(self, window: Window, page: RunPage, bottom: datetime | None) -> Stretch | None:
        """Take in the page that the window asked for; return the stretch that it completes. None: it completes nothing.

        The bottom is the first creation, inclusive, below which the pages of what was asked may have left out runs.

        Raises:
            EndlessListError: The pages of what was asked would never end; the window is given up.
            UnsteadyListError: They may have left out runs; the window is given up.
        """
        window.is_busy = False
        whole = Stretch(window.start, window.end)
        page = window.check.meet(page)
        if page.is_shuffled or window.is_shuffled:
            window.is_shuffled, bottom = True, None
            if page.next_token is None:
                self._open.remove(window)
                raise UnsteadyListError
        if page.next_token is None or (bottom is not None and window.start is not None and bottom <= window.start):
            self._open.remove(window)
            return whole
        try:
            window.check.step(page)
        except EndlessListError:
            self._open.remove(window)
            raise
        if bottom is None or bottom > window.end:
            self._endure(window, page.next_token)
            return None
        span = window.end - bottom + TICK
        window.end, window.barren = bottom - TICK, 0
        window.spacing = self._spacing = span / max(1, len(page.runs))
        # A new request is safe from pages that shift, but costs the overlap again.
        window.token = page.next_token if span < DENSE else None
        return Stretch(bottom, whole.end)

    def _endure(self, window: Window, token: str) -> None:
        window.barren += 1
        window.token = token
        if window.barren < BARREN or window.start is None or window.end - window.start < DENSE:
            return
        # Pages without order: only the last one completes anything. Halves have fewer.
        window.barren, window.token = 0, None
        middle = window.start + (window.end - window.start) / 2
        self._cut(window, middle)

    def _split(self) -> Window | None:
        longest = max((each for each in self._open if self._may_split(each)), key=self._length, default=None)
        if longest is None or longest.spacing is None:
            return None
        spacing = max(longest.spacing, TICK)
        kept = min(spacing * self._size * min(self._longest, self._length(longest) / 2), FURTHEST)
        return self._cut(longest, longest.end - kept)

    def _cut(self, window: Window, below: datetime) -> Window:
        """Cut off the part up to `below`, inclusive, as a window of its own."""
        # Its density is unknown: below the very first run there would be no end of empty windows.
        rest = Window(window.start, below)
        window.start = below + TICK
        self._open.insert(self._open.index(window) + 1, rest)
        return rest

    def _may_split(self, window: Window) -> bool:
        return window.spacing is not None and not window.barren and self._length(window) >= SHORTEST

    def _length(self, window: Window) -> float:
        return window.pages_left(self._size)
