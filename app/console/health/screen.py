"""The Health tab: the code hosts now and over time, our link to the service, and the token."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from app.console.base.screen import BaseScreen
from app.console.health.history import (
    LONGEST_GAP,
    LONGEST_WINDOW,
    NOTHING_SEEN,
    PlatformHistory,
    SampleReader,
    goes_on,
    recent_incidents,
)
from app.console.health.rows import (
    FailedByIncident,
    host_row,
    incident_facts,
    incident_key,
    link_row,
    no_hosts,
    no_incidents,
    summary,
    token_row,
)
from app.console.leads import of_platform, runs_lead
from app.console.messages import GoToTab
from app.console.runs.run_actions import ids_of, show_many, with_engine
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import UNREADABLE
from app.events import CacheChangedElsewhere, Event, HealthChanged, LinkChanged
from app.health import Incident
from app.query import parse
from storage.cache import Cache
from storage.records import ACTIVE_STATUSES, LinkState, PlatformHealth, RunFilter, RunSort
from storage.records.activity import ActivityFilter, PollSpan
from storage.records.insights import FailedRuns
from widgets.frame.notice import NoticePage
from widgets.health import BLANK, MOST, MOST_POLLS, HostFacts, host_block, incident_blocks, poll_blocks, titled
from widgets.lead_list import Block, LeadList

if TYPE_CHECKING:
    from app.engine import Engine

DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
"""How far back the runs of an unhealthy host are shown at least."""
LINK_POLLS: Final = 2_000
"""The newest stretches of polls that make up the link's past."""
SETTLED: Final = timedelta(hours=1)
"""This long after an incident its failed runs are not counted again."""


