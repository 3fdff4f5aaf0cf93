"""The Automations tab: each rule as a sentence."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from app.automations.bot import rules_of
from app.console.base_screen import BaseScreen
from app.console.troubles import UNREADABLE
from app.rules.sentence import sentence
from app.text import safe_text
from widgets.badges import STYLES
from widgets.frame.notice import Notice, NoticePage

_NONE = Notice(
    "◌",
    "No automations yet",
    (
        "An automation starts or continues runs, or tells people: at a time, or when something happens.",
        "Each is an [[automations]] in the configuration; docs/automations.md has recipes.",
    ),
)


class AutomationsScreen(BaseScreen):
    """The rules of this profile."""

    TAB = "automations"
    CSS = "AutomationsScreen #rules { padding: 0 2; } AutomationsScreen .rule { height: auto; margin-bottom: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
    ]

    def compose_body(self) -> Iterable[Widget]:
        """One paragraph a rule; without any, what one is."""
        rules, now = rules_of(self.session.settings.automations, self.session.profile.name), self.session.clock()
        yield NoticePage(id="rules-none")
        with VerticalScroll(id="rules", classes="" if rules else "-none"):
            for rule in rules:
                name = (f"{safe_text(rule.name)}{'' if rule.is_on else '  (off)'}\n", f"{STYLES['plain']} bold")
                said = (safe_text(sentence(rule, now)), STYLES["quiet"])
                yield Static(Content.assemble(name, said), classes="rule", markup=False)

    def show_trouble(self) -> None:
        """The banner; without rules, what they are."""
        super().show_trouble()
        has_failed = self.session.storage_trouble is not None
        rules, nothing = self.query_one("#rules"), self.query_one(NoticePage)
        nothing.display = has_failed or rules.has_class("-none")
        rules.display = not nothing.display
        nothing.show(UNREADABLE if has_failed else _NONE)

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one("#rules").scroll_relative(y=lines, animate=False)
