"""The Automations tab: each rule as a sentence, with its last results and its next time; one of them in full."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from app.console.automations.loaders import Automations
from app.console.automations.rule_keys import RuleKeysScreen
from app.console.automations.rule_screen import RuleScreen
from app.console.session import Session
from app.console.session.troubles import UNREADABLE
from widgets.automations.formatting import RuleView
from widgets.automations.table import RulePane, RuleTable, StatusLine
from widgets.frame.notice import Notice
from widgets.line_table import LineTable

READING: Final = Notice("◌", "Reading the automations…", tone="busy")
NONE_YET: Final = Notice(
    "○",
    "No automations yet",
    (
        "An automation acts by itself: it starts, continues or retries runs, runs a program, or tells people.",
        "It does so at a time, or when something happens to a run, a code host or a write.",
        "n writes the first one, from a template: what it does, when, and what it would have done.",
    ),
    "plain",
)


class AutomationsScreen(RuleKeysScreen):
    """All rules of this profile, and the one under the cursor in full."""

    CSS = """
    #automations-status { height: 1; }
    AutomationsScreen.-tall #automations-status { margin-bottom: 1; }
    #automations { height: 1fr; layout: vertical; }
    AutomationsScreen.-tall RuleTable { height: auto; max-height: 50%; }
    AutomationsScreen.-tall #automations.-empty RuleTable { height: 1fr; max-height: 100%; }
    AutomationsScreen RulePane { height: 1fr; }
    AutomationsScreen.-short RulePane { height: 11; }
    #automations.-empty RulePane, #automations.-no-detail RulePane { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "pane", "detail on/off", show=False, id="automations.pane"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._table = RuleTable(session.clock())
        self._requested = ""
        """The target to go to once the rules are read."""
        self._empty = READING
        """The reason for an empty table."""

    def compose_body(self) -> Iterable[Widget]:
        """Compose the bot's state, the rules and one of them."""
        yield StatusLine()
        with Container(id="automations", classes="-empty"):
            yield self._table
            yield RulePane()

    def on_mount(self) -> None:
        """Focus the table."""
        self._explain()
        self._table.focus()

    @property
    def view(self) -> RuleView | None:
        """The rule under the cursor."""
        return self._table.item if self.is_mounted else None

    def show_trouble(self) -> None:
        """Show trouble in the banner, and in the table while it is empty."""
        super().show_trouble()
        self._explain()

    def _explain(self) -> None:
        self._table.say(UNREADABLE if self.session.vitals.storage_trouble is not None else self._empty)

    def show_found(self, found: Automations | None) -> None:
        """Show the rules, or the reason for an empty table."""
        views = found.views if found is not None else ()
        self.query_one("#automations").set_class(not views, "-empty")
        self._empty = NONE_YET if found is not None else UNREADABLE
        self._explain()
        self._table.show(views)
        self._table.refresh(layout=True)
        if found is not None:
            self.query_one(StatusLine).show(found.status)
            target, self._requested = self._requested, ""
            if any(target == str(decision.decision_id) for decision in found.waiting):
                self.rule_actions.show_approvals(int(target))
            elif target:
                self._table.seek(target)

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        super().tick(now)
        self._table.tick(now)

    def go_to(self, target: str) -> None:
        """Put the cursor on the rule of this name, or open the approval of this number."""
        self._requested = target
        self._reader.ask()

    @property
    def bookmark(self) -> str:
        """The rule under the cursor."""
        return "" if self.view is None else self.view.key

    def return_to(self, bookmark: str) -> None:
        """Put the cursor on that rule."""
        self._table.seek(bookmark)

    def action_pane(self) -> None:
        """Show or hide the rule beside the table."""
        self.query_one("#automations").toggle_class("-no-detail")

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        self.show_rule(self._table.item)
        self.refresh_bindings()

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        if (view := self.view) is not None:
            self.app.push_screen(RuleScreen(self.session, self.file, view))

    @on(StatusLine.ApprovalsClicked)
    async def _approvals_clicked(self) -> None:
        await self.action_rule("approvals")
