"""A screen's interface for its collaborators: its session, and how to show screens, start work and post messages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.message import Message
from textual.screen import Screen

from app.console.base.screen import BaseScreen

if TYPE_CHECKING:
    from app.console.session import Session
    from app.engine import Engine


@dataclass(frozen=True, slots=True)
class ScreenContext:
    """A screen as its collaborators see it."""

    session: "Session"
    push_screen: Callable[[Screen[Any], Callable[[Any], None]], object]
    """Shows a screen, and calls back with its result."""
    start: Callable[..., object]
    """Runs a coroutine function in the background, as `run_worker` does."""
    post: Callable[[Message], object]
    """Sends a message up to the app."""

    @classmethod
    def of(cls, screen: BaseScreen) -> "ScreenContext":
        """The context of a screen."""
        return cls(screen.session, screen.app.push_screen, screen.run_worker, screen.post_message)

    def with_engine(self, work: Callable[["Engine"], Awaitable[None]], group: str) -> None:
        """Start work that needs the engine, replacing work of the same group; without an engine, report why."""
        engine = self.session.engine
        if engine is None:
            self.session.notify(self.session.not_open)
        else:
            self.start(partial(work, engine), exclusive=True, group=group)
