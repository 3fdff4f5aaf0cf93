"""The Health tab: the code hosts now and over time, our link to the service, and the token, each by itself."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import ItemGrid, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from app.console.base_screen import BaseScreen
from app.console.coalesced_task import CoalescedTask
from app.console.health.cards import (
    LONGEST_GAP,
    LONGEST_WINDOW,
    Past,
    Reader,
    host_card,
    incident_facts,
    link_card,
    no_hosts,
    no_incidents,
    token_card,
)
from app.console.session import Session
from app.console.troubles import UNREADABLE
from app.events import CacheChangedElsewhere, Event, HealthChanged, LinkChanged
from storage.records import LinkState, PlatformHealth
from storage.records.activity import ActivityFilter, PollSpan
from widgets.frame.notice import NoticePage
from widgets.health import MOST_POLLS, Card, CardFacts, HealthList, incident_lines, poll_lines

CARD_CELLS = 46


class HealthScreen(BaseScreen):
    """A card for each code host, and under them those for what is ours."""

    TAB = "health"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "refresh", "refresh", tooltip="Ask the service now", id="app.refresh"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._hosts: tuple[PlatformHealth, ...] | None = None
        self._links: tuple[LinkState, ...] = ()
        self._pasts: dict[str, Past] = {}
        """By platform."""
        self._polls: tuple[PollSpan, ...] = ()
        """Newest first."""
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        """Two groups of cards."""
        yield NoticePage(id="health-nothing")
        with VerticalScroll(id="health"):
            yield Static("Code hosts", classes="section", markup=False)
            yield ItemGrid(id="hosts", min_column_width=CARD_CELLS, stretch_height=True)
            yield Static("Incidents, 30 days", classes="section", markup=False)
            yield HealthList(incident_lines, id="incidents")
            yield Static("Between this console and the service", classes="section", markup=False)
            yield ItemGrid(Card(id="link"), Card(id="token"), min_column_width=CARD_CELLS, stretch_height=True)
            yield Static("Polls", classes="section", markup=False)
            yield HealthList(poll_lines, id="polls")

    def on_mount(self) -> None:
        """Read what is known."""
        self.query_one(NoticePage).show(UNREADABLE)
        self.query_one("#health").focus()
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read again what changed."""
        if isinstance(event, HealthChanged | LinkChanged | CacheChangedElsewhere):
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Move the ages."""
        self._show(now)

    def show_trouble(self) -> None:
        """The banner; and while our own files keep every answer away, no card waits for one."""
        super().show_trouble()
        was_answered = any(link.last_ok_at is not None for link in self._links)
        self.set_class(self.session.storage_trouble is not None and not was_answered, "-unreadable")

    def action_refresh(self) -> None:
        """Ask the service now."""
        self.session.poll_soon()

    def action_page(self, pages: int) -> None:
        """Scroll by a page."""
        page = self.query_one("#health")
        page.scroll_relative(y=pages * (page.size.height - 1), animate=False)

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one("#health").scroll_relative(y=lines, animate=False)

    async def _read(self) -> None:
        engine = self.session.engine
        if engine is None:
            return
        reader, now = self._past_reader, self.session.clock()
        hosts, self._links = await engine.cache.health(), await engine.cache.links()
        spans = await engine.cache.health_spans(now - LONGEST_WINDOW, longest_gap=reader.longest_gap)
        self._polls = (await engine.cache.polls(ActivityFilter(), limit=MOST_POLLS)).newest
        self._hosts, self._pasts = hosts, reader.pasts(hosts, spans, now)
        await self._lay_out(self._hosts)
        self._show(self.session.clock())

    async def _lay_out(self, hosts: tuple[PlatformHealth, ...]) -> None:
        """One card for each host, or one that says why there is none; cards stay where their hosts stay."""
        grid = self.query_one("#hosts", ItemGrid)
        cards = list(grid.query(Card))
        wanted = max(1, len(hosts))
        if len(cards) > wanted:
            await grid.remove_children(cards[wanted:])
        if len(cards) < wanted:
            await grid.mount_all(Card() for _ in range(wanted - len(cards)))

    def _show(self, now: datetime) -> None:
        if self._hosts is None:
            return
        vitals = self.session.vitals
        self.query_one("#link", Card).show(link_card(self._links, self.session.patience, now, vitals.wait))
        self.query_one("#token", Card).show(token_card(self._links, now))
        for card, facts in zip(self.query_one("#hosts").query(Card), self._host_facts(now), strict=False):
            card.show(facts)
        words = self.session.healthy_words
        found = incident_facts(self._pasts, words, now - LONGEST_WINDOW)
        self.query_one("#incidents", HealthList).show(found, no_incidents(self._pasts), now)
        self.query_one("#polls", HealthList).show(self._polls, "The service was not asked yet.", now)

    def _host_facts(self, now: datetime) -> list[CardFacts]:
        is_stale = self.session.vitals.health_is_stale
        words = self.session.healthy_words
        hosts = self._hosts or ()
        cards = [host_card(host, self._pasts[host.platform], words, now, is_stale=is_stale) for host in hosts]
        return cards or [no_hosts(self._links)]

    @property
    def _past_reader(self) -> Reader:
        session = self.session
        hold = timedelta(seconds=session.settings.notify.hold_s)
        # Samples that are meant to be far apart still speak for the time between them.
        gap = max(LONGEST_GAP, timedelta(seconds=3 * session.profile.poll.health_s))
        return Reader(session.healthy_words, hold, gap)
