"""What became of a request: what happened, what is still true, and what to do next."""

from dataclasses import dataclass
from typing import Final, Literal

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from storage.records import ActionError
from widgets.badges import Badge
from widgets.forms.facts import FactList

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


def reason(error: ActionError) -> str:
    """An error with its status and code."""
    parts = (f"HTTP {error.http_status}" if error.http_status else "", error.error_code or "")
    where = ", ".join(part for part in parts if part)
    return f"{error.message} ({where})" if where else error.message


class OutcomePage(VerticalScroll):
    """Shows an outcome."""

    DEFAULT_CSS = """
    OutcomePage {
        padding: 1 2;
        .outcome-page--headline { text-style: bold; margin-bottom: 1; }
        FactList { margin-bottom: 1; }
    }
    """
    can_focus = False

    def compose(self) -> ComposeResult:
        """The headline, the facts, the meaning."""
        yield Static(classes="outcome-page--headline")
        yield FactList()
        yield Static(classes="outcome-page--meaning")

    def show(self, outcome: Outcome) -> None:
        """Takes the outcome."""
        mark = _MARKS[outcome.verdict]
        self.query_one(".outcome-page--headline", Static).update(
            Content.assemble((f"{mark.glyph} {outcome.headline}", mark.style))
        )
        self.query_one(FactList).show(tuple((name, Content(value)) for name, value in outcome.facts))
        self.query_one(".outcome-page--meaning", Static).update(Content("\n\n".join(outcome.meaning)))
        self.scroll_home(animate=False)
