"""The list of profiles: each with its worst trouble first."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import ClassVar, Final, Literal

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from app.text import SafeText, safe_text
from app.times import age
from storage.records import PlatformHealth
from storage.records.insights import Outcomes
from widgets.badges import STYLES, Badge, StyledText, Tone, health_badge
from widgets.cells import fit, shorten
from widgets.frame.freshness import PollTiming, freshness
from widgets.frame.header_bar import Vitals

_WORST_FIRST: Final[tuple[Tone, ...]] = ("bad", "warn", "wait", "good")
ENOUGH: Final = 20
"""Ended runs from which the usual share of failures can be told."""
FEW: Final = 3
SPREAD: Final = 2.0
"""Failures are unusual from this many standard deviations above the expected number."""
NEEDS_A_LOOK: Final[frozenset[Tone]] = frozenset({"bad", "warn"})
Detail = Literal["line", "block"]
"""One line for each profile, or all of its facts."""
WIDE: Final = 128
"""From this width on a block has two lines and a blank one; below, three and a blank one."""
NAME: Final = 24
STATE: Final = 30
LINK: Final = 24
"""Cells of the columns of a block."""
_UNKNOWN: Final[tuple[StyledText, ...]] = (("nothing is known of it yet", STYLES["quiet"]),)
ADDRESS: Final = 24
"""The fewest cells in which an address is readable."""
INDENT: Final = 4


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What is known about a profile."""

    name: str
    address: str
    is_current: bool
    """Whether the console shows this profile now."""
    read_only: bool
    vitals: Vitals | None = None
    """None: not read yet."""
    problem: str = ""
    """Why our own files for it cannot be read; empty: they can."""
    note: Badge | None = None
    """Shown in place of its state, if the profile is not polled."""
    today: Outcomes | None = None
    """The outcomes of the last 24 hours."""
    usual: Outcomes | None = None
    """The outcomes of the month before, for comparison."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """The criteria for a profile's state."""

    timing: PollTiming
    healthy_words: Collection[str]
    now: datetime


def worst(facts: ProfileFacts, criteria: Criteria) -> Badge:
    """The profile's state in a few words."""
    if facts.problem:
        return Badge("✗", "our files are unusable", "bad")
    if facts.note is not None or facts.vitals is None:
        return facts.note or Badge("◌", "looking…", "wait")
    found = sorted(_states(facts, facts.vitals, criteria), key=lambda badge: _WORST_FIRST.index(badge.tone))
    return found[0] if found else Badge("✓", "all is well", "good")


def link_words(facts: ProfileFacts, criteria: Criteria) -> StyledText:
    """How fresh the facts are; empty if the state says it already."""
    if facts.vitals is None:
        return "", ""
    badge = freshness(facts.vitals.runs_link, criteria.timing, criteria.now, facts.vitals.wait)
    return ("", "") if badge == worst(facts, criteria) else (badge.text, badge.style)


def count_words(facts: ProfileFacts) -> tuple[StyledText, ...]:
    """How many runs are working, are queued, and failed today."""
    vitals = facts.vitals
    if vitals is None or not vitals.known:
        return ()
    return tuple((f"{glyph} {n:,} {word}", style) for glyph, n, word, style in vitals.counts)


def host_words(facts: ProfileFacts, criteria: Criteria) -> tuple[StyledText, ...]:
    """The states of its code hosts."""
    if facts.vitals is None:
        return ()
    is_stale = facts.vitals.health_is_stale
    return tuple(_host(host, criteria, is_stale=is_stale) for host in facts.vitals.health if host.connected)


def place_words(facts: ProfileFacts, *, with_address: bool = True) -> SafeText:
    """Its address and its permissions, or the trouble with our files."""
    if facts.problem:
        return safe_text(facts.problem, limit=300)
    words = ((facts.address, with_address), ("on show", facts.is_current), ("read-only", facts.read_only))
    return safe_text(" · ".join(word for word, is_said in words if is_said), limit=300)


