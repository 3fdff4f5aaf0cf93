"""The pane of one run, as two lines or a column, its share of the screen, and the lines above a run."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from rich.cells import cell_len
from textual import on
from textual.containers import Container
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive, var
from textual.widget import Widget

from app.engine.text import safe_text
from widgets.frame import Tab
from widgets.kit import after_refresh
from widgets.kit.badges import STYLES, run_badge
from widgets.kit.cells import shorten
from widgets.kit.line_text import ClickableLine, LinePane, clickable
from widgets.runs import facts
from widgets.runs.columns import MAX_AGE_LAG
from widgets.runs.facts import RunView
from widgets.runs.table import RunTable

GAP: Final = 2


class RunPane(LinePane):
    """Facts, timeline and conversation of one run."""

    placeholder: var[str] = var("", init=False)
    """Shown while there is no run."""
    is_strip: var[bool] = var(default=False, init=False)
    """Whether there is room for two lines only."""

    def __init__(self, now: datetime) -> None:
        super().__init__(self._lines)
        self._view: RunView | None = None
        self._now = now
        self._as_of: datetime | None = None

    def show(self, view: RunView | None, now: datetime) -> None:
        """Show the run; without one, the placeholder."""
        before = self._view
        self._view = view
        self._now = now
        if (before and before.detail.run.run_id) != (view and view.detail.run.run_id):
            self.scroll_home(animate=False)
        self.paint()

    def watch_placeholder(self) -> None:
        self.paint()

    def watch_is_strip(self, is_strip: bool) -> None:
        self.set_class(is_strip, "-strip")
        self.can_focus = not is_strip
        self.paint()

    def tick(self, now: datetime, as_of: datetime | None = None) -> None:
        """Update the times; active runs are timed up to `as_of`, if the service has stopped answering then."""
        is_final = self._view is not None and self._view.detail.is_final
        # An ended run's times may update a little late.
        if not (is_final and as_of == self._as_of and timedelta(0) <= now - self._now < MAX_AGE_LAG):
            self._now = now
            self._as_of = as_of
            # Separately from the header: Textual would otherwise repaint every line in between.
            after_refresh(self, self.paint)

    def _lines(self, width: int) -> list[Content]:
        view = self._view
        now = self._now
        if view is None:
            return [Content.styled(self.placeholder, facts.QUIET)]
        as_of = self._as_of or now
        if self.is_strip:
            run = view.detail.run
            is_live = view.is_live(now)
            badge = run_badge(run.status, is_final=view.detail.is_final)
            name = safe_text(run.run_id)
            beside = safe_text(run.branch_name) if is_live else facts.last_confirmed(view, now)
            brief = facts.timeline_in_brief(view, as_of)
            if is_live and view.log is not None:
                # The list shows the branch; the pane has one line for the reason and one for the log.
                beside = safe_text(view.detail.summary.result) or beside
                brief = Content.styled(" ".join((view.log.why or view.log.missing).split()), facts.QUIET)
            beside = shorten(beside, max(10, width - cell_len(f"{badge.glyph} {name}") - 2))
            glyph = f"{badge.glyph} ", badge.style if is_live else facts.QUIET
            first = facts.line(glyph, (name, "bold"), "  ", (beside, facts.QUIET))
            return [first, brief.truncate(width, ellipsis=True)]
        lines = facts.title(view, now, width)
        lines += [Content(), *facts.subject(view, width)]
        lines += facts.log_tail(view, width, max(MIN_LOG_LINES, self.size.height - len(lines) - 3))
        lines += facts.fields(view, now, as_of, width)
        lines += facts.heading("Timeline", "as observed, to scale") + facts.timeline(view, now, as_of, width)
        if view.turns or not view.detail.summary.asked:
            lines += facts.heading("Conversation", "sent from this machine") + facts.conversation(view, now, width)
        return lines + facts.branch(view, now, width)


WIDE: Final = 120
"""The minimum width for a pane next to the table."""
TALL: Final = 32
"""The minimum height for a pane below the table."""
MIN_PANE: Final = 40
"""The fewest cells of a pane next to the table."""
MAX_PANE: Final = 76
MIN_LOG_LINES: Final = 4
"""The fewest lines for the end of a failed run's log, however low the pane is."""
BELOW: Final = 14
"""Lines of a pane below the table."""
STRIP: Final = 3
"""Lines of a pane that shows two, and its border."""
OTHER_LINES: Final = 8
"""Lines that are neither table nor pane."""


