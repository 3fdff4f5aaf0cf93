"""Links from other tabs to the run list: a query for a platform, a repository or a stretch of time."""

from datetime import UTC, datetime, timedelta

from app.console.messages import GoToTab
from app.runs.screen_views import listed
from storage.records import RunFilter
from storage.records.repository import DEFAULT_PLATFORM


def of_platform(platform: str) -> RunFilter:
    """The runs of a platform, which is part of their repositories' labels."""
    if platform == DEFAULT_PLATFORM:
        return RunFilter(not_repositories=("*:*",))
    return RunFilter(repositories=(f"{platform}:*",))


def runs_lead(wanted: RunFilter, since: datetime | None = None, before: datetime | None = None) -> GoToTab:
    """A link to these runs, created from `since` on and before `before`; None: no limit."""
    terms = [
        *listed("status", wanted.statuses, wanted.not_statuses),
        *listed("repo", wanted.repositories, wanted.not_repositories),
    ]
    if since is not None:
        terms.append(f"since:{_time(since)}")
    if before is not None:
        # `until` would include the limit itself.
        terms.append(f"-since:{_time(before, up=True)}")
    return GoToTab("runs", " ".join(terms))


def _time(at: datetime, *, up: bool = False) -> str:
    """Format as local time with offset; as a date where it is midnight UTC."""
    whole = at.replace(microsecond=0) + timedelta(seconds=1 if up and at.microsecond else 0)
    utc = whole.astimezone(UTC)
    if (utc.hour, utc.minute, utc.second) == (0, 0, 0):
        return f"{utc:%Y-%m-%d}"
    return whole.astimezone().isoformat(timespec="seconds" if whole.second else "minutes").replace("+00:00", "Z")
