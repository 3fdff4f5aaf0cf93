"""What a person wants to see of what happened."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, get_args

from storage.records import ActionKind
from storage.records.activity import ActivityFilter, Subject

WRITES: Final[tuple[str, ...]] = get_args(ActionKind)
POLLS: Final = tuple(f"poll.{subject}" for subject in get_args(Subject))


@dataclass(frozen=True, slots=True)
class ActivityView:
    """A name for a filter."""

    title: str
    condition: ActivityFilter
    empty: str
    """What it means that there is nothing in it."""


VIEWS: Final = (
    ActivityView("All", ActivityFilter(), "Nothing happened yet"),
    ActivityView("Writes", ActivityFilter(kinds=WRITES), "Nothing was written from here yet"),
    ActivityView("Polls", ActivityFilter(kinds=POLLS), "The service was not asked yet"),
    ActivityView("Open", ActivityFilter(is_open=True), "Every outcome is known"),
)
SINCE: Final[Mapping[str, timedelta | None]] = {
    "any": None,
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


@dataclass(frozen=True, slots=True)
class ActivityQuery:
    """A view, narrowed."""

    view: int = 0
    """Index into `VIEWS`."""
    kinds: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    search: str = ""
    since: str = "any"
    """One of `SINCE`."""

    @property
    def is_narrowed(self) -> bool:
        """Whether escape has something to clear."""
        return self != ActivityQuery(view=self.view)

    def later(self) -> "ActivityQuery":
        """With the next shorter or longer stretch of time."""
        names = tuple(SINCE)
        return replace(self, since=names[(names.index(self.since) + 1) % len(names)])

    def condition(self, now: datetime) -> ActivityFilter:
        """The filter as of now."""
        base, back = VIEWS[self.view].condition, SINCE[self.since]
        return ActivityFilter(
            kinds=self.kinds or base.kinds,
            outcomes=self.outcomes,
            search=self.search,
            since=None if back is None else now - back,
            is_open=base.is_open,
        )
