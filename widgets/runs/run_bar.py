"""The lines above a run: its title, the parts of its screen, and the selected turn."""

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive

from app.engine.text import safe_text
from widgets.frame import Tab
from widgets.kit.badges import STYLES, run_badge
from widgets.kit.cells import shorten
from widgets.kit.clickable import ClickableLine, clickable
from widgets.runs.facts import RunView

GAP: Final = 2


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
        where = f"  {safe_text(run.repository.label)}  {safe_text(run.branch_name)}"
        width = self.size.width - 2
        run_id = shorten(safe_text(run.run_id), max(12, width // 3), "middle")
        where = shorten(where, max(8, width - len(badge.text + stuck) - len(run_id) - GAP), "middle")
        gap = " " * max(GAP, width - len(badge.text + stuck) - cell_len(where) - len(run_id))
        head = (badge.text, f"{badge.style} bold"), (stuck, STYLES["warn"])
        yield Content.assemble(*head, (where, "bold"), (gap, ""), (run_id, STYLES["quiet"]))


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
        """The parts with their keys, and the turn."""
        turn = f"turn {self.turn} of {self.turns}" if self.turn else f"all {self.turns} turns"
        turn = turn if self.turns > 1 else ""
        width = self.size.width - 2
        needed = sum(len(tab.key) + len(tab.title) + 3 for tab in self._tabs) + len(turn) + 4
        yield Content(" ")
        used = 0
        for tab in self._tabs:
            is_here = tab.name == self.current
            key, style = ("$accent bold", "bold underline") if is_here else (STYLES["quiet"], STYLES["quiet"])
            head = [(f"{tab.key} ", key)] if needed <= width else []
            content = Content.assemble(*head, (tab.title, style), "  ")
            used += content.cell_length
            yield clickable(content, "screen.part", tab.name)
        if turn:
            yield Content(" " * max(0, width - used - len(turn) - 4))
            yield clickable(Content.styled("◂ ", "$accent bold"), "screen.turn(-1)")
            yield Content.styled(turn, STYLES["quiet"])
            yield clickable(Content.styled(" ▸", "$accent bold"), "screen.turn(1)")
