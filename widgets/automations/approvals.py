"""Pending approvals as cards: the exact request, its cause, and until when it waits."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.text import SafeText, safe_text
from app.times import ago
from storage.records.decision import Decision
from widgets.automations.formatting import request_of, set_off_by, until
from widgets.badges import STYLES
from widgets.clickable import ClickableLine, ClickablePart
from widgets.forms.pages import coloured


@dataclass(frozen=True, slots=True)
class Approval:
    """One pending decision."""

    decision: Decision
    sentence: SafeText
    """The sentence that describes its rule."""
    expires: timedelta
    """How long it waits for an answer, from the decision on."""

    def heading(self, now: datetime) -> Content:
        """The rule, since and until when it waits, and its cause."""
        decision = self.decision
        end = decision.decided_at + self.expires
        asked, expires = ago(decision.decided_at, now), until(end, now) if end > now else "now"
        return Content.assemble(
            (f"! {safe_text(decision.rule, limit=100)}", f"{STYLES['warn']} bold"),
            (f"\nasked {asked}, expires {expires}; set off by ", STYLES["quiet"]),
            set_off_by(decision, now),
        )

    @property
    def request(self) -> Content:
        """Method, path and body; an action that sends nothing to the service describes itself."""
        path, body = request_of(self.decision)
        if not path:
            return Content(self.sentence)
        return Content("\n").join((Content.assemble(("POST", "bold $accent"), " ", path), *map(coloured, body)))


class ApprovalCard(Widget, can_focus=True):
    """One pending approval, with its answers."""

    DEFAULT_CSS = """
    ApprovalCard {
        height: auto; margin: 0 0 1 0; padding: 0 1; border-left: solid $panel;
        & > Static { height: auto; }
        .approval-card--request { padding: 0 1; background: $panel; }
        ClickableLine { height: 1; margin: 1 0; }
        &:focus { border-left: outer $warning; }
    }
    """

    @dataclass
    class Answered(Message):
        """Approving or rejecting was requested; nothing is done yet."""

        approval: Approval
        is_approved: bool

    def __init__(self, approval: Approval, now: datetime) -> None:
        super().__init__()
        self.approval = approval
        self._now = now

    def compose(self) -> ComposeResult:
        """Compose the heading, the two answers, always in view, and the request, which may be long."""
        yield Static(self.approval.heading(self._now), markup=False)
        yield ClickableLine(self._answers)
        yield Static(self.approval.request, classes="approval-card--request", markup=False)

    def _answers(self) -> Iterator[ClickablePart]:
        for key, word, is_approved in (("^s", "approve", True), ("X", "reject", False)):
            words = Content.assemble((f"{key} ", "$accent bold"), (f"{word}…", STYLES["quiet"]))
            yield words, self.Answered(self.approval, is_approved)
            yield Content("    "), None

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        self.query(Static).first().update(self.approval.heading(now))
