"""The Health tab: the code hosts now and in the past, our link to the service, and the token."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from math import floor
from typing import ClassVar, Final

from msgspec import Struct, field
from msgspec.structs import replace
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import OptionList

from app.console.base import TABS_CSS, BaseScreen
from app.console.feeds import CoalescedTask
from app.console.session import GoToTab, Session
from app.console.troubles import UNREADABLE
from app.engine.engine import Engine
from app.engine.events import Event, FilesChangedElsewhere, HealthChanged, LinkChanged
from app.engine.text import plural, safe_text
from app.engine.times import age, ago, clock_time, roughly_ago, span
from app.health.facts import (
    FLAPPING,
    MAX_WINDOW,
    NOTHING_SEEN,
    OUR_LINK,
    WINDOWS,
    Incident,
    PlatformHistory,
    Uptime,
    level,
    link_past,
    longest_gap,
    past_of,
)
from app.health.incidents import IncidentReader
from app.runs.query import parse
from app.runs.screen_actions import ids_of, show_many, using_engine
from app.runs.screen_views import of_platform, runs_lead
from storage.records import ACTIVE_STATUSES, LinkState, PlatformHealth, RunSort, link_of
from storage.records.activity import PollSpan, Wait
from storage.records.error_kinds import error_kind
from storage.records.health import NO_STATUS
from storage.records.insights import FailedRuns
from widgets.frame import NoticePage, PollTiming, freshness, next_poll
from widgets.health import BLANK, HostFacts, incident_row, poll_row, titled_section
from widgets.kit.badges import STYLES, Badge, health_badge, run_badge
from widgets.kit.choice_lists import LeadList, LeadRow
from widgets.kit.line_text import SteadyText

MAX_INCIDENTS: Final = 20
"""The most incidents that are shown; further ones are only counted."""
MAX_POLLS: Final = 100
WAIT: Final = "Polling continues; press ctrl+r to ask now."
_HOST_ADVICE: Final = {
    NO_STATUS: "The service gives no status for this host.",
    "unauthorized": "The service has lost access to this host: connect it again in the organization's settings.",
    "unreachable": "The service cannot reach this host: check the host, its address and its firewall.",
}
_OTHER_ADVICE: Final = "The service has trouble with this host: check the host's own status. Runs on it may fail."
FLAPS: Final = 4


def link_row(
    links: tuple[LinkState, ...], past: PlatformHistory, timing: PollTiming, now: datetime, wait: Wait | None = None
) -> HostFacts:
    """The row of our link and its next poll; the link is up even if the service refuses the token."""
    runs = link_of(links, "runs")
    subjects: list[str] = []
    for link in links:
        polls = f"{link.failures} polls" if link.failures > 1 else "1 poll"
        if link.failing_since is not None:
            word = f"{error_kind(link.error_kind).word} since {clock_time(link.failing_since, now)}, {polls}"
        else:
            word = "not asked yet"
            if link.last_ok_at is not None:
                word = f"answered {roughly_ago(link.last_ok_at, now)}"
        subjects.append(f"{link.subject} {word}")
    row = HostFacts(
        "link",
        OUR_LINK,
        Badge("◌", "connecting…", "wait"),
        about=safe_text(" · ".join(subjects)),
        history=past.history,
        uptime=figures(past.uptimes),
    )
    if runs is None or (runs.last_ok_at is None and not runs.is_failing):
        return row
    if runs.failing_since is None:
        badge = freshness(runs, timing, now, wait)
        return replace(row, badge=Badge("✓", "up", "good") if badge.tone == "good" else badge)
    if runs.error_kind == "token":
        return replace(row, badge=Badge("◌", "not asked", "wait"), since="there is no usable token")
    kind = error_kind(runs.error_kind)
    if kind.concerns == "token":
        return replace(row, badge=Badge("✓", "answers", "good"), since=kind.word)
    since = f"since {clock_time(runs.failing_since, now)} · {next_poll(wait, now)}"
    reason = safe_text(runs.error_message or "", limit=200)
    advice = f"{kind.fix} {WAIT}".strip() if kind.concerns == "link" else kind.fix or WAIT
    return replace(row, badge=Badge("✗", kind.word, "bad"), since=since, note=f"{reason}\n{advice}".strip())


def token_row(links: tuple[LinkState, ...], now: datetime) -> HostFacts:
    """The row of the token: whether the service accepts it, and whether its scopes are sufficient."""
    runs = link_of(links, "runs")
    accepted = HostFacts("token", "token", Badge("✓", "accepted", "good"), since="can list runs")
    kind = error_kind(None if runs is None else runs.error_kind)
    if runs is None or (runs.last_ok_at is None and kind.concerns != "token"):
        return replace(accepted, badge=Badge("◌", "not known yet", "wait"), since="until the service answers")
    since = f"since {clock_time(runs.failing_since, now)}" if runs.failing_since else ""
    if kind.concerns == "token":
        words = {"forbidden": "not permitted (403)", "not_authorized": "refused (401)"}
        note = ""
        if not kind.fix or runs.error_kind == "token":
            note = safe_text(runs.error_message or "", limit=300)
        badge = Badge("✗", words.get(runs.error_kind or "", "missing"), "bad")
        return replace(accepted, badge=badge, since=since, note=note or kind.fix)
    if runs.is_failing and runs.last_ok_at is not None:
        since = f"when last asked, {ago(runs.last_ok_at, now)}; the link is down"
        return replace(accepted, since=since, is_stale=True)
    return accepted


def incident_key(incident: Incident) -> str:
    return f"incident:{incident.platform}:{incident.start.isoformat()}"


def figures(uptimes: Sequence[Uptime]) -> tuple[str, ...]:
    """The uptimes of `WINDOWS`. A share of less than a day would claim too much."""
    texts: list[str] = []
    if (longest_s := max(up.known_s for up in uptimes)) < DAY.total_seconds():
        return (f"observed for {span(longest_s)}",) if longest_s else ()
    for (name, _), up in zip(WINDOWS, uptimes, strict=True):
        if up.share is not None:
            # Rounded down, so that 100% means no failure at all.
            share = "100%" if up.share == 1 else f"{floor(up.share * 10_000) / 100:.2f}%"
            texts.append(f"{name} {share} of {span(up.known_s)} seen")
    return tuple(texts)


DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)


class HealthView(Struct, frozen=True):
    """The tab's data, as of one read of the cache."""

    hosts: tuple[PlatformHealth, ...] = ()
    links: tuple[LinkState, ...] = ()
    pasts: dict[str, PlatformHistory] = field(default_factory=dict)
    link_past: PlatformHistory = NOTHING_SEEN
    under_way: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Active runs by platform and status."""
    incidents: tuple[Incident, ...] = ()
    """Ongoing ones first, then the newest."""
    failed: Mapping[tuple[str, datetime], FailedRuns] = field(default_factory=dict)
    polls: tuple[PollSpan, ...] = ()
    """Newest first."""
    statuses: tuple[str, ...] = ()


NOT_READ: Final = HealthView()


class HealthScreen(BaseScreen):
    """A row for each code host, for our link and for the token, then the incidents and the polls."""

    TAB = "health"
    CSS_PATH = TABS_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("T", "retry", "retry failed", tooltip="Retry the failed runs of this row", id="health.retry"),
        Binding(
            "exclamation_mark", "incident", "next incident", tooltip="Go to the next incident", id="health.incident"
        ),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._view = NOT_READ
        self._list = LeadList(id="health")
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        yield NoticePage(id="health-nothing")
        yield SteadyText(id="health-summary")
        yield self._list

    def on_mount(self) -> None:
        self._list.focus()
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Reload after an event; `on_screen_resume` does so for a hidden tab."""
        if isinstance(event, HealthChanged | LinkChanged | FilesChangedElsewhere) and self.is_current:
            self._reader.ask()

    def on_screen_resume(self) -> None:
        self._reader.ask()

    def tick(self, now: datetime) -> None:
        self._show(now)

    def go_to(self, target: str) -> None:
        self._list.seek(f"host:{target}")

    @property
    def bookmark(self) -> str:
        return "" if self._list.row is None else self._list.row.key

    def return_to(self, bookmark: str) -> None:
        self._list.seek(bookmark)

    def show_trouble(self) -> None:
        """Update the banner; if our files fail before the first answer, show a notice instead of the rows."""
        super().show_trouble()
        self.query_one(NoticePage).notice = self.session.vitals.storage_trouble or UNREADABLE
        was_answered = any(link.last_ok_at is not None for link in self._view.links)
        self.set_class(self.session.vitals.storage_trouble is not None and not was_answered, "-unreadable")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "incident":
            return bool(self._view.incidents)
        if action == "retry":
            is_here = self._lead(self.bookmark) is not None and not self.session.profile.read_only
            return "failed" in self._view.statuses and (is_here or None)
        return super().check_action(action, parameters)

    def action_incident(self) -> None:
        keys = [incident_key(incident) for incident in self._view.incidents[:MAX_INCIDENTS]]
        index = keys.index(self.bookmark) if self.bookmark in keys else -1
        self._list.seek(keys[(index + 1) % len(keys)])

    @using_engine("form")
    async def action_retry(self, engine: Engine) -> None:
        if (lead := self._lead(self.bookmark)) is None:
            return
        runs = replace(parse(lead.target or "", self.session.run_now()).filter, statuses=("failed",))
        if ids := await ids_of(self.session, engine, runs, RunSort()):
            await show_many(self, engine, "retry", ids)
            self.session.poll_soon()
        elif not await engine.cache.count(runs):
            self.session.notify("No failed run in this row.")

    @on(OptionList.OptionHighlighted)
    def update_keys(self) -> None:
        self.refresh_bindings()

    @on(OptionList.OptionSelected)
    def open_runs(self, message: OptionList.OptionSelected) -> None:
        if (lead := self._lead(message.option_id or "")) is not None:
            self.post_message(lead)

    def _lead(self, key: str) -> GoToTab | None:
        """Link to a host's runs of the last day or since its outage began, or to an incident's failed runs."""
        view, ahead = self._view, self.session.vitals.run_clock_ahead
        for host in view.hosts:
            if key == f"host:{host.platform}":
                now = self.session.clock()
                is_well = level(host.status, self.session.healthy_words) == "well"
                since = now - DAY if is_well else min(host.since, now - HOUR)
                return runs_lead(of_platform(host.platform), since + ahead)
        for incident in view.incidents:
            if key == incident_key(incident) and incident.platform != OUR_LINK:
                failed = view.failed.get((incident.platform, incident.start), FailedRuns())
                start, end = incident.failures(self.session.profile.poll.health_s)
                first = min(start + ahead, failed.oldest_at or start + ahead)
                return runs_lead(of_platform(incident.platform), first, None if end is None else end + ahead)
        return None

    async def _read(self) -> None:
        engine = self.session.engine
        if engine is None:
            return
        session = self.session
        reader = IncidentReader.of(engine.cache, session.settings, session.profile)
        self._view = await read_health(reader, session.clock(), session.vitals.run_clock_ahead, self._view)
        self._show(session.clock())
        self.refresh_bindings()

    def _show(self, now: datetime) -> None:
        if (view := self._view) is not NOT_READ:
            words = "Code hosts, and the link to the service"
            levels = [level(host.status, self.session.healthy_words) for host in view.hosts if host.connected]
            if levels:
                unknown = levels.count(None)
                counts = ((len(levels) - levels.count("well") - unknown, "unhealthy"), (unknown, "unknown"))
                states = ", ".join(f"{count} {word}" for count, word in counts if count) or "all healthy"
                health = link_of(view.links, "health")
                checked = ""
                if health is not None and health.last_ok_at is not None:
                    asked = " when last asked," if health.is_failing else " · asked"
                    checked = f"{asked} {roughly_ago(health.last_ok_at, now)}"
                words = f"{plural(len(levels), 'code host')}, {states}{checked}"
            self.query_one("#health-summary", SteadyText).update(Content.styled(safe_text(words), STYLES["quiet"]))
            # Without runs there is nothing to link to.
            is_leading = bool(view.statuses)
            self._list.show(
                lambda width: [replace(row, leads=row.leads and is_leading) for row in self._rows(view, now, width)]
            )

    def _rows(self, view: HealthView, now: datetime, width: int) -> Iterator[LeadRow]:
        session = self.session
        if reason := session.vitals.files_trouble:
            files = HostFacts("files", "our files", Badge("✗", "unusable", "bad"), note=reason)
            yield from (files.row(width), BLANK)
        for host in view.hosts:
            yield from (self._host_row(view, host, now).row(width), BLANK)
        if not view.hosts:
            yield from (no_hosts_row(link_of(view.links, "health")).row(width), BLANK)
        link = link_row(view.links, view.link_past, session.vitals.timing, now, session.vitals.now.wait)
        yield from (link.row(width), BLANK, token_row(view.links, now).row(width), BLANK)
        incidents = []
        for incident in view.incidents[:MAX_INCIDENTS]:
            failed = view.failed.get((incident.platform, incident.start), FailedRuns()).number
            count = None if incident.platform == OUR_LINK else failed
            incidents.append(incident_row(incident, count, session.healthy_words, now, incident_key(incident)))
        if (more := len(view.incidents) - MAX_INCIDENTS) > 0:
            incidents.append(LeadRow(Content.styled(f"and {more} older ones", STYLES["quiet"])))
        seen_s = max((past.uptimes[-1].known_s for past in view.pasts.values()), default=0.0)
        none = "The hosts were not observed yet."
        if seen_s:
            none = f"None in the last 30 days, observed for {span(seen_s)}."
        yield from titled_section("Incidents, 30 days", incidents, none)
        polls = [poll_row(poll, now, width) for poll in view.polls[:MAX_POLLS]]
        yield from titled_section("Polls", polls, "The service was not polled yet.")

    def _host_row(self, view: HealthView, host: PlatformHealth, now: datetime) -> HostFacts:
        past = view.pasts.get(host.platform, NOTHING_SEEN)
        checked = roughly_ago(host.checked_at, now)
        lasts = age(host.since, now)
        since = f"for {'a moment' if lasts == 'now' else lasts} · checked {checked}"
        badge = health_badge(host.status, self.session.healthy_words)
        note = _HOST_ADVICE.get(host.status.casefold(), _OTHER_ADVICE)
        if not host.connected:
            badge = Badge("⊘", "not connected", "quiet")
            note = "Connect it in the organization's settings; it then reappears."
        elif badge.tone == "good":
            note = ""
        is_stale = self.session.vitals.now.health_is_stale
        if is_stale:
            since = f"when last asked, {checked}"
            note = "No newer answer, for the reason below: this is the last known state."
        warning = ""
        if past.flips >= FLAPS and host.connected:
            warning = f"⇄ flapping: {past.flips} changes in {span(FLAPPING.total_seconds())[:-3]}"
        under_way = view.under_way.get(host.platform, {})
        return HostFacts(
            f"host:{host.platform}",
            safe_text(host.platform, limit=30),
            badge,
            since=since,
            about=safe_text(" · ".join(safe_text(part, limit=120) for part in (host.host, host.group) if part)),
            under_way=tuple((run_badge(status), count) for status, count in under_way.items()),
            history=past.history,
            uptime=figures(past.uptimes),
            warning=warning,
            note=note,
            is_stale=is_stale or not host.connected,
            leads=True,
        )


