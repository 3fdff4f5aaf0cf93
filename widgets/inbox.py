"""The inbox: the rows of its list, and the facts of one item with its runs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from textual.content import Content

from app.engine.text import safe_text
from app.engine.times import ago, stamp
from storage.records.inbox import NO_TIME, InboxItem, InboxKind, InboxSeverity
from widgets.kit.badges import STYLES, Badge, Tone, run_badge
from widgets.kit.cells import Column
from widgets.kit.cursor_view import HEADER
from widgets.kit.line_table import LineTable, TableLine, TonedText

BADGES: Final[Mapping[InboxKind, Badge]] = {
    "host": Badge("▲", "host", "bad"),
    "failed": Badge("✗", "failed", "bad"),
    "unknown": Badge("?", "unknown", "warn"),
    "approval": Badge("◆", "approval", "warn"),
    "question": Badge("?", "asks", "warn"),
    "stuck": Badge("!", "stuck", "warn"),
    "paused": Badge("‖", "paused", "warn"),
    "limited": Badge("⊘", "limited", "warn"),
    "bot": Badge("∅", "no bot", "warn"),
    "ended": Badge("✓", "ended", "good"),
    "undelivered": Badge("⊘", "not sent", "bad"),
}
SEVERITY_TONES: Final[Mapping[InboxSeverity, Tone]] = {"critical": "bad", "decide": "warn", "look": "quiet"}
AGAIN: Final = "↻ "
MAX_RUNS: Final = 20
URGENT: Final[frozenset[InboxKind]] = frozenset({"question", "approval", "failed", "host"})
MAX_URGENT: Final = 5
"""The most urgent items shown at a time; the others scroll."""
COLUMNS: Final = (Column("", 10), Column("what", 10), Column("", 8, grows=1), Column("when", 9))


class InboxRow(Struct, frozen=True):
    """An item as a row of the list."""

    item: InboxItem
    is_marked: bool = False
    leads: bool = True
    """Whether the item is the first of its severity, and so shows it."""

    @property
    def key(self) -> str:
        return self.item.key

    def cells(self, now: datetime) -> TableLine:
        item = self.item
        badge = BADGES[self.item.kind]
        severity = f"{'■ ' if self.is_marked else '  '}{item.severity if self.leads else ''}"
        title = safe_text(f"{AGAIN if item.back else ''}{item.title}", limit=300)
        return (
            (safe_text(severity), "busy" if self.is_marked else SEVERITY_TONES[item.severity]),
            (safe_text(badge.text), badge.tone),
            (title, "plain"),
            (safe_text(when(item.at, now)), "quiet"),
        )

    def facts(self, now: datetime) -> Iterator[tuple[str, TonedText]]:
        item = self.item
        badge = BADGES[item.kind]
        yield "what", (safe_text(f"{badge.text}, {item.severity}"), badge.tone)
        yield "", (safe_text(item.title, limit=300), "plain")
        if item.kind == "approval":
            yield "asked by", (safe_text(item.subject, limit=300), "plain")
        for number, choice in enumerate(item.choices, 1):
            yield "" if number > 1 else "answers", (safe_text(f"{number}  {choice}", limit=300), "plain")
        if item.back:
            yield "back", (safe_text(f"{AGAIN}{item.back}"), "warn")
        if item.at != NO_TIME:
            yield "last", (safe_text(f"{ago(item.at, now)}, {stamp(item.at)}"), "plain")
        if item.fix:
            yield "by command", (safe_text(item.fix, limit=1000), "quiet")

    def below_facts(self, now: datetime) -> Content:
        lines: list[Content] = []
        entries = [entry for entry in self.item.entries if entry.run_id or entry.about]
        for entry in entries[:MAX_RUNS]:
            badge = run_badge(entry.status) if entry.status else BADGES[self.item.kind]
            lines.append(Content.styled(safe_text(f"{badge.text}  {entry.about}", limit=200), badge.style))
            at = safe_text(f"  {when(entry.at, now)}  {entry.run_id}", limit=200)
            lines.append(Content.styled(at, STYLES["quiet"]))
        if (more := len(entries) - MAX_RUNS) > 0:
            lines.append(Content.styled(f"and {more:,} more", STYLES["quiet"]))
        return Content("\n").join(lines)


def when(at: datetime, now: datetime) -> str:
    """How long ago; a dash if unknown."""
    return "—" if at == NO_TIME else ago(at, now)


class NeedsYouRow(InboxRow, frozen=True):
    """An item without its severity."""

    def cells(self, now: datetime) -> TableLine:
        return super().cells(now)[1:]


class NeedsYou(LineTable[NeedsYouRow]):
    """The urgent items, in at most as many lines as fit."""

    def __init__(self, now: datetime) -> None:
        super().__init__(now, (Column("needs you", 10), Column("", 8, grows=1), Column("when", 9)))
        self.display = self.marks_resting = False

    def show_urgent(self, items: Sequence[InboxItem], limit: int) -> None:
        """Show the inbox's urgent items in at most this many lines."""
        # A host that is down is listed only if runs failed on it; old failures are in the inbox.
        fresh = (item for item in items if item.kind in URGENT and item.severity != "look")
        rows = tuple(NeedsYouRow(item) for item in fresh if item.kind != "host" or item.run_ids)
        self.show(rows)
        if not self.has_focus:
            self.action_first()
        self.display = min(len(rows), limit) > 0
        self.styles.height = HEADER + min(len(rows), limit, MAX_URGENT)
