"""The line that says how many runs are cached, and which are missing."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from storage.records import Coverage, CoverageGap, CoverageRange, RunFilter
from storage.records.coverage import BackfillProgress, History
from widgets.runs.extent import Extent, ExtentLine

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
FRESH = NOON - timedelta(seconds=45)


def before(**by: float) -> datetime:
    return NOON - timedelta(**by)


TODAY = CoverageRange(before(hours=2), before(minutes=1))
EARLIER = CoverageRange(before(days=9), before(hours=5))
BEGINNING = CoverageRange(None, before(hours=5))
WHOLE = Coverage((CoverageRange(None, before(minutes=1)),), NOON, before(days=20))


def said(coverage: Coverage, *, is_limited: bool = True, **fields: object) -> list[str]:
    """Every form of the line, the longest first."""
    extent = replace(Extent(1_700, 1_700, History(coverage), is_filtered=False), **fields)  # type: ignore[arg-type]
    line = ExtentLine(extent, NOON, FRESH, BackfillProgress(), is_limited=is_limited, has_counts=False)
    return [variant.plain for variant in line.variants()]


@pytest.mark.parametrize(
    ("coverage", "wide", "narrow"),
    [
        (WHOLE, "", ""),
        (replace(WHOLE, dropped=2), "2 without an id", "2 without an id"),
        # Nothing is known since the last answer that reached down to here.
        (replace(WHOLE, as_of=before(minutes=20)), "complete until 11:40:00", "all until 11:40:00"),
        (replace(WHOLE, as_of=None), "complete until 11:59:00", "all until 11:59:00"),
        (Coverage((TODAY,), NOON), "complete since 10:00:00", "since 10:00:00"),
        (Coverage((TODAY, BEGINNING), NOON), "gap 07:00:00 to 10:00:00", "since 10:00:00"),
        (Coverage(), "history not complete yet", "partial"),
    ],
)
def test_the_extent_line_claims_only_what_is_known(coverage: Coverage, wide: str, narrow: str) -> None:
    """The line names a gap, an end and a beginning; only a list without any gap up to now is called complete."""
    assert said(coverage)[0] == wide
    assert narrow in said(coverage)


def test_gaps_outside_the_query_are_not_mentioned() -> None:
    """A query inside the cached period mentions no gap, except the time since the last answer.

    A search under way has found at least that many.
    """
    assert said(Coverage((TODAY,), NOON), is_limited=False) == [""]
    assert said(Coverage((EARLIER,), before(days=1)), is_limited=False)[0] == "complete until 3 May 12:00"
    assert said(WHOLE, matching=12, is_filtered=True)[0] == "12 of 1,700"
    assert said(WHOLE, matching=12, is_filtered=True, is_counted=False)[0] == "12+ of 1,700"


@pytest.mark.parametrize(
    ("condition", "gap"),
    [
        (RunFilter(), CoverageGap(before(hours=5), before(hours=2))),
        (RunFilter(since=before(hours=3)), CoverageGap(before(hours=5), before(hours=2))),
        (RunFilter(until=before(hours=5)), CoverageGap(None, before(days=9))),
        (RunFilter(since=before(days=9), until=before(hours=5)), None),
        # Runs queried by status, however old they are.
        (RunFilter(active=True), None),
        (RunFilter(statuses=("queued", "failed")), CoverageGap(before(hours=5), before(hours=2))),
    ],
)
def test_only_gaps_that_affect_the_query_are_mentioned(condition: RunFilter, gap: CoverageGap | None) -> None:
    """The newest gap is named first; a query inside the cached period misses nothing."""
    extent = Extent(5, 5, History(Coverage((TODAY, EARLIER), NOON)), is_filtered=bool(condition))

    assert next(iter(extent.gaps(condition)), None) == gap
