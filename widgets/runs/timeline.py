"""A run's life as it was observed: stretches of one status each, with the honest gap before the first look."""

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from storage.records import FINAL_STATUSES, RunDetail


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in one status."""

    status: str | None
    """None: nobody was looking yet."""
    start: datetime
    seconds: float | None
    """None: an end, which takes no time."""
    goes_on: bool = False
    """It has not ended: `seconds` is as of now."""


def stretches(detail: RunDetail, now: datetime) -> tuple[Stretch, ...]:
    """The run's stretches, oldest first."""
    moves = detail.transitions
    if not moves:
        return (_last(detail.run.status, detail.run.created_at or detail.first_seen_at, now),)
    found: list[Stretch] = []
    first, created = moves[0], detail.run.created_at
    # A run first seen as queued has been nothing else since its creation.
    start = created if created is not None and first.new == "queued" else first.at
    if created is not None and start > created:
        found.append(Stretch(None, created, (start - created).total_seconds()))
    for move, following in pairwise(moves):
        found.append(Stretch(move.new, start, max(0.0, (following.at - start).total_seconds())))
        start = following.at
    return (*found, _last(moves[-1].new, start, now))


def _last(status: str, start: datetime, now: datetime) -> Stretch:
    if status in FINAL_STATUSES:
        return Stretch(status, start, None)
    return Stretch(status, start, max(0.0, (now - start).total_seconds()), goes_on=True)
