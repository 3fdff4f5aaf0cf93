"""The habits of a service, where the spec leaves it a choice or it takes one."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

DateFilter = Literal["created", "updated", "ignored", "unknown"]
"""What `date_from` and `date_to` are compared with."""


@dataclass(frozen=True, slots=True)
class ServiceTraits:
    """What was proved of a service."""

    date_filter: DateFilter = "unknown"
    display_offset: timedelta = timedelta(0)
    """A time is shown so much later than the date filter takes it: local time without an offset."""
