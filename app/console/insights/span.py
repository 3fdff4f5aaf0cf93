"""The stretches of time of the Insights tab, cut at full hours and at midnight, and their figures."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from storage.cache import Cache
from widgets.insights.figures import ChartStep, InsightsView


@dataclass(frozen=True, slots=True)
class InsightSpan:
    """A stretch up to now."""

    name: str
    """`7d`."""
    title: str
    step: ChartStep
    count: int
    """Hours or days, the current one included."""
    fine: timedelta
    """The steps over which concurrency is averaged."""

    def edges(self, now: datetime) -> tuple[datetime, ...]:
        """The beginning of each hour or day and the end of the last one, in local time, daylight saving included."""
        if self.step == "hour":
            last = now.astimezone().replace(minute=0, second=0, microsecond=0).astimezone(UTC)
            return tuple(last + timedelta(hours=index) for index in range(1 - self.count, 2))
        today = now.astimezone().date()
        days = (today + timedelta(days=index) for index in range(1 - self.count, 2))
        return tuple(datetime.combine(each, time.min).astimezone().astimezone(UTC) for each in days)

    def fine_edges(self, now: datetime) -> tuple[datetime, ...]:
        """From the first of `edges` to now, in finer steps."""
        first = self.edges(now)[0]
        whole = max(0, -((first - now) // self.fine) - 1)
        return (*(first + self.fine * index for index in range(whole + 1)), now)


SPANS: Final = (
    InsightSpan("24h", "the last 24 hours", "hour", 24, timedelta(minutes=15)),
    InsightSpan("7d", "the last 7 days", "day", 7, timedelta(hours=2)),
    InsightSpan("30d", "the last 30 days", "day", 30, timedelta(hours=6)),
)


async def read_insights(cache: Cache, span: InsightSpan, now: datetime) -> InsightsView:
    """Read the figures of a stretch up to now.

    Raises:
        StorageError: The cache cannot be read.
    """
    edges = span.edges(now)
    return InsightsView(
        title=span.title,
        step=span.step,
        at=now,
        outcomes=await cache.outcomes(edges),
        concurrency=await cache.concurrency(span.fine_edges(now)),
        repositories=await cache.repository_figures(edges[0]),
        coverage=await cache.coverage(),
    )