class SplitView(Container):
    """The table, and the pane next to it or below it."""

    has_pane: var[bool] = var(default=True, init=False)

    def __init__(self, table: RunTable, pane: RunPane, *, has_pane: bool) -> None:
        super().__init__(id="runs")
        self.table = table
        self.pane = pane
        self._screen_size = Size()
        self.set_reactive(SplitView.has_pane, has_pane)
        self.watch_has_pane()

    def compose(self) -> Iterable[Widget]:
        yield self.table
        yield self.pane

    def watch_has_pane(self) -> None:
        """Show or hide the pane; a class, since `display` would show it again while there is no run at all."""
        self.set_class(not self.has_pane, "-no-detail")
        self.fit()

    @on(RunTable.Refilled)
    def fit_rows(self) -> None:
        self.fit()

    def fit(self, screen: Size | None = None) -> None:
        """Divide a screen of this size between table and pane; None: the previous size."""
        self._screen_size = screen or self._screen_size
        width, height = self._screen_size
        pane = self.pane
        room = width - self.table.ample_width
        # Next to the table only if its columns keep the width that they had without the pane.
        is_beside = width >= WIDE and room >= MIN_PANE
        is_strip = not is_beside and height < TALL
        self.set_class(is_beside, "-beside")
        pane.is_strip = is_strip
        pane.styles.width = min(MAX_PANE, (MIN_PANE + room) // 2) if is_beside else "1fr"
        below = STRIP if is_strip else BELOW
        pane.styles.height = "1fr" if is_beside else below
        self.table.set_columns(is_limited=self.has_pane and not is_beside)
        if pane.has_focus and not pane.can_focus:
            self.table.focus()


class RunTitle(ClickableLine):
    """Status, repository, branch and id."""

    DEFAULT_CSS = "RunTitle { height: 1; padding: 0 1; }"

    run_id: reactive[str] = reactive("")
    view: reactive[RunView | None] = reactive(None)

    def parts(self) -> Iterator[Content]:
        """The line; if there is little room, the id at the end is shortened first."""
        if self.view is None:
            yield Content(safe_text(self.run_id))
            return
        run = self.view.detail.run
        badge = run_badge(run.status, is_final=self.view.detail.is_final)
        stuck = "  ! stuck" if self.view.stuck else ""
        place = f"  {safe_text(run.repository.label)}  {safe_text(run.branch_name)}"
        run_id = shorten(safe_text(run.run_id), max(12, (self.size.width - 2) // 3), "middle")
        room = self.size.width - 2 - len(badge.text + stuck + run_id)
        place = shorten(place, max(8, room - GAP), "middle")
        gap = " " * max(GAP, room - cell_len(place))
        head = (badge.text, f"{badge.style} bold"), (stuck, STYLES["warn"])
        yield Content.assemble(*head, (place, "bold"), gap, (run_id, STYLES["quiet"]))


class RunBar(ClickableLine):
    """The parts of a run's screen and the selected turn, each of which can be clicked."""

    DEFAULT_CSS = "RunBar { height: 1; background: $surface; }"

    current: reactive[str] = reactive("")
    turn: reactive[int | None] = reactive(None)
    """None: the whole run."""
    turns: reactive[int] = reactive(0)

    def __init__(self, tabs: tuple[Tab, ...]) -> None:
        super().__init__()
        self._tabs = tabs

    def parts(self) -> Iterator[Content]:
        turn = f"turn {self.turn} of {self.turns}" if self.turn else f"all {self.turns} turns"
        turn = turn if self.turns > 1 else ""
        room = self.size.width - 2 - len(turn) - 4
        has_keys = sum(len(tab.key) + len(tab.title) + 3 for tab in self._tabs) <= room
        yield Content(" ")
        for tab in self._tabs:
            is_here = tab.name == self.current
            key, style = ("$accent bold", "bold underline") if is_here else (STYLES["quiet"], STYLES["quiet"])
            content = Content.assemble((f"{tab.key} " if has_keys else "", key), (tab.title, style), "  ")
            room -= content.cell_length
            yield clickable(content, "screen.part", tab.name)
        if turn:
            yield Content(" " * max(0, room))
            yield clickable(Content.styled("◂ ", "$accent bold"), "screen.turn(-1)")
            yield Content.styled(turn, STYLES["quiet"])
            yield clickable(Content.styled(" ▸", "$accent bold"), "screen.turn(1)")
