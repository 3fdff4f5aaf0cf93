"""The inbox: what happened and is not dealt with yet."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Kind = Literal["failed", "stuck", "host", "unknown", "approval", "paused", "bot"]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a person did with an item."""

    done_until: datetime | None = None
    """Dealt with up to here: only what came later brings it back."""
    snoozed_until: datetime | None = None
    is_muted: bool = False
    """It does not come back."""


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something that a person should look at; what has one cause is one item."""

    key: str
    """The same for as long as it is the same thing."""
    kind: Kind
    title: str
    at: datetime
    """The newest of what happened."""
    count: int = 1
    cure: str = ""
    """What to do about it, as a command."""
