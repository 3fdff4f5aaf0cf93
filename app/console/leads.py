"""Where rows of other tabs lead: a query of the list for a platform, a repository or a stretch of time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from app.console.messages import GoToTab
from app.console.runs.query_line import listed
from storage.records import RunFilter
from storage.records.repository import DEFAULT_PLATFORM


def of_platform(platform: str) -> RunFilter:
    """The runs on the repositories of a platform, which their labels name."""
    if platform == DEFAULT_PLATFORM:
        return RunFilter(not_repositories=("*:*",))
    return RunFilter(repositories=(f"{platform}:*",))


def runs_lead(wanted: RunFilter, since: datetime | None = None, before: datetime | None = None) -> GoToTab:
    """To the list of these runs, created from `since` on and before `before`; None: without that limit."""
    return GoToTab("runs", " ".join(_terms(wanted, since, before)))


def _terms(wanted: RunFilter, since: datetime | None, before: datetime | None) -> Iterator[str]:
    yield from listed("status", wanted.statuses, wanted.not_statuses)
    yield from listed("repo", wanted.repositories, wanted.not_repositories)
    if since is not None:
        yield f"since:{_time(since)}"
    if before is not None:
        # Nothing is created in between: `until` would take the limit itself along.
        yield f"-since:{_time(before, up=True)}"


def _time(at: datetime, *, up: bool = False) -> str:
    """In local time with its offset; a date where that is midnight in UTC."""
    whole = at.replace(microsecond=0) + timedelta(seconds=1 if up and at.microsecond else 0)
    utc = whole.astimezone(UTC)
    if (utc.hour, utc.minute, utc.second) == (0, 0, 0):
        return f"{utc:%Y-%m-%d}"
    return whole.astimezone().isoformat(timespec="seconds" if whole.second else "minutes").replace("+00:00", "Z")
