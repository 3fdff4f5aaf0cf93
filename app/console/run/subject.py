"""The run that is on show, and what every part of its screen has."""

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


@dataclass(slots=True)
class Subject:
    """One run, as far as it is known."""

    run_id: str
    view: RunView | None = None
    """None: the cache does not hold it, or was not read yet."""
    turns: RunTurns | None = None
    lacking: str = ""
    """Why its turns are not known."""
    turn: int | None = None
    """The turn that is looked at; None: the whole run."""
    figures: "RepositoryFigures | None" = None
    """Of its repository."""

    @property
    def detail(self) -> "RunDetail | None":
        """The run as the cache holds it."""
        return self.view.detail if self.view is not None else None

    @property
    def last_turn(self) -> int:
        """The number of its last turn, as far as that is known."""
        if self.turns is not None and self.turns.turns:
            return self.turns.turns[-1].number
        return max(1, self.view.detail.turns) if self.view is not None else 1

    @property
    def has_ended(self) -> bool:
        """Whether its last turn is known to have ended."""
        return self.turns is not None and bool(self.turns.turns) and self.turns.turns[-1].outcome is not None

    def other_turn(self, step: int) -> int | None:
        """The turn before or after the one that is looked at; the whole run comes before the first."""
        there = min(max(0, (self.turn or 0) + step), self.last_turn)
        return there or None


class Part(Container):
    """One tab of the screen: it reads what it shows while it is on show."""

    def __init__(
        self, session: "Session", subject: Subject, start: "Callable[..., object]", results: "Callable[[], Results]"
    ) -> None:
        """Prepare; `start` runs a coroutine function in the background, as `run_worker` does."""
        super().__init__()
        self.session = session
        self.subject = subject
        self.start = start
        self.results = results
        self.acts: dict[str, Callable[[], object]] = {}
        """What keys do in it, by name."""

    def can(self, act: str) -> bool:
        """Whether what a key does in it can be done now."""
        return act in self.acts

    @property
    def body(self) -> Widget:
        """What takes the focus."""
        raise NotImplementedError

    def look(self) -> None:
        """Bring up to date what is shown: the tab was entered, or the run changed."""

    def rest(self) -> None:
        """Stop reading: another tab is on show."""

    def tick(self, now: "datetime") -> None:
        """Update the ages."""


@contextmanager
def failure_told(say: "Callable[[Notice], object]") -> "Iterator[None]":
    """Say in place what fails, rather than that it is being read; the screen's notice says the rest."""
    try:
        yield
    except Exception as error:
        say(unavailable("It could not be read.", str(error)))
        raise


def unavailable(title: str, reason: str) -> Notice:
    """A notice that says what is not to be had, and why."""
    return Notice("○", title, (safe_text(reason, limit=2_000),))
