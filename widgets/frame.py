"""The frame of every screen: the header, the tabs, the keys, and notices of a trouble or a gap."""

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import IntEnum
from math import ceil
from textwrap import wrap
from typing import Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive, var
from textual.widget import Widget
from textual.widgets import Static

from app.engine.text import safe_text
from app.engine.times import age, ago, roughly_ago, span
from storage.records import LinkState, PlatformHealth
from storage.records.activity import Wait
from storage.records.error_kinds import error_kind
from widgets.kit.badges import STYLES, Badge, ProfileMark, Tone, health_badge
from widgets.kit.cells import fit, shorten
from widgets.kit.line_text import ClickableLine, clickable


class PollTiming(Struct, frozen=True):
    """When polling began and how often it happens, which decides what counts as live."""

    opened_at: datetime
    """When this console started polling."""
    period_s: float

    @property
    def due_after_s(self) -> float:
        """The age from which a response is overdue: two polls, or one and the seconds that a slow answer takes."""
        return max(2 * self.period_s, self.period_s + 5.0)

    @property
    def late_after_s(self) -> float:
        """The age from which facts are stale, even if no poll failed: four polls, however short the period is."""
        return max(45.0, 4 * self.period_s)


def freshness(link: LinkState | None, timing: PollTiming, now: datetime, wait: Wait | None = None) -> Badge:
    """The state of one subject's facts: connecting, live, or their age, with the reason if there is one."""
    is_limited = wait is not None and wait.until > now and wait.reason != "service_down"
    if link is not None and link.is_failing:
        kind = error_kind(link.error_kind)
        refused = kind.concerns == "token"
        word = kind.word
        if link.last_ok_at is not None and (since := age(link.last_ok_at, now)) != "now":
            word = f"no answer for {since}" if kind.concerns == "link" else f"{since} old: {word}"
        return Badge("✗" if refused else "◌", word, "bad" if refused else "warn")
    if link is None or link.last_ok_at is None:
        return Badge("◌", "rate limit" if is_limited else "connecting…", "wait")
    since = age(link.last_ok_at, now)
    age_s = (now - link.last_ok_at).total_seconds()
    is_young = age_s <= timing.late_after_s
    if age_s < timing.due_after_s:
        return Badge("●", f"live · {roughly_ago(link.last_ok_at, now)}", "good")
    if is_limited:
        return Badge("◌", f"{since} old: rate limit", "warn")
    if link.last_ok_at < timing.opened_at and not is_young:
        return Badge("◌", f"connecting… · from {ago(link.last_ok_at, now)}", "wait")
    return Badge("◌", f"{since} old", "wait" if is_young else "warn")


def next_poll(wait: Wait | None, now: datetime) -> str:
    """The countdown to the next poll, in seconds; None if another process decides."""
    left_s = 0 if wait is None else ceil((wait.until - now).total_seconds())
    return f"asking again in {span(left_s)}" if left_s > 0 else "asking again"


SPACE: Final = 3
FRESH: Final = 20
"""Cells of the data's age in words, so that the words after it do not move."""
SINCE: Final = len(" ✗ 12m  ")
"""Cells of a host's state, even while it is healthy: no word moves when it fails."""

COUNTS: Final[tuple[tuple[str, str, str, Tone, str], ...]] = (
    ("●", "working", "working", "busy", "status:working"),
    ("○", "queued", "queued", "wait", "status:queued"),
    ("✗", "failed_today", "failed 24h", "bad", "status:failed since:24h"),
)
"""The counts of runs: glyph, figure, words, tone, and the query that each opens."""


