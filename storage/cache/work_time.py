"""How long a run worked, without the time between its turns."""

from typing import Final, NamedTuple, Self

from storage.records import WorkTime
from storage.values import NO_TIME_US, from_us

UNKNOWN_US: Final = -1
"""Stands for an unknown duration, and sorts below all known ones."""
LONGEST_US: Final = 2**62
"""A time longer than any duration: an active run's `took_us` is counted down from here."""

FIRST_SINCE_SQL: Final = f"iif(created_us = {NO_TIME_US}, asked_us, created_us)"
"""`TurnTimes.active_since_us` of a run that was never seen before, as SQL."""


def took_sql(is_final: str = "is_final") -> str:
    """`TurnTimes.took_us` of a run whose status is final where this SQL says so, as SQL."""
    return f"""CASE
        WHEN created_us = {NO_TIME_US} OR ({is_final} AND updated_us = {NO_TIME_US}) THEN {UNKNOWN_US}
        WHEN {is_final} THEN worked_us + max(0, updated_us - active_since_us)
        ELSE {LONGEST_US} - active_since_us + worked_us END"""


def took(took_us: int) -> WorkTime:
    """Decode `TurnTimes.took_us`."""
    if took_us == UNKNOWN_US:
        return WorkTime()
    if took_us > LONGEST_US // 2:
        return WorkTime(since=from_us(LONGEST_US - took_us))
    return WorkTime(seconds=took_us / 1_000_000)


class TurnTimes(NamedTuple):
    """How long a run's turns took together, in microseconds."""

    active_since_us: int
    """When the current turn began; of an ended run, the last turn."""
    worked_us: int
    """The duration of the earlier turns."""
    took_us: int
    """The duration of all turns. An active run's sorts above those of ended runs, the higher the earlier it began."""

    @classmethod
    def first(cls, created_us: int, updated_us: int, asked_us: int, *, is_final: bool) -> Self:
        """The times of a run's first turn, which begins when it was created; if that is unknown, when it was seen."""
        if created_us == NO_TIME_US:
            return cls(asked_us, 0, UNKNOWN_US)
        if not is_final:
            return cls(created_us, 0, LONGEST_US - created_us)
        return cls(created_us, 0, UNKNOWN_US if updated_us == NO_TIME_US else max(0, updated_us - created_us))

    def then(self, at_us: int, *, was_final: bool, is_final: bool) -> Self:
        """The times after a change at `at_us`, which may have ended a turn or begun one."""
        since_us, worked_us, took_us = self
        if was_final and is_final:
            # An ended run was updated later: that is no further work.
            return self
        if was_final:
            since_us, worked_us = at_us, max(0, took_us)
        if is_final:
            return type(self)(since_us, worked_us, worked_us + max(0, at_us - since_us))
        return type(self)(since_us, worked_us, LONGEST_US - since_us + worked_us)
