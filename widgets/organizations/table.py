"""Organizations: the attempts to create them, and the rows of an import, each as a table with its parts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.engine.text import SafeText, safe_text
from app.engine.times import ago, stamp
from app.organizations.facts import full, short
from storage.records import INVITATION_LIFETIME, Action, Organization
from storage.records.results import Invitation
from widgets.forms.field import LineField
from widgets.forms.pages import reason
from widgets.kit.badges import STYLES, Badge, Tone, action_badge
from widgets.kit.columns import Column
from widgets.kit.line_table import TableLine, TonedText

_CREATED: Final = Badge("✓", "created", "good")
_SENT_AGAIN: Final = Badge("↻", "sent again", "quiet")
ATTEMPT_COLUMNS: Final = (
    Column("state", 13),
    Column("email", 9, grows=3),
    # Narrower tables leave the organization to the facts next to them.
    Column("organization", 6, grows=2, wide_from=72),
    Column("invitation", 17),
    Column("asked", 10),
)


class CreationAttempt(Struct, frozen=True):
    """One attempt, as the ledger holds it."""

    action: Action
    email: str
    """The address as sent."""
    offer_code: str | None
    """None: the standard trial."""
    organization: Organization | None
    """None: nothing was created, or the outcome is unknown."""
    invitation: Invitation | None = None
    """None: the service does not tell what became of it."""

    @property
    def is_unknown(self) -> bool:
        """Whether its outcome is unknown."""
        return self.action.state == "unknown" and self.action.resolution is None

    @property
    def invited_until(self) -> datetime | None:
        """When the invitation ends; None: there is none."""
        action = self.action
        if action.state != "confirmed":
            return None
        # If a person confirmed it later, the invitation dates from the sending.
        sent = action.settled_at if action.resolution is None else action.sending_at
        return sent + INVITATION_LIFETIME if sent is not None else None

    @property
    def key(self) -> str:
        """The action's id."""
        return self.action.action_id

    @property
    def name(self) -> str:
        """The organization's name from the service, or else the address."""
        return (self.organization and self.organization.organization_name) or self.email

    def matches(self, words: Iterable[str]) -> bool:
        """Whether all these case-folded words occur in its address, name, slug or ids."""
        found, action = self.organization, self.action
        made = (found.organization_name, found.organization_slug, found.organization_id) if found is not None else ()
        text = "\n".join((self.email, action.action_id, action.result_id or "", *made)).casefold()
        return all(word in text for word in words)

    def cells(self, now: datetime) -> TableLine:
        """State, email, organization, invitation, and when it was requested."""
        badge = attempt_badge(self)
        return (
            (safe_text(badge.text), badge.tone),
            (safe_text(self.email, limit=254), "plain"),
            _organization(self),
            _invitation(self, now),
            (safe_text(ago(self.action.created_at, now)), "quiet"),
        )

    def facts(self, now: datetime) -> Iterator[tuple[str, TonedText]]:
        """Everything known about the attempt; our names, possibly foreign values."""
        action, found = self.action, self.organization
        badge = attempt_badge(self)
        found_out = " (resolved by hand)" if action.resolution in {"created", "not_created"} else ""
        yield "state", (safe_text(f"{badge.text}{found_out}"), badge.tone)
        yield "email", (safe_text(self.email), "plain")
        yield "offer", (safe_text(self.offer_code or "standard trial"), "plain")
        if action.result_id:
            yield "organization", (safe_text(action.result_id), "plain")
        if found is not None:
            yield "name", (safe_text(f"{found.organization_name}  {found.organization_slug}"), "plain")
            yield "parent", (safe_text(found.parent_organization_id), "plain")
        if self.invited_until is not None:
            _, tone = _invitation(self, now)
            yield "invitation", (safe_text(full(self.invitation, self.invited_until, now)), tone)
        if action.error is not None:
            yield "reason", (safe_text(reason(action.error)), "warn" if self.is_unknown else "bad")
        if self.is_unknown:
            yield (
                "to do",
                (safe_text("Check whether it exists, then press v. Its address is blocked until then."), "warn"),
            )
        if action.superseded_by:
            yield "sent again", (safe_text(action.superseded_by), "plain")
        yield "asked", (safe_text(f"{stamp(action.created_at)} by {action.actor}"), "quiet")
        yield "action", (safe_text(action.action_id), "quiet")

    def rest(self, _now: datetime) -> Content:
        """Nothing more."""
        return Content()


def attempt_badge(attempt: CreationAttempt) -> Badge:
    """The attempt's state."""
    if attempt.action.state == "confirmed":
        return _CREATED
    if attempt.action.resolution == "sent_again":
        return _SENT_AGAIN
    return action_badge(attempt.action.state)


def _organization(attempt: CreationAttempt) -> TonedText:
    found = attempt.organization
    if found is not None and found.organization_name:
        return safe_text(found.organization_name, limit=120), "plain"
    return safe_text(attempt.action.result_id or "-", limit=120), "quiet"


def _invitation(attempt: CreationAttempt, now: datetime) -> TonedText:
    if attempt.is_unknown:
        return safe_text("address blocked"), "warn"
    if attempt.invited_until is None:
        return safe_text("-"), "quiet"
    text, tone = short(attempt.invitation, now)
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
"""In the order of their counts."""
IMPORT_COLUMNS: Final = (
    Column(" line", 5),
    Column("state", 13),
    Column("email", 8, grows=2),
    # Narrower tables leave out the offer: a row's detail matters more.
    Column("offer", 15, wide_from=100),
    Column("", 12, grows=3),
)
BAR: Final = 24
"""Cells of the bar of progress."""


class ImportLine(Struct, frozen=True):
    """One row of the file, and its state."""

    line: int
    """Its line in the file, counted from 1."""
    email: SafeText
    offer: SafeText
    state: ImportRowState
    problem: SafeText
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
                badge.tone if self.state in {"invalid", "rejected", "unknown", "blocked", "refused"} else "quiet",
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
        return safe_text(reason(action.error) if action.error is not None else "being sent")
    if action.error is not None:
        before = "before: " if row.state == "to_create" else ""
        return safe_text(f"{before}{reason(action.error)}")
    return SafeText()


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
