"""The pages of a form after its fields: the request before it is sent, and its outcome."""

import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.engine.text import SafeText
from storage.records import ActionFailure
from widgets.forms.facts import FactList
from widgets.kit import SCROLL_KEYS
from widgets.kit.badges import Badge

_TOKEN: Final = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=:))|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)'
)
_STYLES: Final = {"key": "$primary", "text": "$foreground", "number": "$warning", "word": "bold $warning"}


def coloured(line: SafeText) -> Content:
    """A line of indented JSON in colour, by kind of token."""
    parts: list[str | tuple[str, str]] = []
    end = 0
    for token in _TOKEN.finditer(line):
        parts += [line[end : token.start()], (token.group(), _STYLES[token.lastgroup or "text"])]
        end = token.end()
    return Content.assemble(*parts, line[end:])


class RequestPreview(VerticalScroll):
    """A request before it is sent."""

    BINDINGS: ClassVar[list[BindingType]] = [*SCROLL_KEYS]
    DEFAULT_CSS = """
    RequestPreview {
        padding: 0 1;
        .request-preview--target { margin-bottom: 1; }
        .request-preview--body { background: $panel; padding: 1 2; }
        .request-preview--consequence { margin-bottom: 1; }
    }
    """

    def compose(self) -> ComposeResult:
        """Its consequence, its target and its body."""
        yield Static(classes="request-preview--consequence")
        yield Static(classes="request-preview--target")
        yield Static(classes="request-preview--body")

    def show(self, method: str, address: SafeText, body: Sequence[SafeText], consequence: Content) -> None:
        """Show the request: its full address, and its body as lines of indented JSON."""
        target = Content.assemble((method, "bold $accent"), " ", address)
        self.query_one(".request-preview--consequence", Static).update(consequence)
        self.query_one(".request-preview--target", Static).update(target)
        self.query_one(".request-preview--body", Static).update(Content("\n").join(map(coloured, body)))
        self.scroll_home(animate=False)

    def explain(self, consequence: Content) -> None:
        """Replace the description of its consequence."""
        self.query_one(".request-preview--consequence", Static).update(consequence)


OutcomeVerdict = Literal["done", "failed", "unknown", "blocked"]
_MARKS: Final[dict[OutcomeVerdict, Badge]] = {
    "done": Badge("✓", "", "good"),
    "failed": Badge("✗", "", "bad"),
    "unknown": Badge("?", "", "warn"),
    "blocked": Badge("⊘", "", "warn"),
}


class OutcomeText(Struct, frozen=True):
    """An outcome in words."""

    verdict: OutcomeVerdict
    headline: SafeText
    facts: tuple[tuple[str, SafeText], ...] = ()
    """Our names, possibly foreign values."""
    meaning: tuple[SafeText, ...] = ()
    """Paragraphs: the meaning and the next step."""


def reason(error: ActionFailure) -> str:
    """An error's message with its status and code."""
    where = ", ".join(filter(None, (f"HTTP {error.http_status}" if error.http_status else "", error.error_code)))
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
        """The headline, the facts and the meaning."""
        yield Static(classes="outcome-page--headline")
        yield FactList()
        yield Static(classes="outcome-page--meaning")

    def show(self, outcome: OutcomeText) -> None:
        """Show the outcome."""
        mark = _MARKS[outcome.verdict]
        self.query_one(".outcome-page--headline", Static).update(
            Content.assemble((f"{mark.glyph} {outcome.headline}", mark.style))
        )
        self.query_one(FactList).show(tuple((name, Content(value)) for name, value in outcome.facts))
        self.query_one(".outcome-page--meaning", Static).update(Content("\n\n".join(outcome.meaning)))
        self.scroll_home(animate=False)
