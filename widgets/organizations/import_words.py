"""The rows of an import in words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from textual.content import Content

from app.text import SafeText, safe_text
from storage.records import Action
from widgets.badges import Badge
from widgets.forms.outcome import reason
from widgets.line_table import Line
from widgets.times import ago

RowState = Literal[
    "invalid",
    "twice",
    "to_create",
    "sending",
    "already_created",
    "created",
    "rejected",
    "unknown",
    "blocked",
]

BADGES: Final[Mapping[RowState, Badge]] = {
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


@dataclass(frozen=True, slots=True)
class ImportLine:
    """One row of the file, and how it stands."""

    line: int
    """In the file, from 1."""
    email: SafeText
    offer: SafeText
    state: RowState
    problem: SafeText = SafeText()  # noqa: RUF009 — a str, and never changed
    """What is wrong with it; empty: nothing."""
    action: Action | None = None
    """The newest attempt for its email."""

    @property
    def unknown(self) -> Action | None:
        """The attempt that a person has to resolve; None: there is none."""
        action = self.action
        return action if action is not None and action.state == "unknown" and action.is_open else None


def line_of(row: ImportLine, now: datetime) -> Line:
    """Line, state, email, offer, what there is to say."""
    badge = BADGES[row.state]
    return (
        (safe_text(f"{row.line:>5}"), "quiet"),
        (safe_text(badge.text), badge.tone),
        (row.email, "plain"),
        (row.offer or safe_text("standard trial"), "plain" if row.offer else "quiet"),
        (_detail(row, now), badge.tone if row.state in {"invalid", "rejected", "unknown", "blocked"} else "quiet"),
    )


def counts(rows: Iterable[ImportLine]) -> Content:
    """How many rows there are of each state."""
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
