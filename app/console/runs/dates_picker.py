"""From when on, and until when, runs are wanted."""

from datetime import datetime
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.console.picker import PickerScreen
from app.query import parse
from app.text import safe_text
from widgets.badges import STYLES
from widgets.forms.inputs import LineInput
from widgets.times import stamp

PRESETS: Final = (
    ("any time", ""),
    ("the last hour", "1h"),
    ("the last 24 hours", "24h"),
    ("the last 7 days", "7d"),
    ("the last 30 days", "30d"),
    ("the last 90 days", "90d"),
)

Picked = tuple[str, str]
"""From and until, as written in the query language; empty: without that limit."""


class DatesPicker(PickerScreen[Picked]):
    """Closes with the two limits."""

    TITLE_TEXT = "Started"
    HINT = "enter applies · tab goes on to the limits"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor(1)", "down", show=False, id="picker.cursor_down"),
        Binding("k", "cursor(-1)", "up", show=False, id="picker.cursor_up"),
    ]

    def __init__(self, since: str, until: str, now: datetime) -> None:
        """Prepare.

        Args:
            since: The earliest, as written.
            until: The latest, as written.
            now: What durations count back from.
        """
        super().__init__()
        self._since, self._until, self._now = since, until, now

    def compose_choice(self) -> ComposeResult:
        """What is wanted most often, and the two limits."""
        yield OptionList(*(Option(Content(name), id=f"preset-{index}") for index, (name, _) in enumerate(PRESETS)))
        yield LineInput(self._since, placeholder="from: 2h, 7d, 2026-05-01", compact=True, id="since")
        yield LineInput(self._until, placeholder="until: 1d, 2026-05-31", compact=True, id="until")
        yield Static(markup=False, id="picker-note")

    def on_mount(self) -> None:
        """The cursor stands on what is set."""
        presets = [since for _, since in PRESETS]
        chosen = self._since if not self._until else None
        self.query_one(OptionList).highlighted = presets.index(chosen) if chosen in presets else 0
        if chosen not in presets:
            self.query_one("#since", LineInput).focus()
        self._explain()

    def action_cursor(self, step: int) -> None:
        """Moves the cursor."""
        presets = self.query_one(OptionList)
        (presets.action_cursor_down if step > 0 else presets.action_cursor_up)()

    @on(OptionList.OptionSelected)
    def _on_preset(self, message: OptionList.OptionSelected) -> None:
        self.dismiss((PRESETS[message.option_index][1], ""))

    @on(Input.Changed)
    def _on_typed(self) -> None:
        self._explain()

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        if self._explain():
            self.dismiss((self._text("since"), self._text("until")))

    def _explain(self) -> bool:
        """Says what the limits mean; whether they mean anything."""
        line = " ".join(f"{key}:{self._text(key)}" for key in ("since", "until") if self._text(key))
        query = parse(line, self._now)
        note, style = self._meaning(query.filter.since, query.filter.until), STYLES["quiet"]
        if query.problems:
            problem = query.problems[0]
            note, style = f"{problem.message} {problem.cure}", STYLES["bad"]
        self.query_one("#picker-note", Static).update(Content.styled(safe_text(note), style))
        return not query.problems

    def _meaning(self, since: datetime | None, until: datetime | None) -> str:
        begin = f"from {stamp(since)}" if since else ""
        return " ".join(part for part in (begin, f"until {stamp(until)}" if until else "") if part) or "any time"

    def _text(self, key: str) -> str:
        return self.query_one(f"#{key}", LineInput).value.strip()
