"""A batch of runs: one line of progress, and a line for each run."""

from typing import Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content

from app.engine.text import SafeText, safe_text
from widgets.kit.badges import STYLES, Badge
from widgets.kit.cells import fit, shorten

STATUS: Final = 13
"""Cells of a run's status."""


class BatchLine(Struct, frozen=True):
    """One run of a batch."""

    badge: Badge
    run_id: SafeText
    about: SafeText
    """Its repository and branch, or why nothing was done for it."""
    opens: str | None = None
    """The run that was started or continued; None: there is none."""

    def content(self, width: int, id_width: int) -> Content:
        """The line in at most `width` cells, `id_width` of them for the run's id."""
        run_id = fit(self.run_id, id_width, "middle")
        about = shorten(self.about, max(0, width - STATUS - id_width - 3), "middle" if self.opens else "end")
        status = fit(self.badge.text, STATUS)
        return Content.assemble((f"{status} ", self.badge.style), (run_id, "bold"), (f"  {about}", STYLES["quiet"]))


class BatchView(Struct, frozen=True):
    """A batch as shown in the strip and in its list."""

    key: str
    title: SafeText
    lines: tuple[BatchLine, ...]
    """One for each of its runs."""
    confirmed: int
    """The number of confirmed writes."""
    unknown: int
    made: int
    """Runs that were started or continued."""
    ended: int
    """How many of the started or continued runs have ended."""
    failed: int
    is_sending: bool

    @property
    def outcome(self) -> Badge:
        """The number of the runs for which it took effect."""
        text = f"{self.confirmed:,} of {len(self.lines):,}"
        if self.is_sending:
            return Badge("●", text, "busy")
        if self.unknown:
            return Badge("?", text, "warn")
        if self.confirmed == len(self.lines):
            return Badge("✓", text, "good")
        return Badge("⊘", text, "warn") if self.confirmed else Badge("✗", text, "bad")

    @property
    def is_over(self) -> bool:
        """Whether nothing in it will change any more."""
        return not self.is_sending and not self.unknown and self.ended == self.made

    @property
    def progress(self) -> SafeText:
        """The progress of the runs that it made."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        return safe_text(f"{self.ended:,} of {self.made:,} done{failed}")

    def line(self, width: int) -> Content:
        """The batch in one line."""
        is_sent = self.confirmed == len(self.lines) and not self.is_sending
        badge = self.outcome
        if is_sent and self.ended < self.made:
            badge = Badge("●", "", "busy")
        elif is_sent:
            badge = Badge("✗", "", "bad") if self.failed else Badge("✓", "", "good")
        parts: list[tuple[str, str]] = [(badge.glyph, f"{badge.style} bold")]
        if not is_sent:
            unknown = f", {self.unknown:,} unknown" if self.unknown else ""
            parts.append((f" {badge.word} sent{unknown}", f"{badge.style} bold"))
        if self.made:
            parts.append((f" {self.progress}", STYLES["bad"] if self.failed else ""))
        text = Content.assemble(*parts)
        title = shorten(self.title, max(0, width - text.cell_length - 2))
        return Content.assemble(text, (f"  {title}", STYLES["quiet"]))

    def run_list(self, width: int) -> list[Content]:
        """Its runs, a line each."""
        id_width = min(max((cell_len(line.run_id) for line in self.lines), default=0), (width - STATUS) // 2)
        return [line.content(width, id_width) for line in self.lines]
