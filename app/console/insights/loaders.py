"""Reading the figures of a stretch of time, all as of one moment."""

from datetime import datetime

from app.console.insights.span import InsightSpan
from storage.cache import Cache
from widgets.insights.figures import InsightsView


async def read_insights(cache: Cache, span: InsightSpan, now: datetime) -> InsightsView:
    """The figures of a stretch up to now.

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