class Vitals(Struct, frozen=True):
    """The figures in the header and the tabs."""

    profile: str
    read_only: bool = False
    color: str = ""
    files_fail: bool = False
    """Whether our own files fail, so that nothing on the screen follows the service."""
    can_switch: bool = False
    links: tuple[tuple[ProfileMark, Badge], ...] = ()
    """Where several profiles are in one list: the state of each one's link, in place of the one below."""
    runs_link: LinkState | None = None
    wait: Wait | None = None
    """Why the next poll comes later than configured, and when."""
    working: int = 0
    queued: int = 0
    failed: int = 0
    failed_today: int = 0
    """Runs of the last 24 hours that failed."""
    health: tuple[PlatformHealth, ...] = ()
    health_is_stale: bool = False
    """Whether the last health poll failed, so that the hosts' states are old."""
    known: bool = False
    """Whether the counts were read yet."""
    unknown: int = 0
    inbox: int = 0
    set_up: frozenset[str] = frozenset()
    """The optional tabs that have something to show, by name."""

    @property
    def link_fails(self) -> bool:
        return self.runs_link is not None and self.runs_link.is_failing


class Brevity(IntEnum):
    """How much is abbreviated when space is short."""

    FULL = 0
    WORDS = 1
    GLYPHS = 2
    UNWELL = 3
    """The variant that shows only unhealthy hosts."""
    HOSTS = 4
    """The variant without counts; unhealthy hosts are next to the profile, so that nothing can push them out."""


class HeaderBar(ClickableLine):
    """One line: the profile, the age of its data, its run counts, and its code hosts' health.

    If it is short, words give way to glyphs, and the least important facts are dropped first. The age depends on the
    link to the service, not on the health of its code hosts.
    """

    def __init__(
        self, vitals: Vitals, timing: PollTiming, healthy_words: frozenset[str], clock: Callable[[], datetime]
    ) -> None:
        super().__init__()
        self._vitals = vitals
        self._timing = timing
        self._healthy_words = healthy_words
        self._clock = clock
        self._shown = Content()

    def show(self, vitals: Vitals) -> None:
        self._vitals = vitals
        self.tick()

    def tick(self) -> None:
        """Repaint if the line changed."""
        # `==` compares only text: a host that merely turns grey would not be repainted.
        if not super().render().is_same(self._shown):
            self.refresh()

    def render(self) -> Content:
        self._shown = super().render()
        return self._shown

    def parts(self) -> Iterator[Content]:
        now = self._clock()
        room = 0
        left = list[Content]()
        right = list[Content]()
        for brevity in Brevity:
            left = list(self._left_parts(now, brevity))
            right = list(self._right(now, brevity))
            room = self.size.width - 2 - sum(part.cell_length for part in (*left, *right))
            if room >= SPACE:
                break
        yield Content(" ")
        yield from left
        yield Content(" " * max(1, room))
        yield from right
        yield Content(" ")

    def _left_parts(self, now: datetime, brevity: Brevity) -> Iterator[Content]:
        vitals = self._vitals
        is_brief = brevity >= Brevity.GLYPHS
        name = ProfileMark(vitals.profile, vitals.color).styled(14 if is_brief else 28)
        product = ("runwarden  ", "$accent bold") if brevity is Brevity.FULL else ""
        opens = (" ▾", STYLES["quiet"]) if vitals.can_switch else ""
        words = Content.assemble(product, name, opens)
        yield clickable(words, "app.profiles") if vitals.can_switch else words
        if vitals.read_only:
            yield Content.styled(" read-only", STYLES["warn"])
        if vitals.runs_link is not None and vitals.runs_link.in_lab:
            yield Content.styled(" lab", STYLES["wait"])
        if vitals.links:
            # If space is short, working hosts are only counted.
            links = [(mark, badge) for mark, badge in vitals.links if not is_brief or badge.tone != "good"]
            for mark, badge in links:
                word = badge.word if brevity is Brevity.FULL else _in_brief(badge.word)
                word = word.partition(":")[0] if is_brief else word
                yield Content.assemble("  ", mark.styled(14), " ", (f"{badge.glyph} {word}", badge.style))
            if answer := len(vitals.links) - len(links):
                yield Content.styled(f"  ● {answer} live", STYLES["good"])
            return
        if brevity is Brevity.HOSTS:
            yield from self._hosts(now, brevity)
        fresh = freshness(vitals.runs_link, self._timing, now, vitals.wait)
        fresh = Badge("✗", "own files unusable", "bad") if vitals.files_fail else fresh
        state = f"{fresh.glyph} {_in_brief(fresh.word)}" if is_brief else f"{fresh.text:<{FRESH}}"
        yield Content.assemble(" " * SPACE, (state, fresh.style))

    def _right(self, now: datetime, brevity: Brevity) -> Iterator[Content]:
        if brevity is Brevity.HOSTS:
            return
        vitals = self._vitals
        is_brief = brevity >= Brevity.GLYPHS
        yield from self._hosts(now, brevity)
        gap = " " if is_brief else "  "
        for glyph, figure, words, tone, query in COUNTS if vitals.known else ():
            n: int = getattr(vitals, figure)
            # All words, the first one, or none.
            word = words if brevity is Brevity.FULL else words.split()[0]
            shown = f"{glyph}{n:,}" if is_brief else f"{glyph} {n:,} {word}"
            text = Content.styled(shown, STYLES[tone if n else "quiet"])
            yield Content(gap)
            yield text if vitals.links else clickable(text, "app.tab", "runs", query)

    def _hosts(self, now: datetime, brevity: Brevity) -> Iterator[Content]:
        is_stale = self._vitals.health_is_stale
        for host in self._vitals.health:
            badge = health_badge(host.status, self._healthy_words)
            is_well = badge.tone == "good"
            if host.connected and not (is_well and brevity >= Brevity.UNWELL):
                since = "" if is_well else f" {age(host.since, now)}"
                state = f" {badge.glyph}{'?' if is_stale else ''}{since}"
                yield Content(" ")
                words = f"{safe_text(host.platform, limit=12)}{state:<{SINCE}}"
                text = Content.styled(words, STYLES["quiet"] if is_stale else badge.style)
                yield clickable(text, "app.tab", "health", host.platform)


