"""The query of Activity: its views and filters, their chips, and the reason for an empty list."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from app.text import safe_text
from storage.records.activity import ActivityFilter
from widgets.activity.formatting import outcome_badge, what
from widgets.badges import Badge
from widgets.clickable import Chip
from widgets.frame.notice import Notice


@dataclass(frozen=True, slots=True)
class ActivityView:
    """A named filter."""

    title: str
    condition: ActivityFilter
    empty: str
    """The text for an empty list."""


VIEWS: Final = (
    ActivityView("Writes", ActivityFilter(), "Nothing was written from here yet"),
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
    """A view, and the filters that narrow it."""

    view: int = 0
    """Index into `VIEWS`."""
    kinds: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    search: str = ""
    since: str = "any"
    """One of `SINCE`."""

    @property
    def is_narrowed(self) -> bool:
        """Whether escape has a filter to clear."""
        return self != ActivityQuery(view=self.view)

    def with_next_since(self) -> "ActivityQuery":
        """Return the query with the next stretch of time."""
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


def kind_badge(kind: str) -> Badge:
    """The badge of a kind in lists."""
    return Badge("·", what(kind), "plain")


def views(query: ActivityQuery) -> tuple[Chip, ...]:
    """The chips of the views, with the current one marked."""
    return tuple(
        Chip(str(index), safe_text(f"[{view.title}]" if index == query.view else view.title), index == query.view)
        for index, view in enumerate(VIEWS)
    )


def filters(query: ActivityQuery) -> tuple[Chip, ...]:
    """The chips of all filters, set or not."""
    kinds = _few(tuple(what(kind) for kind in query.kinds))
    outcomes = _few(tuple(outcome_badge(outcome).word for outcome in query.outcomes))
    return (
        Chip("kinds", safe_text(f"what {kinds} ▾"), bool(query.kinds)),
        Chip("outcomes", safe_text(f"outcome {outcomes} ▾"), bool(query.outcomes)),
        Chip("since", safe_text(f"since {query.since} ▾"), query.since != "any"),
    )


def _few(names: tuple[str, ...]) -> str:
    if not names:
        return "any"
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def nothing(query: ActivityQuery, held: int) -> Notice:
    """The reason for an empty list."""
    if query.is_narrowed and held:
        return Notice("∅", "No write matches", (f"{held:,} writes are here; esc shows them again.",))
    if held:
        return Notice("✓", VIEWS[query.view].empty, (f"{held:,} writes are here; [ and ] change the view.",))
    lines = ("Every write is entered here before it is sent,", "with its outcome, whichever process it was.")
    return Notice("○", VIEWS[query.view].empty, lines, "plain")