def unusual(today: Outcomes | None, usual: Outcomes | None) -> Badge | None:
    """A warning that clearly more runs fail than normal; None: they do not, or it is not known.

    If too few runs ended before, more than half failing is unusual.
    """
    if today is None or not today.failed:
        return None
    finished, before = today.failed + today.completed, 0 if usual is None else usual.failed + usual.completed
    if usual is None or before < ENOUGH:
        many = today.failed >= FEW and 2 * today.failed > finished
        return Badge("✗", f"{today.failed:,} of {finished:,} failed in 24h", "warn") if many else None
    expected = finished * usual.failed / before
    if today.failed <= expected + SPREAD * sqrt(max(1.0, expected)):
        return None
    return Badge("✗", f"{today.failed:,} failed in 24h, usually {expected:,.0f}", "warn")


def _states(facts: ProfileFacts, vitals: Vitals, criteria: Criteria) -> Iterator[Badge]:
    fresh = freshness(vitals.runs_link, criteria.timing, criteria.now, vitals.wait)
    if fresh.tone != "good":
        yield fresh
    for host in vitals.health:
        badge = health_badge(host.status, criteria.healthy_words)
        if host.connected and badge.tone != "good" and not vitals.health_is_stale:
            since = age(host.since, criteria.now)
            word = f"{safe_text(host.platform, limit=12)} {badge.word} {'just now' if since == 'now' else since}"
            yield Badge(badge.glyph, word, badge.tone)
    if (more := unusual(facts.today, facts.usual)) is not None:
        yield more


def _host(host: PlatformHealth, criteria: Criteria, *, is_stale: bool) -> StyledText:
    badge = health_badge(host.status, criteria.healthy_words)
    text = f"{safe_text(host.platform, limit=12)} {badge.glyph}"
    return (text if badge.tone == "good" else f"{text} {badge.word}"), STYLES["quiet"] if is_stale else badge.style


