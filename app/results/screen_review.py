"""The review: the run's Markdown and its findings, which link to the changes."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from app.engine.text import plural, safe_text
from app.runs.screen_subject import RunSubject, RunVersion, SearchedPart, showing_failure, unavailable
from storage.records.results import Finding, Review, Unavailable
from widgets.kit import hidden
from widgets.kit.choice_lists import LeadList
from widgets.kit.text_view import TextSearch
from widgets.results.review import ReviewView, finding_rows, review_lines


class ReviewPart(SearchedPart):
    """One review at a time, and the list of its findings."""

    WIDE = 120
    DEFAULT_CSS = Path(__file__).with_name("review.tcss").read_text("utf-8")

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", tooltip="The finding's file and line", id="lines.open"),
        Binding("right_parenthesis", "finding(1)", "next finding", id="review.next_finding"),
        hidden("left_parenthesis", "finding(-1)", "previous finding", id="review.prev_finding"),
        hidden("right_curly_bracket", "turn_to(1)", "next file", id="run.next_file"),
        hidden("left_curly_bracket", "turn_to(-1)", "previous file", id="run.prev_file"),
    ]

    @dataclass
    class FindingChosen(Message):
        """A finding was chosen."""

        finding: Finding

    body: ReviewView

    def __init__(self, subject: RunSubject) -> None:
        super().__init__(subject)
        self._findings = LeadList(id="run-findings")
        self._findings.can_focus = False
        self.body = ReviewView()
        self.search = TextSearch(self.body)
        self._reviews: tuple[Review, ...] = ()
        self._number = 0
        self._shown: RunVersion | None = None

    def compose(self) -> ComposeResult:
        yield self._findings
        yield self.search

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in {"open", "finding"}:
            return self._findings.row is not None
        if action == "turn_to":
            return len(self._reviews) > 1
        return super().check_action(action, parameters)

    def show(self) -> None:
        self.start(self._read, exclusive=True, group="review")

    async def _read(self) -> None:
        subject = self.subject
        detail = self.subject.detail
        version = subject.version
        if detail is None or version == self._shown:
            return
        if self._shown is None or version[0] != self._shown[0]:  # The screen shows another run or turn now.
            self._show_none("Reading the review…", "The first time, its repository is fetched.")
        with showing_failure(self.body):
            reviews = await self.subject.results.reviews(detail, subject.turn)
        if isinstance(reviews, Unavailable):
            self._show_none("There is no review to show.", reviews.reason)
        else:
            self._reviews, self._number = reviews, min(self._number, len(reviews) - 1)
            self._show()
        self._shown = version

    def _show_none(self, title: str, reason: str) -> None:
        self._reviews = ()
        self._shown = None
        self.refresh_bindings()
        self._findings.display = False
        self._findings.show(lambda _: ())
        self.body.take(())
        self.body.set_heading("", ())
        self.body.notice = unavailable(title, reason)

    def _show(self) -> None:
        review = self._reviews[self._number]
        self.refresh_bindings()
        self._findings.display = bool(review.findings)
        self._findings.show(lambda _: finding_rows(review.findings))
        several = f"{self._number + 1}/{len(self._reviews)}  " if len(self._reviews) > 1 else ""
        source = "from git" if review.source == "git" else "from the service"
        about = plural(len(review.findings), "finding"), safe_text(review.note), source
        self.body.set_heading(f"{several}{safe_text(review.path)}", about)
        self._lay_out()

    def action_turn_to(self, step: int) -> None:
        if self._reviews:
            self._number = (self._number + step) % len(self._reviews)
            self._show()

    @on(ReviewView.LayoutRequested)
    def _lay_out(self) -> None:
        async def lay_out() -> None:
            # A blank comes before each line, and the lines may need a scrollbar.
            width = self.body.scrollable_content_region.width - 2
            self.body.take(await asyncio.to_thread(review_lines, self._reviews[self._number].text, width))
            self.refresh_bindings()

        if self._reviews:
            self.start(lay_out, exclusive=True, group="review lines")

    @property
    def _here(self) -> int:
        """The number of the finding under the cursor; above the first finding, the first."""
        findings = self._reviews[self._number].findings if self._reviews else ()
        return max(0, sum(finding.at <= self.body.source for finding in findings) - 1)

    @on(ReviewView.Moved)
    def select_finding(self) -> None:
        self._findings.seek(str(self._here))

    @on(LeadList.OptionHighlighted)
    def show_finding(self) -> None:
        row = self._findings.row
        if row is not None and self._reviews and int(row.key) != self._here:  # A click chose the finding.
            self.body.go_to(self._reviews[self._number].findings[int(row.key)].at)

    def action_finding(self, step: int) -> None:
        positions = [finding.at for finding in self._reviews[self._number].findings][::step]
        position = step * self.body.source
        if (target := next((at for at in positions if step * at > position), None)) is not None:
            self.body.go_to(target)

    @on(LeadList.OptionSelected)
    def action_open(self) -> None:
        if self._findings.row is not None:
            self.post_message(self.FindingChosen(self._reviews[self._number].findings[int(self._findings.row.key)]))
