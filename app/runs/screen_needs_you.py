"""What needs you: questions, approvals, hosts that are down and new failures, above the list of runs."""

from datetime import datetime
from typing import Final

from app.console.messages import GoToTab
from app.console.session import Session
from storage.records.inbox import InboxKind
from widgets.inbox import InboxRow
from widgets.kit.cells import Column
from widgets.kit.cursor_view import HEADER
from widgets.kit.line_table import LineTable, TableLine
from widgets.runs.pane import AROUND
from widgets.runs.table import RunTable

KINDS: Final[frozenset[InboxKind]] = frozenset({"question", "approval", "failed", "host"})
MOST: Final = 5
"""The most items shown at a time; the others scroll."""
SHARE_OF_ROWS: Final = 8
"""One line in so many shows an item."""


class NeedsYouRow(InboxRow, frozen=True):
    """An item without its severity."""

    def cells(self, now: datetime) -> TableLine:
        """Kind, title, and the time of the last event."""
        return super().cells(now)[1:]


class NeedsYou(LineTable[NeedsYouRow]):
    """The inbox's items that cannot wait, in no more lines than there are; enter opens one in the inbox."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.clock(), (Column("needs you", 10), Column("", 8, grows=1), Column("when", 9)))
        self._session = session
        self.display = self.marks_resting = False

    def on_mount(self) -> None:
        """Show the items after each reading of the inbox."""
        self._session.inbox.changed.subscribe(self, lambda _: self.fit())

    def fit(self) -> None:
        """Show the items in as many lines as the terminal has for them."""
        items = self._session.inbox.items or () if self._session.settings.console.needs_you else ()
        # A host that is down is listed only if runs failed on it; old failures are in the inbox.
        fresh = (item for item in items if item.kind in KINDS and item.severity != "look")
        rows = tuple(NeedsYouRow(item) for item in fresh if item.kind != "host" or item.run_ids)
        most = min(len(rows), (self.app.size.height - AROUND) // SHARE_OF_ROWS)
        if self.has_focus and most < 1:
            self.screen.set_focus(self.screen.query_one(RunTable))
        self.show(rows)
        if not self.has_focus:
            self.action_first()
        self.display = most > 0
        self.styles.height = HEADER + min(most, MOST)

    def action_choose(self) -> None:
        """Open the item in the inbox."""
        if self.item is not None:
            self.post_message(GoToTab("inbox", self.item.key))
