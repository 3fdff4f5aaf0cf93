"""One page of the run list (spec 2.5)."""

from dataclasses import dataclass

from storage.records.run import Run


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, newest first, and the way to the next page."""

    runs: tuple[Run, ...]
    next_token: str | None
    """None: this was the last page (the service may say so with null, an empty string or by leaving it out)."""
    total_count: int | None = None
    """As received; never trusted for paging, since the spec does not say what it counts."""
