"""The frame of every form: fields, preview, waiting and outcome in one place, so that nothing jumps."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Center, Horizontal, Middle, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Static

from app.engine.text import SafeText, safe_text
from storage.records import ActionFailure
from widgets.forms.facts import FactList
from widgets.forms.field import toned_text
from widgets.kit import SCROLL_KEYS
from widgets.kit.badges import NO_MARK, Badge, ProfileMark, Tone

_TOKEN: Final = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=:))|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|(?P<word>true|false|null)'
)
_STYLES: Final = {"key": "$primary", "text": "$foreground", "number": "$warning", "word": "bold $warning"}


def colour_line(line: SafeText) -> Content:
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
        yield Static(classes="request-preview--consequence")
        yield Static(classes="request-preview--target")
        yield Static(classes="request-preview--body")

    def show(self, method: str, address: SafeText, body: Sequence[SafeText], consequence: Content) -> None:
        target = Content.assemble((method, "bold $accent"), " ", address)
        self.query_one(".request-preview--consequence", Static).update(consequence)
        self.query_one(".request-preview--target", Static).update(target)
        self.query_one(".request-preview--body", Static).update(Content("\n").join(map(colour_line, body)))
        self.scroll_home(animate=False)


OutcomeVerdict = Literal["done", "failed", "unknown", "blocked"]
_MARKS: Final[dict[OutcomeVerdict, Badge]] = {
    "done": Badge("✓", "", "good"),
    "failed": Badge("✗", "", "bad"),
    "unknown": Badge("?", "", "warn"),
    "blocked": Badge("⊘", "", "warn"),
}


class OutcomeText(Struct, frozen=True):
    """An outcome in words, made safe when it is shown."""

    verdict: OutcomeVerdict
    headline: str
    facts: tuple[tuple[str, str], ...] = ()
    """Our names, possibly foreign values."""
    meaning: tuple[str, ...] = ()
    """Paragraphs: the meaning and the next step."""


def reason(error: ActionFailure) -> str:
    status = ", ".join(filter(None, (f"HTTP {error.http_status}" if error.http_status else "", error.error_code)))
    return f"{error.message} ({status})" if status else error.message


class OutcomePage(VerticalScroll):
    """Shows an outcome: its headline, facts and meaning."""

    DEFAULT_CSS = """
    OutcomePage {
        padding: 1 2;
        .outcome-page--headline { text-style: bold; margin-bottom: 1; }
        FactList { margin-bottom: 1; }
    }
    """
    can_focus = False

    def compose(self) -> ComposeResult:
        yield Static(classes="outcome-page--headline")
        yield FactList()
        yield Static(classes="outcome-page--meaning")

    def show(self, outcome: OutcomeText) -> None:
        mark = _MARKS[outcome.verdict]
        self.query_one(".outcome-page--headline", Static).update(
            Content.assemble((f"{mark.glyph} {safe_text(outcome.headline)}", mark.style))
        )
        self.query_one(FactList).show(tuple((name, Content(safe_text(value))) for name, value in outcome.facts))
        self.query_one(".outcome-page--meaning", Static).update(Content("\n\n".join(map(safe_text, outcome.meaning))))
        self.scroll_home(animate=False)


FormPhase = Literal["editing", "preview", "sending", "refused", "outcome"]
"""`refused`: nothing was sent, and the fields are one step back; `outcome`: it was sent."""
_KEYS: Final = {"esc": "escape", "^s": "ctrl+s,ctrl+enter"}


class FormButton(Struct, frozen=True):
    """One button of a form."""

    name: str
    label: str
    key: str
    """The key, as shown on the button: `^s`, `esc` or a letter."""
    action: str
    phases: tuple[FormPhase, ...]
    is_primary: bool = False


def bindings_of(buttons: Sequence[FormButton]) -> list[BindingType]:
    """The buttons' keys; all except letters and enter work whatever has the focus, before the input sees them."""
    labels: dict[tuple[str, str], str] = {}
    for button in buttons:
        labels.setdefault((button.key, button.action), button.label)
    return [
        Binding(_KEYS.get(key, key.replace("^", "ctrl+")), action, label, priority=key == "esc" or "^" in key)
        for (key, action), label in labels.items()
    ]


class FormDialog(Vertical):
    """A form's dialog: its pages, notes and buttons."""

    DEFAULT_CSS = Path(__file__).with_name("dialog.tcss").read_text("utf-8")

    def __init__(
        self,
        title: str,
        rows: Sequence[Widget],
        verbs: Sequence[FormButton],
        steps: Sequence[str] = ("edit", "preview", "sent"),
        mark: ProfileMark = NO_MARK,
    ) -> None:
        super().__init__()
        self._steps = steps
        mark.entitle(self, title)
        self._rows = rows
        self._verbs = verbs
        self._banner: str | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="note")
        with VerticalScroll(id="fields", can_focus=False):
            yield from self._rows
        yield RequestPreview(id="preview")
        with Middle(id="sending"), Center():
            yield Static(id="sending-text")
        yield OutcomePage(id="outcome")
        yield Static(id="banner")
        buttons: dict[bool, list[Button]] = {False: [], True: []}
        for verb in self._verbs:
            # Textual adds this class by itself, but only to a mounted button, whose styles it then computes again.
            look = f"{'-main' if verb.is_primary else ''} -style-default"
            label = Content.assemble(verb.label, " ", (verb.key, "dim"))
            name = f"verb-{verb.name}"
            button = Button(label, id=name, action=f"screen.{verb.action}", classes=look, compact=True)
            buttons[verb.is_primary].append(button)
        with Horizontal(id="verbs"):
            yield from buttons[False]
            with Horizontal(id="primary"):
                yield from buttons[True]

    def enter(self, phase: FormPhase, without: frozenset[str] = frozenset()) -> None:
        """Show the phase's page and its buttons, except those named in `without`."""
        # Set `display`: a change of a class would compute the styles of the whole form again.
        current = {"editing": "fields", "refused": "outcome"}.get(phase, phase)
        for page in ("fields", "preview", "sending", "outcome"):
            self.query_one(f"#{page}").display = page == current
        for verb in self._verbs:
            self.query_one(f"#verb-{verb.name}").display = phase in verb.phases and verb.name not in without
        number = {"editing": 0, "preview": 1}.get(phase, 2)
        self.border_subtitle = Content(" ▸ ").join(
            Content.assemble((f"{step + 1} {word}", "bold $primary" if step == number else "$foreground 70%"))
            for step, word in enumerate(self._steps)
        )

    def note(self, text: str, tone: Tone = "quiet") -> None:
        """Show a note about the whole form, on a line that is always there."""
        self.query_one("#note", Static).update(toned_text(text, tone))

    def did(self, text: str, tone: Tone = "good") -> None:
        """Confirm a key's effect in place of the steps, until the next step; a toast would cover the buttons."""
        self.border_subtitle = toned_text(text, tone)

    def banner(self, text: str | None) -> None:
        """Show why the last attempt had no effect; None: hide it."""
        if text == self._banner:
            return
        self._banner = text
        banner = self.query_one("#banner", Static)
        banner.display = text is not None
        banner.update(toned_text(text or "", "bad"))

    def sending(self, text: str) -> None:
        self.query_one("#sending-text", Static).update(Content(safe_text(text)))
