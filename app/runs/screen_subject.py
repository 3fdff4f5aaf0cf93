"""The run on show, shared by all parts of its screen."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from app.engine.text import safe_text
from app.results.source import Results
from storage.records.results import RunTurns
from widgets.frame import Notice
from widgets.kit import hidden
from widgets.kit.text_view import TextSearch, TextView
from widgets.runs.facts import RunView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from app.console.session import Session
    from storage.records import RunDetail
    from storage.records.insights import RepositoryFigures


RunVersion = tuple[tuple[str, int | None], tuple[str, "datetime | None"] | None]
"""A run and one of its turns, or None for the whole run; and its status and time of change, None if it was not read."""
NO_TURNS: Final = RunTurns("", ())


@dataclass(slots=True)
class RunSubject:
    """One run with its known facts and results."""

    session: "Session"
    run_id: str
    results: Results
    view: RunView | None = None
    """None: not read yet, or not in the cache."""
    turns: RunTurns = NO_TURNS
    turns_problem: str = ""
    """Why the turns cannot be read; empty: they were read, or not asked for yet."""
    turn: int | None = None
    """The selected turn; None: the whole run."""
    figures: "RepositoryFigures | None" = None

    @property
    def detail(self) -> "RunDetail | None":
        """The run as cached, with its observations; None if it is not cached."""
        return self.view.detail if self.view is not None else None

    @property
    def version(self) -> RunVersion:
        """The run and turn as they are now: an active or continued run may have more to show."""
        run = None if self.detail is None else self.detail.run
        return (self.run_id, self.turn), None if run is None else (run.status, run.updated_at)

    @property
    def last_turn(self) -> int:
        """The number of the last turn, if known."""
        if self.turns.turns:
            return self.turns.turns[-1].number
        return max(1, self.view.detail.turns) if self.view is not None else 1

    def neighbour(self, step: int) -> str | None:
        """The next newer (-1) or older (1) run on the branch, or None."""
        ids = [] if self.view is None else [row.run_id for row in self.view.branch.rows]
        index = ids.index(self.run_id) + step if self.run_id in ids else -1
        return ids[index] if 0 <= index < len(ids) else None


class RunPart(Container):
    """One tab of the screen; it reads only while it is shown. The hooks `left` and `tick` do nothing here."""

    WIDE: ClassVar = 0
    """Columns needed for panes next to the body; with fewer, they are above or below."""
    body: Widget

    def __init__(self, subject: RunSubject) -> None:
        super().__init__()
        self.subject = subject
        self.session = subject.session

    def start(self, work: "Callable[..., Any]", **options: Any) -> None:
        """Run a coroutine function in the background; its failures end in the screen's notice."""
        self.screen.run_worker(work, **options)

    def on_resize(self) -> None:
        self.set_class(self.size.width >= self.WIDE, "-wide")

    def show(self) -> None:
        """Update: the tab was entered, or the run changed."""
        raise NotImplementedError

    def stop_reading(self) -> None:
        """Hook: stop reading, because another tab is shown."""

    def tick(self, now: "datetime") -> None:
        """Hook: update the ages."""


class SearchedPart(RunPart):
    """A tab whose text can be searched."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", tooltip="Search in this part", id="run.search"),
        hidden("full_stop", "step_match(1)", "next match", id="run.next_match"),
        hidden("comma", "step_match(-1)", "previous match", id="run.prev_match"),
    ]
    body: TextView
    search: TextSearch

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in {"search", "step_match"}:
            return bool(self.body.total)
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        self.search.open()

    def action_step_match(self, step: int) -> None:
        self.search.step(step)


@contextmanager
def showing_failure(view: TextView) -> "Iterator[None]":
    """Replace "reading" in the part by the failure, and raise it again for the screen's notice."""
    try:
        yield
    except Exception as error:
        view.notice = unavailable("It could not be read.", str(error))
        raise


def unavailable(title: str, reason: str) -> Notice:
    return Notice("○", title, (safe_text(reason, limit=2_000),))
