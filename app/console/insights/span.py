"""The stretches of time of the Insights tab: their edges, their figures, and the texts about them."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final

from textual.content import Content

from storage.cache import Cache
from widgets.badges import STYLES
from widgets.frame.notice import Notice
from widgets.insights.figures import (
    COMPLETED,
    FAILED,
    NOT_FETCHED,
    OTHERWISE,
    UNFINISHED,
    UNKNOWN,
    ChartStep,
    InsightsView,
)


@dataclass(frozen=True, slots=True)
class InsightSpan:
    """A stretch of time up to now."""

    name: str
    """Such as `7d`."""
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


WHAT_COMES: Final = (
    "The outcomes of each hour or day, the number of runs at once, and each repository's success rate and durations"
    " will appear here."
)
ASKING: Final = Notice(
    "◌",
    "Asking the service for its runs…",
    (WHAT_COMES, "", "The newest come with its first answer, older days as they are fetched."),
    "busy",
)
NO_RUN_YET: Final = Notice(
    "○",
    "The service has no run yet",
    (WHAT_COMES, "", "It begins with the first run: n in Runs starts one."),
    "plain",
)


def legend(view: InsightsView) -> Content:
    """Explain the bars, with the numbers of the whole time."""
    counts = [(FAILED, view.failed), (COMPLETED, view.completed), (UNFINISHED, view.unfinished)]
    if view.ended_otherwise:
        counts.insert(2, (OTHERWISE, view.ended_otherwise))
    return Content("   ").join(
        Content.assemble((badge.glyph * 2, badge.style), f" {count:,} {badge.word}") for badge, count in counts
    )


def busiest(view: InsightsView) -> Content:
    """How many runs are under way now, and the most at once, as far as that time was fetched."""
    fetched = [each for each in view.concurrency if view.is_fetched(each)]
    unknown = f"{UNKNOWN.glyph * 2} {NOT_FETCHED}"
    if not fetched:
        return Content.styled(unknown, STYLES["quiet"])
    most = max(fetched, key=lambda each: each.average)
    when = most.start.astimezone()
    now = f"now {view.concurrency[-1].average:,.1f} · most {most.average:,.1f} from {when:%a %H:%M}"
    return Content.styled(now if len(fetched) == len(view.concurrency) else f"{unknown}   {now}", STYLES["quiet"])


def nothing(span: InsightSpan, view: InsightsView) -> Notice:
    """The reason for missing figures, once the service has answered."""
    if view.coverage.whole and view.coverage.first_run_at is None:
        return NO_RUN_YET
    wider = next((each for each in SPANS if _hours(each) > _hours(span)), None)
    what_now = f"t looks at {wider.title}." if wider is not None else "Older runs are in Runs."
    if view.is_complete:
        return Notice("○", f"No run was created in {span.title}", (what_now,), "plain")
    lines = ("The history of that time is not fetched completely yet,", "so there may have been some. " + what_now)
    return Notice("◌", f"No run of {span.title} is known", lines, "warn")


def _hours(span: InsightSpan) -> int:
    return span.count * (24 if span.step == "day" else 1)
