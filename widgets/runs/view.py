"""Everything a screen says of one run."""

from dataclasses import dataclass
from datetime import datetime

from app.text import SafeText
from storage.records import ActionState, RunDetail, RunRow


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing said to the agent from this machine, and what became of saying it."""

    at: datetime
    actor: SafeText
    state: ActionState
    text: tuple[SafeText, ...]
    """The instructions, line by line."""
    trouble: SafeText | None = None
    """Why it is not confirmed."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The runs on a run's branch, those around it."""

    total: int
    """Counted up to a hundred."""
    rows: tuple[RunRow, ...] = ()
    """Newest first, the run itself among them."""

    def beside(self, run_id: str, step: int) -> str | None:
        """The run before (-1: newer) or after (1: older); None: there is none."""
        ids = [row.run_id for row in self.rows]
        there = ids.index(run_id) + step if run_id in ids else -1
        return ids[there] if 0 <= there < len(ids) else None


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, as a pane shows it."""

    detail: RunDetail
    turns: tuple[Turn, ...] = ()
    """Oldest first."""
    stuck: bool = False
    continues: str | None = None
    """The run whose conversation this one goes on with, where that has another id."""
    branch: Branch = Branch(0)
    raw: tuple[SafeText, ...] = ()
    """The run object as received, indented."""
