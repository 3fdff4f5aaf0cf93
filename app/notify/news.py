"""The news: the current problems in cache and ledger, and which of them `[notify] on` selects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.config import NotifySettings
from app.config.notify import DEFAULT_ROUTE
from app.notify.incidents import IncidentReader
from app.notify.notifications import (
    Notification,
    incident_notifications,
    link_notification,
    move_notifications,
    stuck_notifications,
)
from app.notify.situation import Present
from storage.cache import Cache
from storage.ledger import Ledger
from storage.records import LinkState
from storage.records.alert import Alert
from storage.records.following import StatusChange, StuckRun, Watermark

LATEST: Final = timedelta(days=1)
"""Changes that are older, because no bot was at work, are not told."""


@dataclass(frozen=True, slots=True)
class News:
    """The result of one look."""

    present: Present
    alerts: tuple[Alert, ...]
    changes: tuple[StatusChange, ...]
    """The changes of status since the last look; empty at the first look."""


@dataclass(slots=True)
class NewsReader:
    """Reads one profile's cache and ledger; changes of status only since the last look."""

    cache: Cache
    ledger: Ledger
    incidents: IncidentReader
    notify: NotifySettings
    profile: str
    _watermark: Watermark | None = None
    _completed: dict[str, datetime] = field(default_factory=dict)

    async def read(self, now: datetime, since: datetime) -> News:
        """The current problems, and those that began since then.

        Raises:
            StorageError: Cache or ledger cannot be read.
        """
        ahead = await self.cache.run_clock_ahead()
        earliest = max(since, now - LATEST)
        found = await self.cache.following.changes(self._watermark or Watermark(), since=earliest + ahead)
        for change in found.changes:
            if change.new == "completed":
                self._completed[change.repository] = change.at - ahead
        stuck, links = await self.cache.following.stuck_runs(), await self.cache.links()
        incidents = [each for each in await self.incidents.read(now) if not each.is_over]
        present = Present(
            unwell=frozenset(each.platform for each in incidents),
            bad=frozenset(each.platform for each in incidents if each.worst == "bad"),
            stuck=frozenset(each.run_id for each in stuck),
            unknown=frozenset(each.action_id for each in await self.ledger.unresolved()),
            failing=frozenset(each.subject for each in links if each.is_failing),
            completed=dict(self._completed),
        )
        hosts = incident_notifications(incidents, self._hold, now, self.profile) if "health" in self.notify.on else ()
        alerts = [
            *self._of_runs(found.changes, stuck, ahead),
            *(_alert(each, f"host:{dict(each.about)['platform']}") for each in hosts if not each.after),
            *self._of_link(links, now),
        ]
        changes = found.changes if self._watermark is not None else ()
        self._watermark = found.watermark
        return News(present, tuple(each for each in alerts if each.at >= earliest), changes)

    def _of_runs(self, changes: Sequence[StatusChange], stuck: Sequence[StuckRun], ahead: timedelta) -> Iterator[Alert]:
        for news in move_notifications(changes, self.notify.on, self.profile):
            about = dict(news.about)
            group = f"{'' if about['status'] == 'failed' else 'run:'}{about['status']}:{about['repository']}"
            yield _alert(news, group, news.at - ahead)
        if "stuck" in self.notify.on:
            for run, news in zip(stuck, stuck_notifications(stuck, self.profile), strict=True):
                yield _alert(news, f"stuck:{run.run_id}", run.active_since - ahead)

    def _of_link(self, links: Sequence[LinkState], now: datetime) -> Iterator[Alert]:
        for link in (each for each in links if each.subject == "runs" and "link" in self.notify.on):
            if (news := link_notification(link, self._hold, now, self.profile)) is not None:
                yield _alert(news, f"link:{link.subject}")

    @property
    def _hold(self) -> timedelta:
        return timedelta(seconds=self.notify.hold_s)


def _alert(news: Notification, group: str, at: datetime | None = None) -> Alert:
    facts = (group, "", DEFAULT_ROUTE, news.level, news.title, dict(news.about))
    return Alert(*facts, key=news.key, body=news.body, at=at or news.at)
