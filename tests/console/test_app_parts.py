"""The parts that the app holds, each by itself: no app is needed to test them."""

from pathlib import Path

import pytest

from app.api.errors import UnreachableError
from app.console.session import STILL_OPENING, Session
from app.console.terminal.terminal import GIVE_TITLE_BACK, KEEP_TITLE, Terminal
from storage.errors import DiskFailedError
from tests.console.scenes import NotedApp, SceneClock, settings_for


class Driver:
    """A terminal that remembers what was written to it."""

    can_suspend = True
    is_headless = False

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)

    def flush(self) -> None:
        """Nothing is held back."""


@pytest.fixture
def app() -> NotedApp:
    return NotedApp()


@pytest.fixture
def session(tmp_path: Path, app: NotedApp) -> Session:
    """A session whose engine is not open."""
    settings = settings_for("http://localhost:1/v1", tmp_path)
    return Session(settings, settings.profile(), SceneClock(), None, app)


def test_the_title_is_said_once_and_given_back() -> None:
    """The terminal's own title is kept before the first, and comes back at the end."""
    driver = Driver()
    terminal = Terminal(lambda: driver, mouse=True)  # type: ignore[arg-type, return-value]
    for title in ("one", "one", "two"):
        terminal.say_title(title)
    assert terminal.farewell == GIVE_TITLE_BACK
    terminal.give_title_back()

    assert driver.written == [f"{KEEP_TITLE}\x1b]2;one\x07", "\x1b]2;two\x07", GIVE_TITLE_BACK]
    assert terminal.farewell == ""


def test_without_a_terminal_nothing_is_written() -> None:
    """Such as in a browser: the mouse cannot be lent, and that is said."""
    terminal = Terminal(lambda: None, mouse=True)
    terminal.say_title("one")
    terminal.write("\x07")

    assert terminal.farewell == ""
    assert "no terminal" in terminal.toggle_mouse()


async def test_a_failure_becomes_a_notice_of_the_session(session: Session, app: NotedApp) -> None:
    """Our own files in the banner, a request as a toast; anything else is a fault of the program and goes on."""

    async def fail(error: Exception) -> None:
        raise error

    await session.guard(fail, UnreachableError("No connection."))
    assert app.said == ["No connection."]
    assert session.vitals.storage_trouble is None

    await session.guard(fail, DiskFailedError("The disk is full.", path=Path("cache.sqlite3")))
    assert session.vitals.storage_trouble is not None
    assert "The disk is full." in session.not_open
    assert session.vitals.now.files_fail

    with pytest.raises(ZeroDivisionError):
        await session.guard(fail, ZeroDivisionError())


def test_a_session_that_is_not_open_says_so(session: Session) -> None:
    """A key that needs the engine has something to say."""
    assert session.not_open == STILL_OPENING
    assert not session.is_settled
    session.poll_soon()
