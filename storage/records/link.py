"""Our own link to the service, kept apart from the health of its code hosts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Subject = Literal["runs", "health"]


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """How one poll went."""

    subject: Subject
    at: datetime
    error_kind: str | None = None
    """None: it succeeded. Otherwise an `ApiError.kind`."""
    error_message: str | None = None
    http_status: int | None = None
    in_lab: bool = False
    """The service said that it is a lab, where faults are scripted."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """What the polls say of the link, subject by subject; it survives a restart in the cache."""

    subject: Subject
    last_ok_at: datetime | None = None
    """None: never yet."""
    failing_since: datetime | None = None
    """None: the last poll succeeded, or there was none."""
    failures: int = 0
    """How many polls failed in a row."""
    error_kind: str | None = None
    error_message: str | None = None
    in_lab: bool = False
    """The service said so when it answered last."""

    @property
    def is_failing(self) -> bool:
        """Whether the last poll failed."""
        return self.failing_since is not None
