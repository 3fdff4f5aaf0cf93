"""The text of a rule beside its meaning, updated while it is typed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static, TextArea

from app.text import SafeText
from app.times import stamp
from widgets.automations.formatting import RuleView, until
from widgets.badges import STYLES
from widgets.forms.inputs import ParagraphInput


@dataclass(frozen=True, slots=True)
class Mistake:
    """A problem in the text."""

    location: SafeText
    """Line and key; empty: it concerns no single line."""
    message: SafeText
    cure: SafeText


class RuleEditor(Widget):
    """The text on one side, its meaning on the other."""

    DEFAULT_CSS = """
    RuleEditor {
        layout: vertical; height: 100%;
        TextArea { height: 1fr; border: none; padding: 0; background: $panel; }
        TextArea:focus { border: none; }
        VerticalScroll { height: 8; padding: 0 1; border-top: solid $panel; scrollbar-size-vertical: 1; }
        VerticalScroll > Static { height: auto; }
    }
    """

    @dataclass
    class Changed(Message):
        """The text changed."""

    def compose(self) -> ComposeResult:
        """Compose the text and its meaning."""
        yield ParagraphInput(show_line_numbers=True, tab_behavior="focus", soft_wrap=True)
        with VerticalScroll(can_focus=False):
            yield Static(markup=False)

    @property
    def text(self) -> str:
        """The text of the rule as typed."""
        return self.query_one(ParagraphInput).text

    def fill(self, text: str) -> None:
        """Replace all of it, with undo; the cursor goes to the first missing value."""
        area = self.query_one(ParagraphInput)
        area.replace(text, (0, 0), area.document.end)
        lines = enumerate(text.splitlines())
        area.move_cursor(next(((row, line.index('""') + 1) for row, line in lines if '""' in line), (0, 0)))

    def take_focus(self) -> None:
        """Focus the text."""
        self.query_one(ParagraphInput).focus()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Announce the change."""
        event.stop()
        self.post_message(self.Changed())

    def show(self, found: RuleView | Mistake, now: datetime) -> None:
        """Show the text's meaning."""
        lines = _mistake(found) if isinstance(found, Mistake) else _reads(found, now)
        self.query_one(Static).update(Content("\n").join(lines))


def _mistake(mistake: Mistake) -> Iterator[Content]:
    yield Content.styled(f"✗ {mistake.location or 'not a rule yet'}", f"{STYLES['bad']} bold")
    yield Content(mistake.message)
    yield Content.styled(mistake.cure, STYLES["quiet"])


def _reads(rule: RuleView, now: datetime) -> Iterator[Content]:
    off = " It is off: enabled = false." if rule.mode == "off" else ""
    yield Content.assemble(("✓ ", STYLES["good"]), rule.sentence, (off, STYLES["warn"]))
    yield Content.styled(rule.limits, STYLES["quiet"])
    for line in rule.warnings:
        yield Content.styled(f"▲ {line}", STYLES["warn"])
    for index, at in enumerate(rule.upcoming):
        yield Content.assemble(("     " if index else "next ", STYLES["quiet"]), f"{stamp(at)}  {until(at, now)}")
