"""What the screens of the Automations tab have in common: reading the rules, and the keys of the one in focus."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.screen import Screen

from app.console.automations.loaders import JOURNAL, Automations, RulesFile, read_automations
from app.console.automations.rule_actions import RULE_BINDINGS, RuleActions
from app.console.base.screen import BaseScreen
from app.console.session import Session
from app.console.session.coalesced_task import CoalescedTask
from app.console.session.troubles import storage_notice
from app.events import Event, StateChangedElsewhere
from app.rules.rule import Rule
from app.text import safe_text
from storage.errors import StorageError
from widgets.automations.formatting import RuleView
from widgets.automations.table import RulePane
from widgets.frame.notice import Notice

READ_EVERY: Final = timedelta(seconds=15)


class RuleKeysScreen(BaseScreen):
    """Reads the rules and runs the keys of the one in focus; subclasses say which one that is."""

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
        self._journal_trouble: Notice | None = None
        """The journal of the rule in focus cannot be read."""
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
        return self._trouble or self._journal_trouble or super().trouble()

    def show_found(self, found: Automations | None) -> None:
        """Show the rules; None: they cannot be read."""
        raise NotImplementedError

    @property
    def view(self) -> RuleView | None:
        """The view of the rule in focus, or None."""
        raise NotImplementedError

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

    def show_rule(self, view: RuleView | None) -> None:
        """Show a rule in the pane; its journal and its TOML follow once they are read."""
        self.query_one(RulePane).show(view, self.session.clock())
        if view is not None:
            self.run_worker(partial(self._read_more, view), exclusive=True, group="more")

    async def _read_more(self, view: RuleView) -> None:
        if self.session.engine is None:
            return
        try:
            journal = await self.session.engine.usable_state().journal(view.key, limit=JOURNAL)
        except StorageError as error:
            self._journal_trouble = storage_notice(str(error))
            self.show_trouble()
            return
        if self._journal_trouble is not None:
            self._journal_trouble = None
            self.show_trouble()
        written = await asyncio.to_thread(self.file.written, view.key)
        if self.view is not None and self.view.key == view.key:
            self.query_one(RulePane).show_more(self.view, journal, written, self.session.clock())