def no_hosts_row(health: LinkState | None) -> HostFacts:
    """The row that stands for all code hosts while none is known; `health` is the link that reports them."""
    badge = Badge("◌", "asking…", "wait")
    note = ""
    if health is not None and health.last_ok_at is not None:
        badge = Badge("○", "none connected", "quiet")
        note = "Connect a code host in the organization's settings; it then appears here."
    elif health is not None and health.is_failing:
        badge = Badge("◌", "not known", "wait")
        note = "The service has not answered yet; see below."
    return HostFacts("", "code hosts", badge, note=note)


async def read_health(reader: IncidentReader, now: datetime, ahead: timedelta, before: HealthView) -> HealthView:
    """Read the data, with final counts of incidents from `before`; the service's clock is `ahead` by this much."""
    cache = reader.cache
    words = reader.healthy_words
    hold = reader.hold
    since = now - MAX_WINDOW
    # Bad, impaired, unknown and healthy hosts, then those no longer connected.
    levels = ("bad", "impaired", None, "well")
    ranks = {
        host: levels.index(level(host.status, words)) if host.connected else len(levels)
        for host in await cache.health()
    }
    hosts = tuple(sorted(ranks, key=ranks.__getitem__))
    grouped = groupby(await reader.spans(since), lambda span: span.platform)
    spans = {platform: tuple(own) for platform, own in grouped}
    pasts = {
        host.platform: past_of(spans.get(host.platform, ()), now, words, hold, connected=host.connected)
        for host in hosts
    }
    link = link_past(await cache.polls(2_000, "runs", since), now, hold, longest_gap(reader.health_s))
    every = (incident for past in (*pasts.values(), link) for incident in past.incidents)
    recent = [incident for incident in every if incident.end >= since]
    incidents = tuple(sorted(recent, key=lambda incident: (incident.is_ongoing, incident.start), reverse=True))
    failed: dict[tuple[str, datetime], FailedRuns] = {}
    for incident in incidents[:MAX_INCIDENTS]:
        platform = incident.platform
        key = (incident.platform, incident.start)
        start, end = incident.failures(reader.health_s)
        # An hour after an incident, its count of failed runs is final.
        if key in before.failed and incident in before.incidents and end is not None and end < now - HOUR:
            failed[key] = before.failed[key]
        elif platform != OUR_LINK:
            failed[key] = await cache.failed_between(of_platform(platform), start + ahead, (end or now) + ahead)
    return HealthView(
        hosts,
        await cache.links(),
        pasts,
        link,
        {
            host.platform: {
                status: await cache.count(replace(of_platform(host.platform), statuses=(status,)))
                for status in reversed(ACTIVE_STATUSES)
            }
            for host in hosts
            if host.connected
        },
        incidents,
        failed,
        await cache.polls(MAX_POLLS),
        await cache.known_statuses(),
    )