@dataclass(frozen=True, slots=True)
class HealthView:
    """The data of the tab, as read at one time."""

    hosts: tuple[PlatformHealth, ...] = ()
    links: tuple[LinkState, ...] = ()
    pasts: dict[str, PlatformHistory] = field(default_factory=dict)
    """The history of each platform."""
    link_past: PlatformHistory = NOTHING_SEEN
    under_way: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Active runs by platform and status."""
    incidents: tuple[Incident, ...] = ()
    """The incidents, lasting ones first, then the newest."""
    failed: FailedByIncident = field(default_factory=dict)
    polls: tuple[PollSpan, ...] = ()
    """The polls, newest first."""
    statuses: tuple[str, ...] = ()
    """All statuses ever seen."""


class HealthScreen(BaseScreen):
    """A row for each code host, for our link and for the token, then the incidents and the polls."""

    TAB = "health"
    CSS = """
    #health-nothing, HealthScreen.-unreadable #health { display: none; }
    HealthScreen.-unreadable #health-nothing { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("T", "retry", "retry failed", tooltip="The failed runs of this row", id="health.retry"),
        Binding(
            "exclamation_mark", "incident", "next incident", key_display="!", tooltip="What broke", id="health.incident"
        ),
        Binding("r", "refresh", "refresh", tooltip="Ask the service now", id="app.refresh"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._view: HealthView | None = None
        self._list = LeadList(id="health")
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """Compose one list."""
        yield NoticePage(id="health-nothing")
        yield self._list

    def on_mount(self) -> None:
        """Read the data."""
        self.query_one(NoticePage).show(UNREADABLE)
        self._list.focus()
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read again after an event; while another screen is shown, `on_screen_resume` does that later."""
        if isinstance(event, HealthChanged | LinkChanged | CacheChangedElsewhere) and self.is_current:
            self._reader.ask()

    def on_screen_resume(self) -> None:
        """Read what changed while another screen was shown."""
        self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        self._show(now)

    def go_to(self, target: str) -> None:
        """Put the cursor on this platform."""
        self._list.seek(f"host:{target}")

    @property
    def bookmark(self) -> str:
        """The row under the cursor."""
        return self._key

    def return_to(self, bookmark: str) -> None:
        """Put the cursor on that row."""
        self._list.seek(bookmark)

    def show_trouble(self) -> None:
        """Update the banner; while our own files fail, no row waits for an answer."""
        super().show_trouble()
        was_answered = any(link.last_ok_at is not None for link in (self._view or HealthView()).links)
        self.set_class(self.session.vitals.storage_trouble is not None and not was_answered, "-unreadable")

    def action_refresh(self) -> None:
        """Poll the service now."""
        self.session.poll_soon()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer a retry only on rows that lead to runs, and the next incident only if there is one."""
        view = self._view or HealthView()
        if action == "incident":
            return bool(view.incidents)
        if action == "retry":
            is_here = self._lead(self._key) is not None and not self.session.profile.read_only
            return "failed" in view.statuses and (is_here or None)
        return super().check_action(action, parameters)

    def action_incident(self) -> None:
        """Put the cursor on the next incident; from the last one, on the first."""
        keys = [incident_key(one) for one in (self._view or HealthView()).incidents[:MOST]]
        here = keys.index(self._key) if self._key in keys else -1
        self._list.seek(keys[(here + 1) % len(keys)])

    def action_retry(self) -> None:
        """Send the instructions of this row's failed runs again, after a confirmation."""
        lead = self._lead(self._key)
        if lead is not None:
            runs = replace(parse(lead.target or "", self.session.run_now()).filter, statuses=("failed",))
            with_engine(self, partial(self._retry, runs), "form")

    async def _retry(self, runs: RunFilter, engine: "Engine") -> None:
        if ids := await ids_of(self.session, engine, runs, RunSort()):
            await show_many(self, engine, "retry", ids, lambda _: self.session.poll_soon())
        elif not await engine.cache.count(runs):
            self.session.notify("No run of this row failed.")

    @property
    def _key(self) -> str:
        """The key of the row under the cursor; empty: there is none."""
        return "" if self._list.block is None else self._list.block.key

    @on(LeadList.Highlighted)
    def _highlighted(self) -> None:
        self.refresh_bindings()

    @on(LeadList.Chosen)
    def _chosen(self, message: LeadList.Chosen) -> None:
        if (lead := self._lead(message.key)) is not None:
            self.post_message(lead)

    def _lead(self, key: str) -> GoToTab | None:
        """Link to the runs of a host since its last change, or of a day; or to the failed runs of an incident."""
        view, ahead = self._view or HealthView(), self._ahead
        for host in view.hosts:
            if key == f"host:{host.platform}":
                now, is_well = self.session.clock(), host.status.casefold() in self.session.healthy_words
                since = now - DAY if is_well else min(host.since, now - HOUR)
                return runs_lead(of_platform(host.platform), since + ahead)
        for one in view.incidents:
            if key == incident_key(one):
                failed = view.failed.get((one.platform, one.start), FailedRuns())
                start, end = one.start + ahead, (one.recovered_at or one.until) + ahead
                first = min(start, failed.oldest_at or start)
                return runs_lead(of_platform(one.platform), first, None if goes_on(one) else end)
        return None

    async def _read(self) -> None:
        engine = self.session.engine
        if engine is None:
            return
        before, now = self._view or HealthView(), self.session.clock()
        self._view = await read_health(engine.cache, self._past_reader, now, self._ahead, before)
        self._show(self.session.clock())
        self.refresh_bindings()

    def _show(self, now: datetime) -> None:
        if self._view is not None:
            self._list.show(partial(self._blocks, self._view, now))

    def _blocks(self, view: HealthView, now: datetime, width: int) -> list[Block]:
        # Without runs there is nothing to link to.
        return [block if view.statuses else replace(block, leads=False) for block in self._drawn(view, now, width)]

    def _drawn(self, view: HealthView, now: datetime, width: int) -> Iterator[Block]:
        session = self.session
        rows = [
            *(self._host_facts(view, now) or [no_hosts(view.links)]),
            link_row(view.links, view.link_past, session.vitals.timing, now, session.vitals.now.wait),
            token_row(view.links, now),
        ]
        yield Block((((summary(view.hosts, view.links, session.healthy_words, now), "quiet"),),))
        for row in rows:
            yield from (host_block(row, width), BLANK)
        incidents = [incident_facts(one, view.failed, session.healthy_words) for one in view.incidents]
        yield from titled("Incidents, 30 days", [*incident_blocks(incidents, now, width)], no_incidents(view.pasts))
        yield from titled("Polls", [*poll_blocks(view.polls, now, width)], "The service was not asked yet.")

    def _host_facts(self, view: HealthView, now: datetime) -> list[HostFacts]:
        is_stale, words = self.session.vitals.now.health_is_stale, self.session.healthy_words
        return [
            host_row(
                host,
                view.pasts.get(host.platform, NOTHING_SEEN),
                words,
                now,
                view.under_way.get(host.platform, {}),
                is_stale=is_stale,
            )
            for host in view.hosts
        ]

    @property
    def _ahead(self) -> timedelta:
        """How far the clock of the runs, which also dates the hosts, is ahead of ours."""
        return self.session.run_now() - self.session.clock()

    @property
    def _past_reader(self) -> SampleReader:
        session = self.session
        hold = timedelta(seconds=session.settings.notify.hold_s)
        # Samples meant to be far apart still cover the time between them.
        gap = max(LONGEST_GAP, timedelta(seconds=3 * session.profile.poll.health_s))
        return SampleReader(session.healthy_words, hold, gap)


async def read_health(
    cache: Cache, reader: SampleReader, now: datetime, ahead: timedelta, before: HealthView
) -> HealthView:
    """Read the data; the runs' clock is `ahead` of ours. Incidents long over keep their figures of `before`.

    Raises:
        StorageError: The cache cannot be read.
    """
    since = now - LONGEST_WINDOW
    # Disconnected hosts come last.
    hosts = tuple(sorted(await cache.health(), key=lambda host: not host.connected))
    pasts = reader.pasts(hosts, await cache.health_spans(since, longest_gap=reader.longest_gap), now)
    incidents = recent_incidents(pasts, since)
    failed: dict[tuple[str, datetime], FailedRuns] = {}
    for one in incidents[:MOST]:
        key, end = (one.platform, one.start), one.recovered_at or one.until
        if key in before.failed and one in before.incidents and end < now - SETTLED:
            failed[key] = before.failed[key]
        else:
            failed[key] = await cache.failed_between(of_platform(one.platform), one.start + ahead, end + ahead)
    polls = await cache.polls(ActivityFilter(kinds=("poll.runs",), since=since), limit=LINK_POLLS)
    return HealthView(
        hosts,
        await cache.links(),
        pasts,
        reader.link_past(polls.newest, now),
        {host.platform: await _under_way(cache, host.platform) for host in hosts if host.connected},
        incidents,
        failed,
        (await cache.polls(ActivityFilter(), limit=MOST_POLLS)).newest,
        await cache.known_statuses(),
    )


async def _under_way(cache: Cache, platform: str) -> dict[str, int]:
    wanted = of_platform(platform)
    return {status: await cache.count(replace(wanted, statuses=(status,))) for status in reversed(ACTIVE_STATUSES)}
