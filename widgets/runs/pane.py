"""The pane of one run: two lines or a column, depending on the room."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from app.text import safe_text
from widgets.badges import run_badge
from widgets.cells import shorten
from widgets.line_text import LineText
from widgets.runs import facts
from widgets.runs.columns import RESTS
from widgets.runs.facts import RunView
from widgets.runs.timeline import timeline, timeline_in_brief

PaneForm = Literal["strip", "column"]


class RunPane(VerticalScroll, can_focus=True):
    """Facts, timeline, conversation, or the raw JSON, of one run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "down", show=False, id="pane.down"),
        Binding("k", "scroll_up", "up", show=False, id="pane.up"),
        Binding("g", "scroll_home", "top", show=False, id="pane.top"),
        Binding("G", "scroll_end", "bottom", show=False, id="pane.bottom"),
    ]

    def __init__(self, clock: Callable[[], datetime], form: PaneForm = "column", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = clock
        self._form: PaneForm = form
        self._view: RunView | None = None
        self._raw = False
        self._placeholder = ""
        self._now = clock()
        self._as_of: datetime | None = None
        self._raw_of: RunView | None = None
        self._raw_shown: list[Content] = []

    def compose(self) -> ComposeResult:
        """The text that shows all lines."""
        yield LineText()

    def show(self, view: RunView | None, *, otherwise: str = "") -> None:
        """Show the run, or else the text."""
        other = _run_id(view) != _run_id(self._view)
        self._view, self._placeholder, self._now = view, otherwise, self._clock()
        if other:
            self.scroll_home(animate=False)
        self._paint()

    def shape(self, form: PaneForm) -> None:
        """Change the form, for another screen size."""
        if form != self._form:
            self._form = form
            self.set_class(form == "strip", "-strip")
            self.can_focus = form != "strip"
            self._paint()

    def toggle_raw(self) -> None:
        """Switch between the facts and the JSON as received."""
        self._raw = not self._raw
        self.scroll_home(animate=False)
        self._paint()

    def tick(self, now: datetime, as_of: datetime | None = None) -> None:
        """Update the times; active runs are timed up to `as_of`, if the service has stopped answering then."""
        if not self.rests(now, as_of):
            self._now, self._as_of = now, as_of
            self._paint()

    def rests(self, now: datetime, as_of: datetime | None) -> bool:
        """Whether none of the times shown changes for now."""
        is_final = self._view is not None and self._view.detail.is_final
        return is_final and as_of == self._as_of and timedelta(0) <= now - self._now < RESTS

    def _paint(self) -> None:
        # The text is missing before the pane is composed and while the console closes.
        for text in self.query(LineText):
            text.take(self._lines())

    def on_resize(self) -> None:
        """Wrap the lines for the new width."""
        self._paint()

    def _raw_lines(self) -> list[Content]:
        if self._view is None:
            return []
        if self._raw_of is not self._view:
            # Colour a long document once, not at every tick.
            self._raw_of, self._raw_shown = self._view, facts.raw(self._view)
        return self._raw_shown

    def _lines(self) -> list[Content]:
        width = max(20, self.scrollable_content_region.width)
        if self._view is None:
            return [Content.styled(self._placeholder, facts.QUIET)]
        now = self._now
        as_of = self._as_of or now
        if self._form == "strip":
            return _strip(self._view, now, as_of, width)
        lines = facts.title(self._view, now, width)
        if self._raw:
            lines += facts.heading("Raw JSON", "as received · i back to facts · Y copies") + self._raw_lines()
            return lines
        lines += [Content(), *facts.fields(self._view, now, as_of, width)]
        lines += facts.heading("Timeline", "as observed, to scale") + timeline(self._view, now, as_of, width)
        lines += facts.heading("Conversation", "sent from this machine") + facts.conversation(self._view, now, width)
        if self._view.branch.total > 1:
            note = f"{facts.counted(self._view.branch.total)} runs"
            more = ": b shows them all"
            lines += facts.heading("On this branch", note) + facts.branch(self._view, now, width, more)
        return lines


def _strip(view: RunView, now: datetime, as_of: datetime, width: int) -> list[Content]:
    run = view.detail.run
    badge = run_badge(run.status, is_final=view.detail.is_final)
    left = f"{badge.glyph} {safe_text(run.run_id)}"
    room = max(10, width - cell_len(left) - 2)
    is_live = view.is_live(now)
    beside = shorten(safe_text(run.branch_name) if is_live else facts.last_confirmed(view, now), room)
    style = badge.style if is_live else facts.QUIET
    first = facts.line((f"{badge.glyph} ", style), (left[2:], "bold"), ("  ", ""), (beside, facts.QUIET))
    return [first, timeline_in_brief(view, as_of).truncate(width, ellipsis=True)]


def _run_id(view: RunView | None) -> str | None:
    return view.detail.run.run_id if view is not None else None
