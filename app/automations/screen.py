"""The Automations tab: each rule in a sentence with its last results and next time, and one rule in full."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from app.automations.acting import CannotActError
from app.automations.bot import Bot, hand_over, working_process
from app.automations.occurrences import is_within
from app.automations.rule import OnRun, OnStuck, Rule, fingerprint
from app.automations.screen_data import Automations, RulesFile, read_automations
from app.automations.screen_sheets import JOURNAL, ApprovalsSheet, ReplaySheet
from app.console.base import TABS_CSS, BaseScreen
from app.console.feeds import CoalescedTask
from app.console.session import FIX_TOAST_S, OpenRun, Session, mark_of
from app.console.sheets import ChoiceSheet, ConfirmSheet
from app.console.troubles import UNREADABLE, storage_notice
from app.engine.events import Event, StateChangedElsewhere
from app.engine.files import login
from app.engine.text import safe_block, safe_text
from app.engine.times import ago, start_text
from app.profiles import ConfigError
from storage.errors import StorageError
from storage.records import FINAL_STATUSES, RunFilter
from storage.records.decision import BY_HAND, Decision
from widgets.automations import COLUMNS, OUTCOMES, RulePane, RuleTable, RuleView, StatusLine, runs_of
from widgets.forms.dialog import colour_line
from widgets.forms.facts import TableAndFacts
from widgets.frame import Notice
from widgets.kit import hidden
from widgets.kit.badges import run_badge
from widgets.kit.line_table import LineTable

READ_EVERY: Final = timedelta(seconds=15)
RUNS_OFFERED: Final = 50
RUNS_SEARCHED: Final = 1_000
READING: Final = Notice("◌", "Reading the automations…", tone="busy")
NO_AUTOMATIONS: Final = Notice(
    "○",
    "No automations yet",
    (
        "An automation starts, continues or retries runs, runs a program, or sends a notification.",
        "It acts on a schedule, or when a run, a code host or a write changes.",
        "Press n to create one from a template and replay it over the cached history.",
    ),
    "plain",
)
NO_FILE: Final = "There is no configuration file yet. Create one: runwarden config init"
ABOUT_A_RULE: Final = frozenset({"edit", "replay", "pause", "set_off", "copy"})


class AutomationsScreen(BaseScreen):
    """All rules of this profile, and the one under the cursor in full."""

    TAB = "automations"
    CSS_PATH = TABS_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "V", "approvals", "approvals", tooltip="Approve or reject waiting requests", id="automations.approvals"
        ),
        Binding("n", "new", "new", tooltip="Create an automation from a template", id="automations.new"),
        Binding("E", "edit", "edit", tooltip="Edit its table in the configuration", id="automations.edit"),
        Binding("ctrl+g", "replay", "replay", tooltip="Replay it over the cached history", id="automations.replay"),
        Binding("P", "pause", "pause/resume", tooltip="Events are skipped while it is paused", id="automations.pause"),
        Binding("S", "set_off", "run now", tooltip="Run it now, within its limits", id="automations.set_off"),
        hidden("y", "copy", "copy name", tooltip="Copy the name for the command line", id="automations.copy"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._engine = session.open_engine
        self._table = RuleTable(session.clock(), COLUMNS)
        self._list = TableAndFacts(self._table, RulePane(), id="automations")
        self._file = RulesFile(session.settings)
        self._automations: Automations | None = None
        self._requested = ""
        self._empty = READING
        self._trouble: Notice | None = None
        """A problem with the state or the configuration, which affects this tab only."""
        self._read_at = session.clock()
        self._reader = CoalescedTask(self._read, self.run_worker)

    def compose_body(self) -> Iterable[Widget]:
        yield StatusLine(id="automations-status")
        yield self._list

    @property
    def _view(self) -> RuleView | None:
        return self._table.item if self.is_mounted else None

    @property
    def _rule(self) -> Rule | None:
        if self._automations:
            return self._automations.rules.get(self.bookmark)
        return None

    def on_mount(self) -> None:
        self._table.focus()
        self._reader.ask()

    def on_screen_resume(self) -> None:
        self._reader.ask()

    def engine_changed(self, event: Event) -> None:
        """Reload after another process decided something; `on_screen_resume` does so for a hidden tab."""
        if isinstance(event, StateChangedElsewhere) and self.is_current:
            self._reader.ask()

    def tick(self, now: datetime) -> None:
        """Update the ages, and reload now and then: a bot that dies or an edited file sends no event."""
        self._list.tick(now)
        if now - self._read_at >= READ_EVERY:
            self._reader.ask()

    def trouble(self) -> Notice | None:
        return self._trouble or super().trouble()

    def show_trouble(self) -> None:
        super().show_trouble()
        self._table.notice = UNREADABLE if self.session.vitals.storage_trouble is not None else self._empty

    def go_to(self, target: str) -> None:
        """Put the cursor on the rule of this name; `approval:NAME` opens the approvals, with the rule's marked."""
        self._requested = target
        self._reader.ask()

    @property
    def bookmark(self) -> str:
        return "" if self._view is None else self._view.key

    def return_to(self, bookmark: Any) -> None:
        self._table.seek(bookmark)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim keys that have no effect now; hide them while there are no rules."""
        is_possible = self._rule is not None if action in ABOUT_A_RULE | {"approvals"} else True
        if action == "approvals":
            is_possible = self._automations is not None and bool(self._automations.waiting)
        if action == "set_off" and self.session.profile.read_only:
            is_possible = False
        if not is_possible:
            return False if self._rule is None else None
        return super().check_action(action, parameters)

    async def _read(self) -> None:
        session = self.session
        self._read_at = session.clock()
        settings = await asyncio.to_thread(self._file.read)
        trouble, automations = None, None
        if self._file.problem is not None:
            lines = (safe_text(str(self._file.problem)), "The previous rules are shown.")
            trouble = Notice("✗", "The configuration has a mistake", lines, "bad")
        try:
            state = self._engine.usable_state()
            automations = await read_automations(state, settings, session.profile.name, session.clock())
        except StorageError as error:
            # Only this tab is affected: runs and hosts can still be stored.
            trouble = storage_notice(str(error))
        self._trouble = trouble
        self._empty = UNREADABLE if automations is None else NO_AUTOMATIONS
        self.show_trouble()
        self._list.show(() if automations is None else automations.views)
        self._table.refresh(layout=True)
        if automations is not None:
            self._automations = automations
            self.query_one(StatusLine).status = automations.status
            target, self._requested = self._requested, ""
            if any(target == f"approval:{decision.rule}" for decision in automations.waiting):
                self.action_approvals(target.removeprefix("approval:"))
            elif target:
                self._table.seek(target)
        self.refresh_bindings()

    @on(LineTable.Highlighted)
    @work(exclusive=True, group="more")
    async def read_journal(self) -> None:
        if (view := self._view) is None:
            return
        journal = await self._engine.usable_state().journal(view.key, limit=JOURNAL)
        written = await asyncio.to_thread(self._file.rule_text, view.key)
        if self._view is not None and self._view.key == view.key:
            self.query_one(RulePane).show_more(journal, written, self.session.clock())

    def action_refresh(self) -> None:
        super().action_refresh()
        self._reader.ask()

    def action_approvals(self, rule: str = "") -> None:
        """Show the requests that wait for approval, with those of this rule marked."""
        self.app.push_screen(ApprovalsSheet(self.session, self._file, rule), lambda _: self._reader.ask())

    @work
    async def action_new(self) -> None:
        await self._edit(None)

    @work
    async def action_edit(self) -> None:
        """Edit the rule in $EDITOR, then in the form, which checks it."""
        if (rule := self._rule) is not None:
            await self._edit(rule.name)

    async def _edit(self, name: str | None) -> None:
        from app.automations.screen_form import AutomationForm
        from app.automations.tables import read_tables

        if (file := self._file.settings.file) is None:
            self.session.notify(NO_FILE, severity="warning", timeout=FIX_TOAST_S)
            return
        try:
            form = AutomationForm(self._engine, self._file, await asyncio.to_thread(read_tables, file), name)
        except ConfigError as error:
            self.session.notify(str(error), severity="warning", timeout=FIX_TOAST_S)
            return
        if (saved := await self.app.push_screen_wait(form)) is None:
            return
        # A running bot reloads the file.
        self.session.inbox.use_automations(self._file.settings.automations)
        self._reader.ask()
        bot = await working_process(self._engine.usable_state(), self.session.clock())
        if bot is None:
            then = f"No bot is running: start one with {self._file.settings.command_line} watch."
        elif hand_over(bot):
            then = f"The bot (process {bot}) reloads it now."
        else:
            then = f"To reload it in the running bot: kill -HUP {bot}"
        self.session.notify(f"Saved: {safe_text(saved, limit=60)}. {then}", timeout=FIX_TOAST_S)

    def action_replay(self) -> None:
        if (rule := self._rule) is not None:
            self.app.push_screen(ReplaySheet(self._engine, rule))

    async def action_pause(self) -> None:
        if (rule := self._rule) is None:
            return
        state = self._engine.usable_state()
        paused = (await state.begin_rule(rule.name, fingerprint(rule), self.session.clock())).paused
        if paused is None:
            await state.pause(rule.name, f"{BY_HAND}{login()}")
        else:
            await state.resume(rule.name)
        word = "Paused" if paused is None else "Resumed"
        self.session.notify(f"{word}: {safe_text(rule.name, limit=60)}. Press P to undo.")
        self._reader.ask()

    def action_copy(self) -> None:
        if (rule := self._rule) is not None:
            self.session.copy(rule.name)

    @work(group="send")
    async def action_set_off(self) -> None:
        """Run the rule now, on a chosen run if it needs one, after showing the exact effect."""
        if (rule := self._rule) is None:
            return
        run_id = None
        name = safe_text(rule.name, limit=60)
        if isinstance(rule.on, OnRun | OnStuck) and (run_id := await self._choose_run(rule.on)) is None:
            return
        decisions = list[Decision]()
        bot = Bot(self._file.settings, self._engine, lambda *_, **__: None, decisions.append)
        title = safe_text(f"Run now: {rule.name}", limit=80)
        try:
            verb, target, body = await bot.preview(rule, run_id)
            facts = [
                Content("It counts towards the limits and is recorded in the journal."),
                Content.assemble((verb, "bold $accent"), " ", safe_text(target)),
                *map(colour_line, safe_block(body)),
            ]
            sheet = ConfirmSheet(title, facts, verb="Run it now", leaving="Leave it")
            sheet.mark = mark_of(self.session)
            if not await self.app.push_screen_wait(sheet):
                return
            await bot.trigger(rule, run_id)
        except CannotActError as error:
            self.session.notify(f"{name}: {error}.", severity="warning")
            return
        if decisions:
            decision = decisions[-1]
            reason = f": {safe_text(decision.reason, limit=200)}" if decision.reason else ""
            result = f" → {safe_text(decision.result_id)}" if decision.result_id else ""
            self.session.notify(f"{OUTCOMES[decision.outcome].text}{result}{reason}", title=name, timeout=FIX_TOAST_S)
        self._reader.ask()

    async def _choose_run(self, on: OnRun | OnStuck) -> str | None:
        """Let the user choose one of the newest runs that match the trigger."""
        statuses: tuple[str, ...] = ()
        if isinstance(on, OnRun):
            statuses = (on.to,) if on.to else tuple(FINAL_STATUSES)
        newest = await self._engine.cache.runs(RunFilter(statuses=statuses), RUNS_SEARCHED)
        runs = [run for run in newest if is_within(on.scope, run.repository.label, run.branch_name)][:RUNS_OFFERED]
        if not runs:
            self.session.notify("It needs a run, but no cached run matches it.", severity="warning")
            return None
        now = self.session.run_now()
        choices = list[tuple[Content, str]]()
        for run in runs:
            badge = run_badge(run.status)
            place = f"{safe_text(run.repository.label, limit=60)}  {safe_text(run.branch_name, limit=60)}"
            when = f"{start_text(run.created_at, now)}  {safe_text(run.run_id)}"
            choices.append((Content.assemble((badge.text, badge.style), f"  {place}\n  {when}"), run.run_id))
        return await self.app.push_screen_wait(ChoiceSheet("Choose a run", choices))

    @on(LineTable.Chosen)
    @work
    async def open_run(self) -> None:
        if (view := self._view) is None:
            return
        now = self.session.clock()
        decisions = runs_of(await self._engine.usable_state().journal(view.key, limit=JOURNAL))
        cached = await self._engine.cache.details(tuple(decisions))
        choices: list[tuple[Content, str]] = []
        for run_id, decision in decisions.items():
            if run_id in cached:
                badge = OUTCOMES[decision.outcome]
                verb = view.did(decision) if decision.result_id == run_id else "by"
                line = safe_text(f"  {ago(decision.decided_at, now):<9} {verb} {run_id}", limit=120)
                choices.append((Content.assemble((badge.text, badge.style), line), run_id))
        chosen: str | None = choices[0][1] if choices else None
        if len(choices) > 1:
            chosen = await self.app.push_screen_wait(ChoiceSheet("Open a decision's run", choices))
        elif not choices:
            self.session.notify("No decision in its journal is about a cached run.")
        if chosen is not None:
            self.post_message(OpenRun(chosen))
