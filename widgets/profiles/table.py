"""The list of profiles: each with its worst trouble first."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Final, Literal

from msgspec import Struct
from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets.option_list import Option

from app.engine.text import SafeText, safe_text
from app.engine.times import age
from widgets.frame.freshness import PollTiming, freshness
from widgets.frame.header_bar import Vitals
from widgets.kit.badges import STYLES, Badge, ProfileMark, StyledText, Tone, health_badge
from widgets.kit.cells import fit, shorten
from widgets.kit.choice_lists import Options

_WORST_FIRST: Final[tuple[Tone, ...]] = ("bad", "warn", "wait", "good")
NEEDS_A_LOOK: Final[frozenset[Tone]] = frozenset({"bad", "warn"})
Detail = Literal["line", "block"]
"""One line for each profile, or all of its facts."""
NAME: Final = 24
STATE: Final = 30
"""Cells of the columns of a block."""
_UNKNOWN: Final[tuple[StyledText, ...]] = (("not checked yet", STYLES["quiet"]),)
INDENT: Final = 4


class ProfileFacts(Struct, frozen=True):
    """What is known about a profile."""

    name: str
    address: str
    is_current: bool
    """Whether the console shows this profile now."""
    read_only: bool
    color: str = ""
    """The colour of its name; empty: none."""
    vitals: Vitals | None = None
    """None: not read yet."""
    problem: str = ""
    """Why our own files for it cannot be read; empty: they can."""


class Criteria(Struct, frozen=True):
    """The criteria for a profile's state."""

    timing: PollTiming
    healthy_words: Collection[str]
    now: datetime


def worst(facts: ProfileFacts, criteria: Criteria) -> Badge:
    """The profile's state in a few words."""
    if facts.problem:
        return Badge("✗", "own files unusable", "bad")
    if facts.vitals is None:
        return Badge("◌", "checking…", "wait")
    found = sorted(_states(facts.vitals, criteria), key=lambda badge: _WORST_FIRST.index(badge.tone))
    return found[0] if found else Badge("✓", "OK", "good")


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
    words: list[StyledText] = []
    for host in facts.vitals.health:
        badge = health_badge(host.status, criteria.healthy_words)
        text = f"{safe_text(host.platform, limit=12)} {badge.glyph}"
        style = STYLES["quiet"] if facts.vitals.health_is_stale else badge.style
        if host.connected:
            words.append((text if badge.tone == "good" else f"{text} {badge.word}", style))
    return tuple(words)


def place_words(facts: ProfileFacts) -> SafeText:
    """Its address and its permissions, or the trouble with our files."""
    if facts.problem:
        return safe_text(facts.problem, limit=300)
    words = (facts.address, "current" if facts.is_current else "", "read-only" if facts.read_only else "")
    return safe_text(" · ".join(filter(None, words)), limit=300)


def _states(vitals: Vitals, criteria: Criteria) -> Iterator[Badge]:
    fresh = freshness(vitals.runs_link, criteria.timing, criteria.now, vitals.wait)
    if fresh.tone != "good":
        yield fresh
    for host in vitals.health:
        badge = health_badge(host.status, criteria.healthy_words)
        if host.connected and badge.tone != "good" and not vitals.health_is_stale:
            since = age(host.since, criteria.now)
            word = f"{safe_text(host.platform, limit=12)} {badge.word} {'just now' if since == 'now' else since}"
            yield Badge(badge.glyph, word, badge.tone)
    if vitals.unknown:
        yield Badge("?", f"{vitals.unknown:,} unknown outcome{'s' if vitals.unknown > 1 else ''}", "warn")
    if vitals.inbox:
        yield Badge("⚑", f"{vitals.inbox:,} in the inbox", "warn")


class ProfileList(Options):
    """The profiles, one below the other; the id of an option is its profile's name."""

    DEFAULT_CSS = """
    ProfileList, ProfileList:focus {
        border: none; padding: 0; background: $background; background-tint: $foreground 0%;
        scrollbar-size-vertical: 1;
        & > .option-list--option-highlighted {
            background: $block-cursor-blurred-background; color: $foreground; text-style: none;
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "open", key_display="enter", id="profiles.open"),
    ]

    def __init__(self, detail: Detail) -> None:
        super().__init__(markup=False)
        self._detail = detail

    @property
    def name_at_cursor(self) -> str | None:
        """The profile under the cursor; None: the list is empty."""
        return None if self.highlighted_option is None else self.highlighted_option.id

    def show(self, facts: Sequence[ProfileFacts], criteria: Criteria) -> None:
        """Show the profiles; the cursor stays on its own, and begins on the one on show."""
        names = [each.name for each in facts]
        here = self.name_at_cursor
        if names != [option.id for option in self.options]:
            self.set_options(Option("", name) for name in names)
            first = next((index for index, each in enumerate(facts) if each.is_current), 0)
            self.highlighted = None if not names else names.index(here) if here in names else first
        for each in facts:
            self.replace_option_prompt(each.name, Content("\n").join(self._described(each, criteria)))

    def _described(self, facts: ProfileFacts, criteria: Criteria) -> list[Content]:
        name, style = ProfileMark(facts.name, facts.color).styled(NAME - 3)
        named: list[StyledText] = [(name, style), (" " * (NAME - cell_len(name)), "")]
        if self._detail == "line":
            room = max(0, self.size.width - NAME - 3)
            location = shorten(place_words(facts), room, "middle")
            return [self._fitted([("  ", ""), *named, (location, STYLES["quiet"])])]
        state = worst(facts, criteria)
        head: list[StyledText] = [
            ("  ", ""),
            (f"{state.glyph} ", state.style),
            *named,
            (fit(shorten(state.word, STATE - 1), STATE), state.style),
        ]
        location = place_words(facts)
        counts = count_words(facts)
        hosts = host_words(facts, criteria)
        indent: StyledText = (" " * INDENT, "")
        lines = (head, [indent, *_spaced((*counts, *hosts) or _UNKNOWN)], [indent, (location, STYLES["quiet"])])
        return [self._fitted(line) for line in lines] + [Content("")]

    def _fitted(self, parts: list[StyledText]) -> Content:
        """One line, cut to fit."""
        room = self.scrollable_content_region.width or self.size.width
        fitted = list[StyledText]()
        for text, style in parts:
            piece = shorten(text, room)
            fitted.append((piece, style))
            room -= cell_len(piece)
        return Content.assemble(*fitted)


def _spaced(parts: Sequence[StyledText]) -> list[StyledText]:
    return [part for one in parts for part in (one, ("  ", ""))]
