"""How many runs match and how many are missing."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from textual.content import Content

from app.engine.text import SafeText, safe_text
from app.engine.times import age, clock_time, day
from storage.records import CoverageGap, RunFilter
from storage.records.coverage import BackfillProgress, History
from storage.records.error_kinds import ERROR_KINDS
from widgets.kit.badges import STYLES

BAR: Final = 8
IDLE: Final = BackfillProgress()


def waits_for(reason: str, *, limit: int) -> SafeText:
    """Why fetching waits: an error's kind, or a sentence, in at most `limit` characters."""
    return safe_text(ERROR_KINDS[reason].word if reason in ERROR_KINDS else reason, limit=limit)


class Extent(Struct, frozen=True):
    """How many runs are shown, and out of how many."""

    matching: int
    held: int
    history: History
    is_filtered: bool
    is_counted: bool = True
    """False: `matching` counts the runs found so far."""
    undecided: int = 0
    """The number of runs that may or may not match."""

    def gaps(self, condition: RunFilter) -> tuple[CoverageGap, ...]:
        """The gaps that may hold matching runs, newest first."""
        gaps = condition.gaps_in(self.history.coverage)
        is_open = self.history.is_unread and not gaps and not condition.is_of_active
        return (CoverageGap(None, None),) if is_open else gaps


class ExtentLine(Struct, frozen=True):
    """The content of the line."""

    extent: Extent
    now: datetime
    fresh_from: datetime
    """Data known since then counts as current; the header has the exact time."""
    progress: BackfillProgress = IDLE
    history: timedelta = timedelta(0)
    """How far back missing runs are fetched."""
    is_limited: bool = True
    """Whether runs that match the query may be missing: only then the cached range is shown."""
    has_counts: bool = False
    """Whether a tab shows already how many runs match."""

    def variants(self) -> tuple[Content, ...]:
        """The line in full, then shorter and shorter; each with the runs that could not be stored."""
        extent = self.extent
        coverage = self.extent.history.coverage
        if not extent.held and not coverage.ranges:
            return (Content(),)
        counted = f"{extent.matching:,}{'' if extent.is_counted else '+'} of {extent.held:,}"
        counted = counted if extent.is_filtered and not self.has_counts else ""
        unknown = f"{extent.undecided:,} unknown" if extent.undecided else ""
        tail = ""
        if coverage.dropped:
            tail = f"{coverage.dropped:,} without an id"
        texts = []
        for middle in self._progress() or [*map(_quiet, self._complete())] or [Content()]:
            parts = _quiet(counted), _quiet(unknown), middle, _quiet(tail)
            texts.append(_quiet(" · ").join(filter(None, parts)))
        return tuple(sorted(texts, key=lambda text: -text.cell_length))

    def _progress(self) -> Sequence[Content]:
        progress = self.progress
        coverage = self.extent.history.coverage
        # Older runs can be fetched by hand during a pause, which holds for the background only.
        if self.extent.history.is_paused and progress.phase != "running" and not coverage.whole:
            since = f"since {self._since} · " if self._since else ""
            return [*map(_quiet, (f"{since}fetching is paused", "fetching is paused", "paused"))]
        if progress.phase == "waiting" and progress.until is not None:
            until = clock_time(progress.until, self.now)
            reason = waits_for(progress.why, limit=40)
            texts = f"waiting until {until}: {reason}", f"waits until {until}: {reason}", f"waits until {until}"
            return [*map(_quiet, texts)]
        if progress.phase != "running":
            return ()
        newest = coverage.ranges[0].end if coverage.ranges else None
        since_at = coverage.complete_since
        # The fetched share of the runs, or of the time that they span.
        share = None
        if progress.estimated_runs:
            share = progress.done_runs / progress.estimated_runs
        if share is None and newest is not None and since_at is not None and newest - since_at < self.history:
            share = (newest - since_at) / self.history
        if share is None:
            return _quiet("fetching what is missing"), _quiet("fetching")
        # The bar is not full while runs are missing.
        share = min(0.99, share)
        full = int(share * BAR)
        bar = Content.styled("█" * full, STYLES["busy"]) + _quiet(f"{'░' * (BAR - full)} {share:>4.0%}")
        if progress.seconds_left is None:
            return _quiet("fetching ") + bar, bar
        left = age(self.now, self.now + timedelta(seconds=max(1.0, progress.seconds_left)))
        timed = bar + _quiet(f" {left:>3} left")
        return _quiet("fetching ") + timed, timed, bar

    def _complete(self) -> Iterator[str]:
        coverage = self.extent.history.coverage
        since = self._since
        until_at = coverage.as_of or (coverage.ranges[0].end if coverage.ranges else None)
        # Empty: up to now.
        until = "" if until_at is None or coverage.is_current(self.fresh_from) else clock_time(until_at, self.now)
        if coverage.is_disordered:
            yield "this service's list is out of order: completeness unknown"
            yield "list out of order: completeness unknown"
            yield "completeness unknown"
        elif coverage.whole or not self.is_limited:
            yield from (f"complete until {until}", f"all until {until}") if until else ()
        elif since is None:
            yield from ("history not complete yet", "partial")
        elif until:
            yield from (f"complete from {since} to {until}", f"complete {since} to {until}", f"{since} to {until}")
        else:
            if coverage.gaps[0].after is not None:
                yield f"gap {_between(coverage.gaps[0], self.now)}"
            yield from (f"complete since {since}", f"since {since}")

    @property
    def _since(self) -> str | None:
        since = self.extent.history.coverage.complete_since
        return None if since is None else clock_time(since, self.now)


def missing_text(gap: CoverageGap, now: datetime) -> str:
    """The runs in a gap: `runs before 20 Nov`, or `runs from 20 Nov 12:04 to 20 Nov 15:00`."""
    if gap.before is None:
        return "further runs"
    if gap.after is None:
        is_today = gap.before.astimezone().date() == now.astimezone().date()
        return f"runs before {clock_time(gap.before, now) if is_today else day(gap.before, now)}"
    return f"runs from {_between(gap, now)}"


def _between(gap: CoverageGap, now: datetime) -> str:
    ends = (clock_time(end, now) for end in (gap.after, gap.before) if end is not None)
    return " to ".join(ends)


def _quiet(text: str) -> Content:
    return Content.styled(text, STYLES["quiet"])
