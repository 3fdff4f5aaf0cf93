"""An import of organizations: its rows, their table, and the bar above it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText, safe_text
from app.times import ago
from storage.records import Action
from widgets.badges import STYLES, Badge, Tone
from widgets.forms.field import LineField
from widgets.forms.pages import reason
from widgets.line_table import GAP, LineColumn, LineTable, TableLine

ImportRowState = Literal[
    "invalid", "twice", "to_create", "sending", "already_created", "created", "rejected", "unknown", "blocked"
]

_NOTHING: Final = SafeText()
BADGES: Final[Mapping[ImportRowState, Badge]] = {
    "created": Badge("✓", "created", "good"),
    "already_created": Badge("✓", "was created", "quiet"),
    "sending": Badge("●", "sending", "busy"),
    "to_create": Badge("○", "to create", "wait"),
    "unknown": Badge("?", "unknown", "warn"),
    "blocked": Badge("⊘", "blocked", "warn"),
    "rejected": Badge("✗", "rejected", "bad"),
    "invalid": Badge("✗", "invalid", "bad"),
    "twice": Badge("=", "twice", "quiet"),
}
"""In the order of their counts."""
_LINE: Final = LineColumn(" line", 0, 5)
_STATE: Final = LineColumn("state", 1, 13)
_OFFER: Final = LineColumn("offer", 3, 15)
_OFFER_FROM: Final = 100
"""Narrower tables leave out the offer: a row's detail matters more."""
BAR: Final = 24
"""Cells of the bar of progress."""


@dataclass(frozen=True, slots=True)
class ImportLine:
    """One row of the file, and its state."""

    line: int
    """Its line in the file, counted from 1."""
    email: SafeText
    offer: SafeText
    state: ImportRowState
    problem: SafeText = _NOTHING
    """What is wrong with it; empty: nothing."""
    action: Action | None = None
    """The newest attempt for its email."""

    @property
    def unknown(self) -> Action | None:
        """The attempt of unknown outcome, or None."""
        action = self.action
        return action if action is not None and action.state == "unknown" and action.is_open else None

    @property
    def key(self) -> str:
        """Its line in the file."""
        return str(self.line)

    def cells(self, now: datetime) -> TableLine:
        """Line number, state, email, offer and detail."""
        badge = BADGES[self.state]
        return (
            (safe_text(f"{self.line:>5}"), "quiet"),
            (safe_text(badge.text), badge.tone),
            (self.email, "plain"),
            (self.offer or safe_text("standard trial"), "plain" if self.offer else "quiet"),
            (
                _detail(self, now),
                badge.tone if self.state in {"invalid", "rejected", "unknown", "blocked"} else "quiet",
            ),
        )


def counts(rows: Iterable[ImportLine]) -> Content:
    """The number of rows in each state."""
    found = Counter(row.state for row in rows)
    return Content("   ").join(
        Content.assemble((badge.glyph, badge.style), f" {found[state]:,} {badge.word}")
        for state, badge in BADGES.items()
        if found[state]
    )


def _detail(row: ImportLine, now: datetime) -> SafeText:
    action = row.action
    if row.problem or action is None:
        return row.problem
    if row.state in {"created", "already_created"}:
        when = "" if row.state == "created" else f", {ago(action.settled_at or action.created_at, now)}"
        return safe_text(f"{action.result_id or action.action_id}{when}")
    if row.state in {"blocked", "unknown"}:
        return safe_text(reason(action.error) if action.error is not None else "on its way")
    if action.error is not None:
        before = "before: " if row.state == "to_create" else ""
        return safe_text(f"{before}{reason(action.error)}")
    return SafeText()


def _columns_for(width: int) -> tuple[LineColumn, ...]:
    """Line, state, email and detail; the offer if there is room."""
    fixed = (_LINE, _STATE, _OFFER) if width >= _OFFER_FROM else (_LINE, _STATE)
    rest = width - sum(column.width + GAP for column in fixed) - 2 * GAP
    email = max(8, rest * 2 // 5)
    flexible = (LineColumn("email", 2, email), LineColumn("", 4, max(8, rest - email)))
    return (_LINE, _STATE, flexible[0], *fixed[2:], flexible[1])


class ImportTable(LineTable[ImportLine]):
    """The rows of an import, in the file's order."""

    def __init__(self, now: datetime) -> None:
        super().__init__(now, _columns_for)


class ImportBar(Vertical):
    """Two fields and two lines."""

    DEFAULT_CSS = """
    ImportBar {
        height: auto;
        padding: 0 1;
        #import-counts, #import-progress { height: 1; padding-left: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.file = LineField("file", "file", "A CSV with the columns email and, optionally, offer_code.")
        self.most = LineField("most", "at most", "How many to send before asking again.", value=str(most))

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.file
        yield self.most
        yield Static(id="import-counts", markup=False)
        yield Static(id="import-progress", markup=False)

    def show_counts(self, counts: Content) -> None:
        """Show the number of rows in each state."""
        self.query_one("#import-counts", Static).update(counts)

    def show_progress(self, done: int, of: int, text: SafeText) -> None:
        """Show how far the import is."""
        full = done * BAR // max(1, of)
        bar = (("█" * full, STYLES["busy"]), ("░" * (BAR - full), STYLES["quiet"]))
        self.query_one("#import-progress", Static).update(Content.assemble(*bar, f" {done:,} of {of:,}  ", text))

    def say(self, text: SafeText, tone: Tone) -> None:
        """Show a message in place of the progress."""
        self.query_one("#import-progress", Static).update(Content.styled(text, STYLES[tone]))
