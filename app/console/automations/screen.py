"""The Automations tab: each rule as a sentence, with its last results and its next time; one of them in full."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget

from app.console.automations.loaders import JOURNAL, Automations, RulesFile, read_automations
from app.console.automations.rule_actions import RULE_BINDINGS, RuleActions
from app.console.base.screen import BaseScreen
from app.console.inbox.sheets import ChoiceSheet
from app.console.messages import OpenRun
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import UNREADABLE, storage_notice
from app.events import Event, StateChangedElsewhere
from app.rules.rule import Rule
from app.text import safe_text
from app.times import ago
from storage.errors import StorageError
from storage.records.decision import Decision
from widgets.automations.formatting import OUTCOMES, RuleView, runs_of
from widgets.automations.table import RulePane, RuleTable, StatusLine
from widgets.frame.notice import Notice
from widgets.line_table import LineTable

READ_EVERY: Final = timedelta(seconds=15)
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


class RulesScreen(BaseScreen):
    """A screen with a rule in focus: it reads the rules and runs their keys."""

    TAB = "automations"
    BINDINGS: ClassVar[list[BindingType]] = [
        *RULE_BINDINGS,
        Binding("r", "refresh", "refresh", tooltip="Read the rules and their results again", id="app.refresh"),
    ]

    def __init__(self, session: Session, file: RulesFile | None = None) -> None:
        super().__init__(session)
        self.file = file or RulesFile(session.settings)
        self._trouble: Notice | None = None
        """Trouble with the state or the configuration, which concerns this tab only."""
        self._read_at = session.clock()
        self._reader = CoalescedTask(self._read, self.run_worker)
        self.rule_actions = RuleActions(session, self.file, self._push, self.run_worker, self._reader.ask)

    def on_mount(self) -> None:
        """Read the rules."""
        self._reader.ask()

    def on_screen_resume(self) -> None:
        """Read what changed while another screen was shown."""
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Read again after another process decided; behind another screen, later."""
        if isinstance(event, StateChangedElsewhere) and self.is_current:
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Update the ages and check the file: a bot that died and an edited file cause no event."""
        self.query_one(RulePane).tick(now)
        if now - self._read_at >= READ_EVERY:
            self._reader.ask()

    def trouble(self) -> Notice | None:
        """The banner's notice, or None."""
        return self._trouble or super().trouble()

    def show_found(self, found: Automations | None) -> None:
        """Show the rules; None: they cannot be read."""

    @property
    def view(self) -> RuleView | None:
        """The view of the rule in focus."""
        return None

    @property
    def rule(self) -> Rule | None:
        """The rule in focus."""
        view, found = self.view, self.rule_actions.found
        return next((r for r in found.rules if r.name == view.key), None) if view and found else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the keys that have no effect now; without rules, hide them."""
        if action == "rule":
            is_possible = self.rule_actions.is_possible(str(parameters[0]), self.rule)
            return is_possible or (False if self.rule is None else None)
        return super().check_action(action, parameters)

    async def action_rule(self, name: str) -> None:
        """Act on the rule in focus."""
        await self.rule_actions.do(name, self.rule)

    def action_refresh(self) -> None:
        """Read the rules again and poll the service."""
        self.session.poll_soon()
        self._reader.ask()

    def _push(self, screen: Screen[Any], callback: Callable[[Any], None]) -> None:
        self.app.push_screen(screen, callback)

    async def _read(self) -> None:
        session = self.session
        engine = await session.opened()
        self._read_at = session.clock()
        settings, name = await asyncio.to_thread(self.file.read), session.profile.name
        problem = self.file.problem
        try:
            found = await read_automations(engine.usable_state(), settings, name, session.clock())
        except StorageError as error:
            # The trouble concerns this tab only: runs and hosts can still be stored.
            self._trouble = storage_notice(str(error))
            self.show_found(None)
        else:
            kept = ("The rules are shown as they were before.",)
            wrong = Notice("✗", "The configuration has a mistake", (safe_text(str(problem)), *kept), "bad")
            self._trouble = wrong if problem is not None else None
            self.rule_actions.found = found
            self.show_found(found)
        self.show_trouble()
        self.refresh_bindings()

    async def read_more(self) -> None:
        """Show the journal and the TOML of the rule in focus."""
        if (view := self.view) is None or self.session.engine is None:
            return
        try:
            journal = await self.session.engine.usable_state().journal(view.key, limit=JOURNAL)
        except StorageError:
            return  # The rules' reader reports it.
        written = await asyncio.to_thread(self.file.written, view.key)
        if self.view is not None and self.view.key == view.key:
            self.query_one(RulePane).show_more(self.view, journal, written, self.session.clock())


class AutomationsScreen(RulesScreen):
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
        self._place = ""
        """The place to go to once the rules are read."""
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
            place, self._place = self._place, ""
            if any(place == str(decision.decision_id) for decision in found.waiting):
                self.rule_actions.show_approvals(int(place))
            elif place:
                self._table.seek(place)

    def tick(self, now: datetime) -> None:
        """Update the ages."""
        super().tick(now)
        self._table.tick(now)

    def go_to(self, place: str) -> None:
        """Put the cursor on the rule of this name, or open the approval of this number."""
        self._place = place
        self._reader.ask()

    @property
    def place(self) -> str:
        """The rule under the cursor."""
        return "" if self.view is None else self.view.key

    def return_to(self, place: str) -> None:
        """Put the cursor on that rule."""
        self._table.seek(place)

    def action_pane(self) -> None:
        """Show or hide the rule beside the table."""
        self.query_one("#automations").toggle_class("-no-detail")

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        pane = self.query_one(RulePane)
        pane.show(self._table.item, self.session.clock())
        self.run_worker(self.read_more, exclusive=True, group="more")
        self.refresh_bindings()

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        if (view := self.view) is not None:
            self.app.push_screen(RuleScreen(self.session, self.file, view))

    @on(StatusLine.ApprovalsClicked)
    async def _approvals_clicked(self) -> None:
        await self.action_rule("approvals")


class RuleScreen(RulesScreen):
    """One rule on the full screen."""

    CSS = """
    RuleScreen RulePane, RuleScreen RulePane:focus { height: 1fr; border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,backspace", "back", "back", key_display="esc", tooltip="To the automations", id="automations.back"
        ),
        Binding("enter", "runs", "its runs", key_display="enter", tooltip="Of its decisions", id="automations.runs"),
    ]

    def __init__(self, session: Session, file: RulesFile, view: RuleView) -> None:
        super().__init__(session, file)
        self._view = view

    @property
    def view(self) -> RuleView | None:
        """The rule on show."""
        return self._view

    def compose_body(self) -> Iterable[Widget]:
        """Compose all facts of the rule."""
        yield RulePane()

    def on_mount(self) -> None:
        """Show the rule as the table had it, then read it again."""
        self.query_one(RulePane).show(self._view, self.session.clock())
        self.query_one(RulePane).focus()

    def show_found(self, found: Automations | None) -> None:
        """Show the rule."""
        views = found.views if found is not None else ()
        self._view = next((view for view in views if view.key == self._view.key), self._view)
        self.query_one(RulePane).show(self._view, self.session.clock())
        self.run_worker(self.read_more, exclusive=True, group="more")

    async def action_runs(self) -> None:
        """Open a run that the journal names; with several, ask which."""
        engine = await self.session.opened()
        found = runs_of(await engine.usable_state().journal(self._view.key, limit=JOURNAL))
        held = await engine.cache.details(tuple(found))
        choices = [
            (_decision_line(self._view, found[key], key, self.session.clock()), key) for key in found if key in held
        ]
        if len(choices) > 1:
            self.app.push_screen(ChoiceSheet("Open a decision's run", choices), self._open_run)
        elif choices:
            self._open_run(choices[0][1])
        else:
            self.session.notify("No decision in its journal is about a run that is held here.")

    def _open_run(self, run_id: str | None) -> None:
        if run_id is not None:
            self.post_message(OpenRun(run_id))

    def action_back(self) -> None:
        """Go back to the automations."""
        self.dismiss()


def _decision_line(view: RuleView, decision: Decision, run_id: str, now: datetime) -> Content:
    badge = OUTCOMES[decision.outcome]
    how = view.did(decision) if decision.result_id == run_id else "by"
    said = safe_text(f"  {ago(decision.decided_at, now):<9} {how} {run_id}", limit=120)
    return Content.assemble((badge.text, badge.style), said)
