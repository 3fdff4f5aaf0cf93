"""A service's habits where the spec leaves a choice, or the service takes one."""

from datetime import timedelta
from typing import Literal

from storage.lazy_dataclass import dataclass

DateFilter = Literal["created", "updated", "ignored", "unknown"]
"""The time that `date_from` and `date_to` are compared with."""

Habit = Literal["ignores_status", "endless", "no_results"]
"""Seen at a time, and checked again later.

`ignores_status`: a list filtered by a status shows others. `endless`: the list without readable times never ends.
`no_results`: it does not offer results (docs/results.md).
"""


@dataclass(frozen=True, slots=True)
class ServiceTraits:
    """Proven habits of a service."""

    date_filter: DateFilter = "unknown"
    display_offset: timedelta = timedelta(0)
    """How much later a time is shown than the date filter takes it: local time without an offset."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """The clock of the times that runs show, against our own."""

    ahead: timedelta = timedelta(0)
    is_known: bool = False
    """The service dates its answers, and its runs by the same clock. False: the times of runs may be hours off."""
