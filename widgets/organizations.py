"""Organizations: tables of the attempts to create them and of the rows of an import."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.engine.text import SafeText, safe_text
from app.engine.times import ago
from app.organizations.facts import full_state, invited_until, short_state
from storage.records import Action
from storage.records.organization import Invitation
from widgets.actions import ActivityEntry
from widgets.forms.dialog import reason
from widgets.forms.field import LineField
from widgets.kit.badges import STYLES, Badge, Tone
from widgets.kit.cells import Column
from widgets.kit.line_table import TableLine, TonedText

ATTEMPT_COLUMNS: Final = (
    Column("outcome", 13),
    Column("email", 9, grows=3),
    # Narrower tables leave the organization to the facts next to them.
    Column("organization", 6, grows=2, wide_from=72),
    Column("invitation", 17),
    Column("asked", 10),
)
_CREATED: Final = Badge("✓", "created", "good")


class OrganizationEntry(ActivityEntry, frozen=True):
    """One attempt to create an organization; it is `about` the address as sent."""

    offer_code: str = ""
    """Empty: the standard trial."""
    name: str = ""
    """As the service returned it, like the next two; empty: nothing was created, or the outcome is unknown."""
    slug: str = ""
    parent_id: str = ""
    invitation: Invitation | None = None
    """None if the service does not report the invitation."""

    @property
    def badge(self) -> Badge:
        return _CREATED if self.source.state == "confirmed" else super().badge

    def cells(self, now: datetime) -> TableLine:
        badge = self.badge
        action = self.source
        return (
            (safe_text(badge.text), badge.tone),
            (self.about, "plain"),
            (safe_text(self.name or action.result_id or "-", limit=120), "plain" if self.name else "quiet"),
            self._invitation(now),
            (safe_text(ago(action.created_at, now)), "quiet"),
        )

    def facts(self, now: datetime) -> Iterator[tuple[str, TonedText]]:
        for name, text in super().facts(now):
            if name == "about":
                yield "email", text
                yield "offer", (safe_text(self.offer_code or "standard trial"), "plain")
                if self.name or self.slug or self.parent_id:
                    yield "name", (safe_text(f"{self.name}  {self.slug}"), "plain")
                    yield "parent", (safe_text(self.parent_id), "plain")
                if (until := invited_until(self.source)) is not None:
                    yield "invitation", (safe_text(full_state(self.invitation, until, now)), self._invitation(now)[1])
            elif name != "what":
                yield name, text

    def _invitation(self, now: datetime) -> TonedText:
        if self.unknown is not None:
            return safe_text("address blocked"), "warn"
        if invited_until(self.source) is None:
            return safe_text("-"), "quiet"
        text, tone = short_state(self.invitation, now)
        return safe_text(text, limit=40), tone


ImportRowState = Literal[
    "invalid",
    "twice",
    "to_create",
    "sending",
    "already_created",
    "created",
    "rejected",
    "unknown",
    "blocked",
    "refused",
]

BADGES: Final[Mapping[ImportRowState, Badge]] = {
    "created": Badge("✓", "created", "good"),
    "already_created": Badge("✓", "was created", "quiet"),
    "sending": Badge("●", "sending", "busy"),
    "to_create": Badge("○", "to create", "wait"),
    "unknown": Badge("?", "unknown", "warn"),
    "blocked": Badge("⊘", "blocked", "warn"),
    "rejected": Badge("✗", "rejected", "bad"),
    "refused": Badge("✗", "not sent", "bad"),
    "invalid": Badge("✗", "invalid", "bad"),
    "twice": Badge("=", "twice", "quiet"),
}
"""The badges in the order of their counts."""
IMPORT_COLUMNS: Final = (
    Column(" line", 5),
    Column("outcome", 13),
    Column("email", 8, grows=2),
    # Narrower tables leave out the offer: a row's detail matters more.
    Column("offer", 15, wide_from=100),
    Column("", 12, grows=3),
)
BAR: Final = 24


class ImportLine(Struct, frozen=True):
    """One row of the file, and its state."""

    line: int
    """Its line in the file, counted from 1."""
    email: SafeText
    offer: SafeText
    state: ImportRowState
    problem: SafeText
    action: Action | None = None
    """The newest attempt for the row's email."""

    @property
    def unknown(self) -> Action | None:
        action = self.action
        if action is not None and action.state == "unknown" and action.is_open:
            return action
        return None

    @property
    def key(self) -> str:
        return str(self.line)

    def cells(self, now: datetime) -> TableLine:
        badge = BADGES[self.state]
        action = self.action
        detail = SafeText()
        if self.problem or action is None:
            detail = self.problem
        elif self.state in {"created", "already_created"}:
            when = "" if self.state == "created" else f", {ago(action.settled_at or action.created_at, now)}"
            detail = safe_text(f"{action.result_id or action.action_id}{when}")
        elif self.state in {"blocked", "unknown"}:
            detail = safe_text(reason(action.error) if action.error is not None else "being sent")
        elif action.error is not None:
            before = "before: " if self.state == "to_create" else ""
            detail = safe_text(f"{before}{reason(action.error)}")
        return (
            (safe_text(f"{self.line:>5}"), "quiet"),
            (safe_text(badge.text), badge.tone),
            (self.email, "plain"),
            (self.offer or safe_text("standard trial"), "plain" if self.offer else "quiet"),
            (detail, badge.tone if badge.tone in {"bad", "warn"} else "quiet"),
        )


class ImportBar(Vertical):
    """The file's name, and two lines."""

    DEFAULT_CSS = """
    ImportBar {
        height: auto;
        padding: 0 1;
        #import-counts, #import-progress { height: 1; padding-left: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self) -> None:
        self.file = LineField("file", "file", "A CSV with the columns email and, optionally, offer_code.")
        self._counts, self._progress = Static(id="import-counts"), Static(id="import-progress")
        super().__init__(self.file, self._counts, self._progress)

    def show_counts(self, rows: Iterable[ImportLine]) -> None:
        by_state = Counter(row.state for row in rows)
        counts = [
            Content.assemble((badge.glyph, badge.style), f" {by_state[state]:,} {badge.word}")
            for state, badge in BADGES.items()
            if by_state[state]
        ]
        self._counts.update(Content("   ").join(counts))

    def show_progress(self, done: int, of: int, text: str) -> None:
        full = done * BAR // max(1, of)
        bar = (("█" * full, STYLES["busy"]), ("░" * (BAR - full), STYLES["quiet"]))
        self._progress.update(Content.assemble(*bar, f" {done:,} of {of:,}  ", safe_text(text)))

    def say(self, text: str, tone: Tone) -> None:
        self._progress.update(Content.styled(safe_text(text), STYLES[tone]))
