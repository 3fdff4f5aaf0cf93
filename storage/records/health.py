"""The health of the code-hosting installation (spec 2.7), and its observed history."""

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

NO_STATUS: Final = "no status"
"""The status of a platform of which the service says none."""
HEALTH_KEPT: Final = timedelta(days=35)
"""How long observed health is kept: longer than the longest window that is shown."""


class HealthSample(Struct, frozen=True):
    """One platform's state in one answer."""

    platform: str
    status: str
    host: str | None
    group: str | None
    raw_json: str
    """The platform's object as received."""


class HealthChange(Struct, frozen=True):
    """A platform whose status differs from the last one seen."""

    platform: str
    old: str | None
    """None: the platform was not connected before."""
    new: str | None
    """None: the platform is no longer connected."""
    at: datetime


class HealthSpan(Struct, frozen=True):
    """A stretch of time in which a platform had one status."""

    platform: str
    status: str
    start: datetime
    end: datetime
    """The time up to which it is known, not necessarily until it changed."""


class PlatformHealth(Struct, frozen=True):
    """The current state of one platform."""

    platform: str
    status: str
    host: str | None
    group: str | None
    since: datetime
    """When this status was first seen without a break."""
    checked_at: datetime
    """When it was last confirmed."""
    connected: bool
    """False: the last answer no longer named the platform."""
    raw_json: str = "{}"
    before: str | None = None
    """The status before this one; None: it was not connected."""