def _in_brief(freshness_word: str) -> str:
    brief = freshness_word.replace("live · just ", "live ").replace("no answer for", "no answer")
    return brief.replace(" · ", " ").removesuffix(" ago")


MARGIN: Final = 1
GAP: Final = 2
DISABLED: Final = "$foreground 30%"
_TITLES: Final = (("title", 3), ("brief", 3), ("brief", 2), ("tiny", 2), ("tiny", 1))
"""The tabs' titles, and the cells between them: the first that fits."""


class Tab(Struct, frozen=True):
    """One tab of the console."""

    name: str
    key: str
    title: str
    brief: str
    """The tab's title if space is short."""
    tiny: str
    """Its title on the smallest terminal."""
    is_optional: bool = False
    """Whether it is hidden until its feature is set up; its key and the palette still lead there."""


class TabBar(ClickableLine):
    """The tabs; the current one stands out by more than its colour."""

    set_up: reactive[frozenset[str]] = reactive(frozenset())
    """The optional tabs that are shown, by name; the current one always is."""
    counts: reactive[dict[str, str]] = reactive(dict)
    """The number of pending items by tab, as text; empty without items."""

    def __init__(self, tabs: tuple[Tab, ...], current: str) -> None:
        super().__init__()
        self._all = tabs
        self._current = current

    def parts(self) -> Iterator[Content]:
        visible = {*self.set_up, self._current}
        tabs = [tab for tab in self._all if not tab.is_optional or tab.name in visible]
        counts = [f" {count}" if (count := self.counts.get(tab.name)) else "" for tab in tabs]
        titles = list[str]()
        gap = 1
        for name, gap in _TITLES:
            titles = [getattr(tab, name) for tab in tabs]
            labels = zip(tabs, titles, counts, strict=True)
            if sum(len(f"{tab.key} {title}{count}") + gap for tab, title, count in labels) < self.size.width + gap - 2:
                break
        yield Content(" ")
        for tab, title, count in zip(tabs, titles, counts, strict=True):
            is_current = tab.name == self._current
            key_style, style = ("$accent bold", "bold underline") if is_current else (STYLES["quiet"], STYLES["quiet"])
            words = Content.assemble((f" {tab.key} ", key_style), (title, style), (count, f"{STYLES['warn']} bold"))
            yield clickable(words, "app.tab", tab.name)
            yield Content(" " * (gap - 1))


