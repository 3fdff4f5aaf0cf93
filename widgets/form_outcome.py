"""What became of a request: what happened, what is still true, and what to do next."""

from dataclasses import dataclass
from typing import Final, Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from widgets.badges import Badge

Verdict = Literal["done", "failed", "unknown", "blocked"]
_MARKS: Final[dict[Verdict, Badge]] = {
    "done": Badge("✓", "", "good"),
    "failed": Badge("✗", "", "bad"),
    "unknown": Badge("?", "", "warn"),
    "blocked": Badge("⊘", "", "warn"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """An outcome in words."""

    verdict: Verdict
    headline: SafeText
    facts: tuple[tuple[str, SafeText], ...] = ()
    """Names of our own, values of anyone's."""
    meaning: tuple[SafeText, ...] = ()
    """Paragraphs: what it means and what to do."""


class OutcomeFact(Horizontal):
    """A fact beside its name; long ones go on below themselves."""

    DEFAULT_CSS = """
    OutcomeFact {
        height: auto;
        .outcome-fact--name { width: 14; color: $text-muted; }
        .outcome-fact--value { width: 1fr; }
    }
    """

    def __init__(self, name: str, value: SafeText) -> None:
        super().__init__(
            Static(Content(name), classes="outcome-fact--name"), Static(Content(value), classes="outcome-fact--value")
        )


class OutcomePage(VerticalScroll):
    """Shows an outcome."""

    DEFAULT_CSS = """
    OutcomePage {
        padding: 1 2;
        .outcome-page--headline { text-style: bold; margin-bottom: 1; }
        .outcome-page--facts { height: auto; margin-bottom: 1; }
    }
    """
    can_focus = False

    def compose(self) -> ComposeResult:
        """The headline, the facts, the meaning."""
        yield Static(classes="outcome-page--headline")
        yield Vertical(classes="outcome-page--facts")
        yield Static(classes="outcome-page--meaning")

    def show(self, outcome: Outcome) -> None:
        """Takes the outcome."""
        mark = _MARKS[outcome.verdict]
        self.query_one(".outcome-page--headline", Static).update(
            Content.assemble((f"{mark.glyph} {outcome.headline}", mark.style))
        )
        box = self.query_one(".outcome-page--facts", Vertical)
        box.display = bool(outcome.facts)
        box.remove_children()
        box.mount(*(OutcomeFact(name, value) for name, value in outcome.facts))
        self.query_one(".outcome-page--meaning", Static).update(Content("\n\n".join(outcome.meaning)))
        self.scroll_home(animate=False)
