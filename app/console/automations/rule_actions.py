"""The actions on a rule: pause, switch, trigger, replay, edit, and answering its approvals."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen

from app.automations.acting import CannotActError
from app.automations.bot import LEASE
from app.automations.by_hand import ByHand
from app.automations.occurrences import is_within
from app.automations.reloading import hand_over, process_of
from app.config import ConfigError
from app.config.automation_tables import read_tables, save_table, with_enabled
from app.console.automations.loaders import Automations, RulesFile
from app.console.automations.sheets import ApprovalsSheet, PreviewSheet
from app.console.session import CURE_S, Session
from app.console.sheets.choice import ChoiceSheet
from app.rules.rule import OnRun, OnStuck, Rule, fingerprint
from app.text import safe_text
from app.times import started
from storage.records import Run, RunFilter
from storage.state import State
from widgets.automations.approvals import Approval
from widgets.automations.formatting import OUTCOMES
from widgets.badges import run_badge

if TYPE_CHECKING:
    from app.engine import Engine
    from storage.records.decision import Decision

RUNS_OFFERED: Final = 50
RUNS_LOOKED_AT: Final = 1_000
NEEDS_A_FILE: Final = "There is no configuration file to write to. Make one with: runwarden config init"


def _bound(key: str, name: str, does: str, tooltip: str, **options: Any) -> Binding:
    return Binding(key, f"rule('{name}')", does, tooltip=tooltip, id=f"automations.{name}", **options)


RULE_BINDINGS: Final[list[BindingType]] = [
    _bound("v", "approvals", "approvals", "The requests that wait for approval"),
    _bound("n", "new", "new", "Write another automation, from a template"),
    _bound("E", "edit", "edit", "Its table in the configuration"),
    _bound("ctrl+g", "replay", "replay", "What it would have done over the cached history", key_display="^g"),
    _bound("P", "pause", "pause/resume", "While it is paused, what would set it off is skipped"),
    _bound("D", "switch", "on/off", "In the configuration"),
    _bound("S", "set_off", "run now", "Set it off by hand, within its limits"),
    _bound("y", "copy", "copy name", "For the command line", show=False),
]
"""For every screen that shows a rule; `action_rule` runs them."""


class RuleActions:
    """The actions on the rule in focus."""

    def __init__(
        self,
        session: Session,
        file: RulesFile,
        push: Callable[[Screen[Any], Callable[[Any], None]], object],
        run: Callable[[Callable[[], Any]], object],
        changed: Callable[[], None],
    ) -> None:
        """`run` starts work in the background, and `changed` is called when rules or state may have changed."""
        self._session = session
        self._file = file
        self._push = push
        self._run = run
        self._changed = changed
        self.found: Automations | None = None
        """The rules as read last."""

    def is_possible(self, name: str, rule: Rule | None) -> bool:
        """Whether the action has something to act on."""
        if name == "new":
            return True
        if name == "approvals":
            return self.found is not None and bool(self.found.waiting)
        return rule is not None and not (name == "set_off" and self._session.profile.read_only)

    async def do(self, name: str, rule: Rule | None) -> None:
        """Run the action of a key of `RULE_BINDINGS`.

        Raises:
            StorageError: The state cannot be read or written.
        """
        if name == "approvals":
            self.show_approvals()
        elif name == "new":
            await self._edit(None)
        elif rule is not None:
            await {
                "edit": self._edit,
                "replay": self._replay,
                "pause": self._pause,
                "switch": self._switch,
                "set_off": self._set_off,
                "copy": self._copy,
            }[name](rule)

    def show_approvals(self, first: int | None = None) -> None:
        """Show the pending approvals, beginning with this decision."""
        self._push(ApprovalsSheet(self._session, self._approvals, self._settle, first), lambda _: self._changed())

    async def saved(self, what: str) -> None:
        """Confirm what was written, and have a running bot read it.

        Raises:
            StorageError: The state cannot be read.
        """
        self._session.inbox.take_automations(self._file.settings.automations)
        self._changed()
        bot = process_of(await self._state.lease_owner(LEASE, self._session.clock()))
        if bot is None:
            then = f"No bot is running: start it with {self._file.settings.command_line} watch."
        elif hand_over(bot):
            then = f"The bot (process {bot}) reads it again now."
        else:
            then = f"The running bot uses it after: kill -HUP {bot}"
        self._session.notify(f"{what} {then}", timeout=CURE_S)

    async def _edit(self, rule: Rule | None) -> None:
        from app.console.automations.form import AutomationForm

        file = self._file.settings.file
        if file is None:
            self._session.notify(NEEDS_A_FILE, severity="warning", timeout=CURE_S)
            return
        try:
            tables = await asyncio.to_thread(read_tables, file)
            form = AutomationForm(self._engine, self._file, tables, None if rule is None else rule.name)
        except ConfigError as error:
            self._session.notify(str(error), severity="warning", timeout=CURE_S)
            return

        def closed(name: str | None) -> None:
            if name is not None:
                self._run(partial(self.saved, f"Saved: {safe_text(name, limit=60)}."))

        self._push(form, closed)

    async def _replay(self, rule: Rule) -> None:
        from app.console.automations.replay_sheet import ReplaySheet

        self._push(ReplaySheet(self._engine, rule), lambda _: None)

    async def _pause(self, rule: Rule) -> None:
        state = await self._state.begin_rule(rule.name, fingerprint(rule), self._session.clock())
        if state.paused is None:
            await self._state.pause(rule.name, f"by {self._login}")
        else:
            await self._state.resume(rule.name)
        word = "Paused" if state.paused is None else "Resumed"
        self._session.notify(f"{word}: {safe_text(rule.name, limit=60)}. P takes it back.")
        self._changed()

    async def _switch(self, rule: Rule) -> None:
        file = self._file.settings.file
        if file is None:
            self._session.notify(NEEDS_A_FILE, severity="warning", timeout=CURE_S)
            return

        def write() -> None:
            tables = read_tables(file)
            written = with_enabled(tables.written(rule.name), is_on=not rule.is_on)
            self._file.take(save_table(tables, rule.name, written))

        try:
            await asyncio.to_thread(write)
        except ConfigError as error:
            self._session.notify(str(error), severity="error", timeout=CURE_S)
        else:
            await self.saved(f"Switched {'off' if rule.is_on else 'on'}: {safe_text(rule.name, limit=60)}.")

    async def _copy(self, rule: Rule) -> None:
        self._session.copy(rule.name)

    async def _set_off(self, rule: Rule) -> None:
        if not isinstance(rule.on, OnRun | OnStuck):
            await self._confirm(rule, None)
            return
        statuses = (rule.on.to,) if isinstance(rule.on, OnRun) else ()
        found = await self._engine.cache.runs(RunFilter(statuses=statuses), RUNS_LOOKED_AT)
        scope = rule.on.scope
        runs = [run for run in found if is_within(scope, run.repository.label, run.branch_name)][:RUNS_OFFERED]
        if not runs:
            self._session.notify("It needs a run, and none that it matches is in the cache.", severity="warning")
            return

        def picked(run_id: str | None) -> None:
            if run_id is not None:
                self._run(partial(self._confirm, rule, run_id))

        self._push(ChoiceSheet("On which run?", [(self._line(run), run.run_id) for run in runs]), picked)

    def _line(self, run: Run) -> Content:
        badge, when = run_badge(run.status), started(run.created_at, self._session.run_now())
        where = f"{safe_text(run.repository.label, limit=60)}  {safe_text(run.branch_name, limit=60)}"
        return Content.assemble((badge.text, badge.style), f"  {where}\n  {when}  {safe_text(run.run_id)}")

    async def _confirm(self, rule: Rule, run_id: str | None) -> None:
        by_hand = ByHand(self._file.settings, self._engine, self._state)
        try:
            preview = await by_hand.preview(rule, run_id)
        except CannotActError as error:
            self._session.notify(f"{safe_text(rule.name, limit=60)}: {error}.", severity="warning")
            return

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self._run(partial(self._act, by_hand, rule, run_id))

        limits = "Within its limits: what it does counts towards them, and its journal says so."
        title = safe_text(f"Run now: {rule.name}", limit=80)
        self._push(PreviewSheet(title, "sets it off", preview, limits), answered)

    async def _act(self, by_hand: ByHand, rule: Rule, run_id: str | None) -> None:
        try:
            decision = await by_hand.set_off(rule, run_id)
        except CannotActError as error:
            self._session.notify(f"{safe_text(rule.name, limit=60)}: {error}.", severity="warning")
            return
        if decision is not None:
            badge = OUTCOMES[decision.outcome]
            why = f": {safe_text(decision.reason, limit=200)}" if decision.reason else ""
            made = f" → {safe_text(decision.result_id)}" if decision.result_id else ""
            self._session.notify(f"{badge.text}{made}{why}", title=safe_text(rule.name, limit=60), timeout=CURE_S)
        self._changed()

    async def _approvals(self) -> list[Approval]:
        waiting: tuple[Decision, ...] = (await self._state.journal(outcomes=("waiting",)))[::-1]
        rules = {rule.name: rule for rule in self._file.settings.automations}
        views = {view.key: view for view in self.found.views} if self.found is not None else {}
        known = [each for each in waiting if each.rule in rules and each.rule in views]
        return [Approval(each, views[each.rule].sentence, rules[each.rule].approval_expires) for each in known]

    async def _settle(self, approval: Approval, is_approved: bool) -> None:
        number, now = approval.decision.decision_id, self._now
        if is_approved:
            done = await self._state.take(number, "waiting", "approved", f"approved by {self._login}")
        else:
            done = await self._state.reject(number, f"rejected by {self._login}", now)
        name = safe_text(approval.decision.rule, limit=60)
        if not done:
            said = f"{name} no longer waits: its journal says what became of it."
        elif not is_approved:
            said = f"Rejected: {name}."
        elif self.found is not None and self.found.bot is None:
            start = f"{self._file.settings.command_line} watch"
            said = f"Approved: {name}. It is sent as soon as a bot is running: {start}"
        else:
            said = f"Approved: {name}. The bot sends it."
        self._session.notify(said)
        self._changed()

    @property
    def _now(self) -> datetime:
        return self._session.clock()

    @property
    def _engine(self) -> "Engine":
        if self._session.engine is None:
            raise RuntimeError("No screen but Runs is entered before the engine is open.")
        return self._session.engine

    @property
    def _state(self) -> State:
        return self._engine.usable_state()

    @property
    def _login(self) -> str:
        return self._engine.actions.actor.rpartition(":")[2]