class KeyHint(Struct, frozen=True):
    """One key and its effect."""

    key: str
    does: str
    action: str
    enabled: bool = True
    at_end: bool = False
    """Whether the hint stays at the right edge, even if others do not fit."""

    @property
    def width(self) -> int:
        return cell_len(self.key) + 1 + cell_len(self.does)


class KeyBar(ClickableLine):
    """The keys with an effect now: as many as fit, the first ones first."""

    hints: reactive[tuple[KeyHint, ...]] = reactive(())

    def parts(self) -> Iterator[Content]:
        at_end = [hint for hint in self.hints if hint.at_end]
        room = self.size.width - 2 * MARGIN - sum(hint.width + GAP for hint in at_end)
        placed: list[tuple[int, KeyHint]] = []
        for hint in self.hints:
            if not hint.at_end and hint.width <= room:
                placed.append((GAP if placed else MARGIN, hint))
                room -= hint.width + GAP
        to_edge = room + GAP + (GAP if placed else MARGIN)
        placed += [(GAP if number else to_edge, hint) for number, hint in enumerate(at_end)]
        for gap, hint in placed:
            key_style, style = ("$accent bold", STYLES["quiet"]) if hint.enabled else (DISABLED, DISABLED)
            yield Content(" " * gap)
            content = Content.assemble((f"{hint.key} ", key_style), (hint.does, style))
            yield clickable(content, "screen.press", hint.action) if hint.enabled else content


NOTICE_MARGIN: Final = 2


class Notice(Struct, frozen=True):
    """A notice: what happened, what still works, and which key helps."""

    glyph: str
    title: str
    lines: tuple[str, ...] = ()
    """Paragraphs; the last one gives the fix."""
    tone: Tone = "quiet"


def notice_line(notice: Notice | None, y: int, width: int, height: int) -> tuple[str, Tone, bool]:
    """Line `y` of a view of this size that shows the notice: centred text, its tone, and whether it is the title."""
    if notice is None:
        return " " * width, "plain", False
    room = max(1, width - 2 * NOTICE_MARGIN)
    paragraphs = (part for text in notice.lines for part in wrap(text, min(64, room)) or [""])
    lines = f"{notice.glyph}  {notice.title}", "", *paragraphs
    # A little above the middle.
    at = y - max(0, (height - len(lines)) // 3)
    text = shorten(lines[at], room) if 0 <= at < len(lines) else ""
    return fit(" " * ((width - cell_len(text)) // 2) + text, width), "quiet" if at else notice.tone, not at


class NoticePage(Widget):
    """A notice in place of a screen's content."""

    DEFAULT_CSS = "NoticePage { width: 1fr; height: 1fr; text-align: center; }"

    notice: reactive[Notice | None] = reactive(None)

    def render(self) -> Content:
        lines = (notice_line(self.notice, y, *self.size) for y in range(self.size.height))
        styled = (
            (text.strip(), f"{STYLES[tone]} bold" if is_title else STYLES[tone]) for text, tone, is_title in lines
        )
        return Content("\n").join(Content.styled(*line) for line in styled)


class Banner(Static):
    """A one-line notice, in full under the mouse; hidden without a notice."""

    notice: var[Notice | None] = var(None, init=False)

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def watch_notice(self, notice: Notice | None) -> None:
        self.display = notice is not None
        if notice is not None:
            head = (f"{notice.glyph} {notice.title}  ", f"{STYLES[notice.tone]} bold")
            # One line, whatever its text; showing and hiding it lays out the screen.
            self.update(Content.assemble(head, " ".join(notice.lines)), layout=False)
            self.tooltip = "\n".join((notice.title, *notice.lines))
