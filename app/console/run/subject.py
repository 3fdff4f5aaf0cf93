"""The run on show, shared by all parts of its screen."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.containers import Container
from textual.widget import Widget

from app.text import safe_text
from storage.records.results import RunTurns
from widgets.frame.notice import Notice
from widgets.runs.facts import RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from app.console.session import Session
    from app.results.source import Results
    from storage.records import RunDetail
    from storage.records.insights import RepositoryFigures


@dataclass(frozen=True, slots=True)
class RunVersion:
    """A run or one of its turns, as last changed: an active or continued run may have more to show."""

    run_id: str
    turn: int | None
    """None: the whole run."""
    status: str | None = None
    """None: the run was not read yet."""
    updated_at: "datetime | None" = None

    def is_same_turn(self, shown: "RunVersion | None") -> bool:
        """Whether it is the same run and turn as the one on show."""
        return shown is not None and (self.run_id, self.turn) == (shown.run_id, shown.turn)


@dataclass(slots=True)
class RunSubject:
    """One run, as far as it is known."""

    run_id: str
    view: RunView | None = None
    """None: not read yet, or not in the cache."""
    turns: RunTurns | None = None
    turns_problem: str = ""
    """Why the turns cannot be read; empty: they were read, or not asked for yet."""
    turn: int | None = None
    """The selected turn; None: the whole run."""
    figures: "RepositoryFigures | None" = None
    """The figures of the run's repository."""

    @property
    def detail(self) -> "RunDetail | None":
        """The run as cached."""
        return self.view.detail if self.view is not None else None

    @property
    def version(self) -> RunVersion:
        """The run and turn as they are now."""
        if self.detail is None:
            return RunVersion(self.run_id, self.turn)
        return RunVersion(self.run_id, self.turn, self.detail.run.status, self.detail.run.updated_at)

    @property
    def last_turn(self) -> int:
        """The number of its last turn, if known."""
        if self.turns is not None and self.turns.turns:
            return self.turns.turns[-1].number
        return max(1, self.view.detail.turns) if self.view is not None else 1

    @property
    def has_ended(self) -> bool:
        """Whether its last turn is known to have ended."""
        return self.turns is not None and bool(self.turns.turns) and self.turns.turns[-1].outcome is not None

    def other_turn(self, step: int) -> int | None:
        """The turn before or after the selected one; the whole run comes before the first."""
        there = min(max(0, (self.turn or 0) + step), self.last_turn)
        return there or None


class RunPart(Container):
    """One tab of the screen; it reads only while it is shown. The hooks `rest` and `tick` do nothing here."""

    def __init__(
        self, session: "Session", subject: RunSubject, start: "Callable[..., object]", results: "Callable[[], Results]"
    ) -> None:
        """Prepare; `start` runs a coroutine function in the background, like `run_worker`."""
        super().__init__()
        self.session = session
        self.subject = subject
        self.start = start
        self.results = results
        self.acts: dict[str, Callable[[], object]] = {}
        """The part's actions, by name."""

    def is_possible(self, act: str) -> bool:
        """Whether the action is possible now."""
        return act in self.acts

    @property
    def body(self) -> Widget:
        """The widget to focus."""
        raise NotImplementedError

    def look(self) -> None:
        """Update: the tab was entered, or the run changed."""
        raise NotImplementedError

    def rest(self) -> None:
        """Hook: stop reading, because another tab is shown."""

    def tick(self, now: "datetime") -> None:
        """Hook: update the ages."""


@contextmanager
def showing_failure(say: "Callable[[Notice], object]") -> "Iterator[None]":
    """Replace "reading" in the part by the failure, and raise it again for the screen's notice."""
    try:
        yield
    except Exception as error:
        say(unavailable("It could not be read.", str(error)))
        raise


def unavailable(title: str, reason: str) -> Notice:
    """A notice that names what is missing, and why."""
    return Notice("○", title, (safe_text(reason, limit=2_000),))
