"""The Insights tab's texts beside its charts, or in their place."""

from typing import Final

from textual.content import Content

from app.console.insights.span import SPANS, InsightSpan
from widgets.badges import STYLES
from widgets.frame.notice import Notice
from widgets.insights.figures import COMPLETED, FAILED, NOT_FETCHED, OTHERWISE, UNFINISHED, UNKNOWN, InsightsView

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
