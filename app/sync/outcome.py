"""How a poll went, as the cache keeps it."""

from datetime import datetime

from app.api.errors import ApiError
from storage.records import PollOutcome
from storage.records.link import Subject


def outcome(subject: Subject, at: datetime, error: ApiError | None, *, in_lab: bool) -> PollOutcome:
    """The outcome of a poll that ended with this error, or with none."""
    if error is None:
        return PollOutcome(subject, at, in_lab=in_lab)
    return PollOutcome(subject, at, error.kind, error.message, getattr(error, "status", None), in_lab)
