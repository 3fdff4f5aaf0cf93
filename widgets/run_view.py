"""Everything a screen says of one run."""

from dataclasses import dataclass
from datetime import datetime

from app.text import SafeText
from storage.records import ActionState, RunDetail


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
class RunView:
    """One run, as a pane shows it."""

    detail: RunDetail
    turns: tuple[Turn, ...] = ()
    """Oldest first."""
    stuck: bool = False
    raw: tuple[SafeText, ...] = ()
    """The run object as received, indented."""
