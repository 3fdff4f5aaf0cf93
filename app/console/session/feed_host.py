"""What the feeds use of the session that holds them."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App
from textual.notifications import SeverityLevel

from app.profiles import Profile, Settings

if TYPE_CHECKING:
    from app.engine.engine import Engine


class FeedHost(Protocol):
    """A session, as its feeds see it: they are parts of it, and no two files import each other."""

    settings: Settings
    profile: Profile
    app: App[Any]
    clock: Callable[[], datetime]
    engine: "Engine | None"

    @property
    def state_trouble(self) -> str:
        """Why the state cannot be used; empty: it can."""

    def start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run this coroutine function in the background for as long as the app runs."""

    def notify(self, message: str, *, severity: SeverityLevel, timeout: float) -> None:
        """Show a toast."""
