"""What the header says, read from the cache."""

from datetime import datetime

from app.console.runs.views import failed_today
from storage.cache import Cache
from storage.records import LinkState, RunFilter
from widgets.frame.header_bar import Vitals


async def read_vitals(cache: Cache, before: Vitals, now: datetime) -> Vitals:
    """The vitals now.

    Raises:
        StorageError: The cache cannot be read.
    """
    links = await cache.links()
    counts = await cache.status_counts(RunFilter())
    runs_link, health_link = link_of(links, "runs"), link_of(links, "health")
    return Vitals(
        profile=before.profile,
        read_only=before.read_only,
        can_switch=before.can_switch,
        files_fail=before.files_fail,
        runs_link=runs_link,
        working=counts.get("working", 0),
        queued=counts.get("queued", 0),
        failed_today=await cache.count(failed_today(now)),
        health=await cache.health(),
        health_is_stale=health_link is not None and health_link.is_failing,
        known=bool(counts) or (runs_link is not None and runs_link.last_ok_at is not None),
    )


def link_of(links: tuple[LinkState, ...], subject: str) -> LinkState | None:
    """The state of one subject's link."""
    return next((link for link in links if link.subject == subject), None)
