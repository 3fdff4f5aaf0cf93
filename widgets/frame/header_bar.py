"""The line at the top: the profile, the age of its data, its run counts, and its code hosts' health."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import safe_text
from app.times import age
from storage.records import LinkState, PlatformHealth
from widgets.badges import STYLES, Badge, StyledText, Tone, health_badge
from widgets.cells import shorten
from widgets.frame.freshness import PollTiming, freshness

if TYPE_CHECKING:
    from storage.records.service_traits import Wait

PRODUCT: Final = "runwarden"
FILES_FAIL: Final = Badge("✗", "own files unusable", "bad")
"""Shown in place of the link's state while our own files fail."""
SPACE: Final = 3
"""Cells between the groups."""

COUNTED: Final = ("status:working", "status:queued", "status:failed since:24h")
"""The query that each count opens."""


class Vitals(Struct, frozen=True):
    """The figures in the header."""

    profile: str
    read_only: bool = False
    files_fail: bool = False
    """Whether our own files fail, so that nothing on the screen follows the service."""
    can_switch: bool = False
    """Whether there are other profiles to switch to."""
    runs_link: LinkState | None = None
    wait: "Wait | None" = None
    """Why the next poll comes later than configured, and when."""
    working: int = 0
    queued: int = 0
    failed: int = 0
    """The number of failed runs in the cache."""
    failed_today: int = 0
    """Runs of the last 24 hours that failed."""
    health: tuple[PlatformHealth, ...] = ()
    health_is_stale: bool = False
    """Whether the last health poll failed, so that the hosts' states are old."""
    known: bool = False
    """Whether the counts were read yet."""
    unknown: int = 0
    """Writes of unknown outcome."""
    inbox: int = 0
    """Pending items in the inbox."""

    @property
    def counts(self) -> tuple[tuple[str, int, str, str], ...]:
        """The run counts: glyph, number, words and style."""
        counts: tuple[tuple[str, int, str, Tone], ...] = (
            ("●", self.working, "working", "busy"),
            ("○", self.queued, "queued", "wait"),
            ("✗", self.failed_today, "failed 24h", "bad"),
        )
        return tuple((glyph, n, words, STYLES[tone if n else "quiet"]) for glyph, n, words, tone in counts)


class Brevity(IntEnum):
    """How much is abbreviated where there is little room."""

    FULL = 0
    WORDS = 1
    GLYPHS = 2
    COUNTS = 3
    """Without hosts, which have their own screen."""


