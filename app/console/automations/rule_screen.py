"""The screen of one rule: all its facts, and the runs of its decisions."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from app.console.automations.loaders import JOURNAL, Automations, RulesFile
from app.console.automations.rule_keys import RuleKeysScreen
from app.console.messages import OpenRun
from app.console.session import Session
from app.console.sheets.choice import ChoiceSheet
from app.text import safe_text
from app.times import ago
from storage.records.decision import Decision
from widgets.automations.formatting import OUTCOMES, RuleView, runs_of
from widgets.automations.table import RulePane


class RuleScreen(RuleKeysScreen):
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
        self.show_rule(self._view)

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