class ProfileList(Widget, can_focus=True):
    """The profiles, one below the other, with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="profiles.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="profiles.up"),
        Binding("home,g", "move(-1000)", "first", show=False, id="profiles.first"),
        Binding("end,G", "move(1000)", "last", show=False, id="profiles.last"),
        Binding("enter", "choose", "open", key_display="enter", id="profiles.open"),
    ]

    @dataclass
    class Chosen(Message):
        """A profile was chosen."""

        name: str

    def __init__(self, detail: Detail) -> None:
        super().__init__()
        self._detail = detail
        self._facts: tuple[ProfileFacts, ...] = ()
        self._criteria: Criteria | None = None
        self._cursor = ""
        """The name of the profile under the cursor."""
        self._shown: Content | None = None

    @property
    def name_at_cursor(self) -> str | None:
        """The profile under the cursor; None: the list is empty."""
        return self._facts[self._at].name if self._facts else None

    def show(self, facts: tuple[ProfileFacts, ...], criteria: Criteria) -> None:
        """Show the profiles; the cursor stays on its own. Repaint only if something changed."""
        if len(facts) != len(self._facts):
            self.refresh(layout=True)
        self._facts, self._criteria = facts, criteria
        if self._cursor not in {each.name for each in facts} and facts:
            self._cursor = next((each.name for each in facts if each.is_current), facts[0].name)
        if self._shown is None or not self._content().is_same(self._shown):
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The lines of all profiles."""
        del container, viewport, width
        return max(1, len(self._facts) * self._height)

    def render(self) -> Content:
        """The profiles around the cursor."""
        self._shown = self._content()
        return self._shown

    def action_move(self, step: int) -> None:
        """Move the cursor; a single step wraps around the ends."""
        if self._facts:
            last, there = len(self._facts) - 1, self._at + step
            if abs(step) == 1:
                there %= last + 1
            self._cursor = self._facts[min(max(0, there), last)].name
            self.refresh()

    def action_choose(self) -> None:
        """Post the profile under the cursor as chosen."""
        if self.name_at_cursor is not None:
            self.post_message(self.Chosen(self.name_at_cursor))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked profile; a double click chooses it."""
        index = self._top + event.y // self._height
        if index < len(self._facts):
            self._cursor = self._facts[index].name
            self.refresh()
            if event.chain > 1 or self._detail == "line":
                self.action_choose()

    def on_mouse_scroll_down(self) -> None:
        """Move down."""
        self.action_move(1 if self._at < len(self._facts) - 1 else 0)

    def on_mouse_scroll_up(self) -> None:
        """Move up."""
        self.action_move(-1 if self._at else 0)

    @property
    def _at(self) -> int:
        return next((index for index, each in enumerate(self._facts) if each.name == self._cursor), 0)

    @property
    def _height(self) -> int:
        if self._detail == "line":
            return 1
        return 3 if self.size.width >= WIDE else 4

    @property
    def _top(self) -> int:
        """The first visible profile."""
        room = max(1, self.size.height // self._height)
        return max(0, min(self._at - room // 2, len(self._facts) - room))

    def _content(self) -> Content:
        room = max(1, self.size.height // self._height)
        shown = self._facts[self._top : self._top + room]
        return Content("\n").join(line for each in shown for line in self._lines(each))

    def _lines(self, facts: ProfileFacts) -> list[Content]:
        if self._criteria is None:
            return []
        is_here = facts.name == self._cursor
        state = worst(facts, self._criteria)
        name = shorten(safe_text(facts.name, limit=60), NAME - 1, "middle")
        head: list[StyledText] = [
            ("▌ " if is_here else "  ", "$accent"),
            (f"{state.glyph} ", state.style),
            (fit(name, NAME), "bold"),
        ]
        if self._detail == "line":
            return [self._line([*head, *self._rest_of_line(facts, state)], is_here=is_here)]
        head.append((fit(shorten(state.word, STATE - 1), STATE), state.style))
        location, counts, hosts = place_words(facts), count_words(facts), host_words(facts, self._criteria)
        indent: StyledText = (" " * INDENT, "")
        if self.size.width >= WIDE:
            link_text, link_style = link_words(facts, self._criteria)
            first = [*head, (fit(link_text, LINK), link_style), *_spaced(counts or _UNKNOWN)]
            room = NAME + STATE + LINK
            second = [indent, (fit(shorten(location, room - 1, "middle"), room), STYLES["quiet"]), *_spaced(hosts)]
            return [self._line(line, is_here=is_here) for line in (first, second)] + [Content("")]
        lines = (head, [indent, *_spaced((*counts, *hosts) or _UNKNOWN)], [indent, (location, STYLES["quiet"])])
        return [self._line(line, is_here=is_here) for line in lines] + [Content("")]

    def _rest_of_line(self, facts: ProfileFacts, state: Badge) -> list[StyledText]:
        room = self.size.width - INDENT - NAME - STATE - 1
        location = place_words(facts, with_address=room > ADDRESS)
        return [
            (fit(shorten(state.word, STATE - 1), STATE), state.style),
            (shorten(location, max(0, room), "middle"), STYLES["quiet"]),
        ]

    def _line(self, parts: list[StyledText], *, is_here: bool) -> Content:
        """One line, cut to fit, with the cursor's background under all of it."""
        ground = " on $block-cursor-blurred-background" if is_here else ""
        room, fitted = self.size.width, list[StyledText]()
        for text, style in parts:
            piece = shorten(text, room)
            fitted.append((piece, f"{style}{ground}".strip()))
            room -= cell_len(piece)
        return Content.assemble(*fitted, (" " * max(0, room), ground.strip()))


def _spaced(parts: Sequence[StyledText]) -> list[StyledText]:
    return [part for one in parts for part in (one, ("  ", ""))]