class HeaderBar(Widget):
    """One line; if it is short, words give way to glyphs, and the least important facts are dropped first."""

    @dataclass
    class ProfileClicked(Message):
        """The profile's name was clicked."""

    @dataclass
    class UnknownClicked(Message):
        """The number of unknown outcomes was clicked."""

    @dataclass
    class CountClicked(Message):
        """A number of runs was clicked."""

        query: str

    @dataclass
    class HostClicked(Message):
        """A code host was clicked."""

        platform: str

    @dataclass
    class InboxClicked(Message):
        """The number of pending items was clicked."""

    def __init__(
        self, vitals: Vitals, timing: PollTiming, healthy_words: frozenset[str], clock: Callable[[], datetime]
    ) -> None:
        super().__init__()
        self._vitals = vitals
        self._timing = timing
        self._healthy_words = healthy_words
        self._clock = clock
        self._shown: Content | None = None
        self._tick_values: tuple[object, ...] = ()
        """The values in the line at the last tick: while they are the same, the line is too."""
        self._name_end = 0
        """The cell where the profile's name ends."""
        self._waiting: list[tuple[range, Callable[[], Message]]] = []
        """The cells of the numbers of pending items, and the message that a click there posts.

        The click makes the message: one made during a tick of the screen counts as the screen's and does not bubble up.
        """
        self._counted: list[tuple[range, Callable[[], Message]]] = []
        """The same for the numbers of runs, and for the code hosts."""

    def show(self, vitals: Vitals) -> None:
        """Show new facts."""
        self._vitals = vitals
        self.tick()

    def tick(self) -> None:
        """Repaint if an age changed."""
        now, vitals = self._clock(), self._vitals
        made_of = vitals, self.size.width, self._freshness(now), *self._hosts(now, Brevity.FULL)
        if made_of == self._tick_values:
            return
        self._tick_values = made_of
        # `==` compares only text: a host that merely turns grey would not be repainted.
        if self._shown is None or not self._content().is_same(self._shown):
            self.refresh()

    def render(self) -> Content:
        """The line, as wide as the screen."""
        self._shown = self._content()
        return self._shown

    def _freshness(self, now: datetime) -> Badge:
        vitals = self._vitals
        return FILES_FAIL if vitals.files_fail else freshness(vitals.runs_link, self._timing, now, vitals.wait)

    def on_click(self, event: events.Click) -> None:
        """Announce a click on the profile's name, on a number or on a code host."""
        numbers = (*self._waiting, *self._counted)
        if clicked := next((clicked for cells, clicked in numbers if event.x in cells), None):
            self.post_message(clicked())
        elif self._vitals.can_switch and event.x < self._name_end:
            self.post_message(self.ProfileClicked())

    def _content(self) -> Content:
        now, width = self._clock(), self.size.width
        left: list[StyledText] = []
        right: list[StyledText] = []
        for brevity in Brevity:
            left, right = self._left(now, brevity), self._right(now, brevity)
            if _width(left) + _width(right) + 2 + SPACE <= width:
                break
        room = width - _width(left) - _width(right) - 2
        self._counted = list(self._placed_counts(right, width - 1 - _width(right)))
        return Content.assemble(" ", *left, " " * max(1, room), *right, " ")

    def _left(self, now: datetime, brevity: Brevity) -> list[StyledText]:
        name = shorten(safe_text(self._vitals.profile, limit=60), 28 if brevity < Brevity.GLYPHS else 14, "middle")
        link, fresh = self._vitals.runs_link, self._freshness(now)
        parts: list[StyledText] = [(f"{PRODUCT}  ", "$accent bold")] if brevity is Brevity.FULL else []
        parts.append((name, "bold"))
        if self._vitals.can_switch:
            parts.append((" ▾", STYLES["quiet"]))
        if self._vitals.read_only:
            parts.append((" read-only", STYLES["warn"]))
        if link is not None and link.in_lab:
            parts.append((" lab", STYLES["wait"]))
        self._name_end = 1 + _width(parts)
        word = fresh.word if brevity < Brevity.GLYPHS else _in_brief(fresh.word)
        parts += [(" " * SPACE, ""), (f"{fresh.glyph} {word}", fresh.style)]
        return [*parts, *self._waiting_parts(brevity, 1 + _width(parts))]

    def _waiting_parts(self, brevity: Brevity, start: int) -> list[StyledText]:
        """The numbers of pending items, which are shown at every width."""
        vitals, gap = self._vitals, SPACE if brevity < Brevity.GLYPHS else 1
        waiting = (
            ("?", vitals.unknown, "unknown", self.UnknownClicked),
            ("⚑", vitals.inbox, "inbox", self.InboxClicked),
        )
        parts: list[StyledText] = []
        self._waiting = []
        for glyph, count, word, clicked in waiting:
            if count:
                text = f"{glyph} {count:,} {word}" if brevity < Brevity.GLYPHS else f"{glyph}{count:,}"
                start += gap
                self._waiting.append((range(start, start + len(text)), clicked))
                start += len(text)
                parts += [(" " * gap, ""), (text, f"{STYLES['warn']} bold")]
        return parts

    def _right(self, now: datetime, brevity: Brevity) -> list[StyledText]:
        counts = [
            # All words, the first one, or none.
            (f"{glyph} {n:,} {' '.join(words.split()[: 1 if brevity else 2])}", style)
            if brevity < Brevity.GLYPHS
            else (f"{glyph}{n:,}", style)
            for glyph, n, words, style in (self._vitals.counts if self._vitals.known else ())
        ]
        hosts = self._hosts(now, brevity) if brevity < Brevity.COUNTS else []
        gap = " " * (2 if brevity < Brevity.GLYPHS else 1)
        return [*_spaced(counts, gap), (" " * SPACE if counts and hosts else "", ""), *_spaced(hosts, gap)]

    def _placed_counts(self, right: list[StyledText], x: int) -> Iterator[tuple[range, Callable[[], Message]]]:
        vitals = self._vitals
        leads: list[Callable[[], Message]] = [partial(self.CountClicked, each) for each in COUNTED if vitals.known]
        leads += [partial(self.HostClicked, host.platform) for host in vitals.health if host.connected]
        for text, _ in right:
            # Gaps between two of them.
            if text.strip() and leads:
                yield range(x, x + cell_len(text)), leads.pop(0)
            x += cell_len(text)

    def _hosts(self, now: datetime, brevity: Brevity) -> list[StyledText]:
        hosts: list[StyledText] = []
        for host in (host for host in self._vitals.health if host.connected):
            badge = health_badge(host.status, self._healthy_words)
            text = f"{safe_text(host.platform, limit=12)} {badge.glyph}"
            if badge.tone != "good":
                text += f" {badge.word}" if brevity < Brevity.GLYPHS else ""
                text += f" {age(host.since, now)}"
            hosts.append((text, STYLES["quiet"] if self._vitals.health_is_stale else badge.style))
        return hosts


def _in_brief(freshness_word: str) -> str:
    brief = freshness_word.replace("live · just ", "live ").replace(" old, waiting for an answer", " old, waiting")
    brief = brief.replace("stale ", "").replace("waiting until", "until") if "until" in brief else brief
    return brief.replace(" · ", " ").removesuffix(" ago")


def _spaced(parts: list[StyledText], gap: str) -> list[StyledText]:
    return [part for index, one in enumerate(parts) for part in ((gap if index else "", ""), one)]


def _width(parts: list[StyledText]) -> int:
    return Content.assemble(*parts).cell_length
