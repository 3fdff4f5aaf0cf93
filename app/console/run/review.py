"""The review: the run's Markdown and its findings, which link to the changes."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from app.console.run.subject import SearchedPart, hidden, showing_failure, unavailable
from app.text import safe_text
from storage.records.results import Finding, Review, Unavailable
from widgets.after_refresh import after_refresh
from widgets.line_table import LineColumn, LineTable
from widgets.review import FindingItem, ReviewView, review_lines
from widgets.text_view import TextSearch

if TYPE_CHECKING:
    from app.console.run.subject import RunSubject, RunVersion

WIDE: Final = 120
SEVERITY: Final = 8


def _columns(width: int) -> tuple[LineColumn, ...]:
    finding = min(34, max(12, (width - SEVERITY) // 2))
    return (
        LineColumn("", 0, SEVERITY),
        LineColumn("finding", 1, finding),
        LineColumn("", 2, max(1, width - SEVERITY - finding - 3)),
    )


class ReviewPart(SearchedPart):
    """One review at a time, and the list of its findings."""

    DEFAULT_CSS = """
    ReviewPart { layout: vertical; }
    ReviewPart > LineTable { height: auto; max-height: 6; border-bottom: solid $panel; }
    ReviewPart.-wide { layout: horizontal; }
    ReviewPart.-wide > LineTable {
        width: 40%; height: 1fr; max-height: 100%; border: none; border-right: solid $panel;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("right_curly_bracket", "turn_to(1)", "next file", key_display="}", id="run.next_file"),
        hidden("left_curly_bracket", "turn_to(-1)", "previous file", key_display="{", id="run.prev_file"),
    ]

    @dataclass
    class FindingChosen(Message):
        """A finding was chosen."""

        finding: Finding

    def __init__(self, subject: "RunSubject") -> None:
        super().__init__(subject)
        self._findings: LineTable[FindingItem] = LineTable(self.session.clock(), _columns)
        self._view = ReviewView()
        self.search = TextSearch(self._view, self.start)
        self._reviews: tuple[Review, ...] = ()
        self._number = 0
        self._shown: RunVersion | None = None

    @property
    def body(self) -> "LineTable[FindingItem] | ReviewView":
        """The widget to focus: the findings, if any."""
        return self._findings if self._findings.item is not None else self._view

    def compose(self) -> ComposeResult:
        """Compose the findings, and the text below a search."""
        yield self._findings
        yield self.search

    def on_resize(self) -> None:
        """Put the findings beside the text, or above it."""
        self.set_class(self.size.width >= WIDE, "-wide")

    @property
    def has_text(self) -> bool:
        """Whether a review is shown."""
        return bool(self._reviews)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable stepping through a single review."""
        return len(self._reviews) > 1 if action == "turn_to" else super().check_action(action, parameters)

    def show(self) -> None:
        """Read the reviews, unless those on show are current."""
        self.start(self._read, exclusive=True, group="review")

    async def _read(self) -> None:
        subject, detail = self.subject, self.subject.detail
        wanted = subject.version
        if detail is None or wanted == self._shown:
            return
        if not wanted.is_same_turn(self._shown):
            self._show_none("Reading the review…", "The first time, its repository is fetched.")
        with showing_failure(self._view.say):
            reviews = await self.subject.results.reviews(detail, subject.turn)
        if isinstance(reviews, Unavailable):
            self._show_none("There is no review to show.", reviews.reason)
        else:
            self._reviews, self._number = reviews, min(self._number, len(reviews) - 1)
            self._show()
        self._shown = wanted

    def _show_none(self, title: str, reason: str) -> None:
        self._reviews, self._shown = (), None
        self.refresh_bindings()
        self._findings.display = False
        self._findings.show(())
        self._view.take(())
        self._view.tell("", ())
        self._view.say(unavailable(title, reason))

    def _show(self) -> None:
        review = self._reviews[self._number]
        self.refresh_bindings()
        self._findings.display = bool(review.findings)
        self._findings.show([FindingItem(finding, number) for number, finding in enumerate(review.findings)])
        several = f"{self._number + 1}/{len(self._reviews)}  " if len(self._reviews) > 1 else ""
        source = "from git" if review.source == "git" else "from the service"
        count = len(review.findings)
        found = f"{count:,} finding{'' if count == 1 else 's'}"
        self._view.tell(f"{several}{safe_text(review.path)}", (found, safe_text(review.note), source))
        # After a pending change of the focus.
        after_refresh(self, lambda: self.body.focus() if self._view.has_focus else None)
        self._lay_out()

    def action_turn_to(self, step: int) -> None:
        """Show the next or the previous review."""
        if self._reviews:
            self._number = (self._number + step) % len(self._reviews)
            self._show()

    @on(ReviewView.LayoutRequested)
    def _lay_out(self) -> None:
        async def lay_out() -> None:
            width = self._view.scrollable_content_region.width - 1
            self._view.take(await asyncio.to_thread(review_lines, self._reviews[self._number].text, width))

        if self._reviews:
            self.start(lay_out, exclusive=True, group="review lines")

    @on(LineTable.Highlighted)
    def _highlighted(self) -> None:
        if self._findings.item is not None and self._findings.has_focus:
            self._view.go_to(self._findings.item.finding.at)

    @on(LineTable.Chosen)
    def _chosen(self) -> None:
        if self._findings.item is not None:
            self.post_message(self.FindingChosen(self._findings.item.finding))
