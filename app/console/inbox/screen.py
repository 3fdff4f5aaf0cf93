"""The Inbox tab: what waits for a person, until it is dealt with."""

from collections.abc import Iterable

from textual.widget import Widget

from app.console.base_screen import INBOX, BaseScreen
from app.console.troubles import UNREADABLE
from widgets.frame.notice import Notice, NoticePage

NOTHING = Notice("✓", "Nothing waits for you", tone="good")


class InboxScreen(BaseScreen):
    """What happened, by cause."""

    TAB = INBOX

    def compose_body(self) -> Iterable[Widget]:
        """The items."""
        yield NoticePage(id="inbox-nothing")

    def show_trouble(self) -> None:
        """The banner, and why there is nothing, which may be the same trouble."""
        super().show_trouble()
        self.query_one(NoticePage).show(UNREADABLE if self.session.storage_trouble else NOTHING)
