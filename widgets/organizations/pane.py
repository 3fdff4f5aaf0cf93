"""The facts of one attempt, beside the table, below it, or alone."""

from datetime import datetime

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from widgets.forms.facts import FactList, toned
from widgets.organizations.formatting import Attempt, facts_of


class OrganizationPane(VerticalScroll):
    """One attempt."""

    DEFAULT_CSS = """
    OrganizationPane {
        height: 10;
        padding: 0 2;
        border-top: solid $panel;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $panel;
    }
    OrganizationPane:focus { border-top: solid $accent; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._attempt: Attempt | None = None

    def compose(self) -> ComposeResult:
        """One list."""
        yield FactList()

    def show(self, attempt: Attempt | None, now: datetime) -> None:
        """Takes the attempt; None: there is none."""
        if attempt is None or self._attempt is None or attempt.action.action_id != self._attempt.action.action_id:
            self.scroll_home(animate=False)
        self._attempt = attempt
        self.tick(now)

    def tick(self, now: datetime) -> None:
        """Paints again if something reads differently."""
        facts = facts_of(self._attempt, now) if self._attempt is not None else ()
        self.query_one(FactList).show(toned(facts))
