"""The parts that the app holds, each by itself: no app is needed to test them."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.dom import DOMNode

from app.api.errors import UnreachableError
from app.console.profiles.switching import BETWEEN, ProfileSwitching
from app.console.session import STILL_OPENING, Session
from app.console.session.feeds import VitalsFeed
from app.console.terminal.terminal import GIVE_TITLE_BACK, KEEP_TITLE, Terminal
from storage.errors import DiskFailedError
from tests.console.scenes import SceneClock, settings_for


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


class Modes:
    """An app's modes; it notes what happens to them, and does no work of its own."""

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened
        self.workers: list[Any] = []
        self.works: list[Any] = []

    def run_worker(self, work: Any, *, group: str) -> None:
        del group
        self.works.append(work)

    def add_mode(self, mode: str, base_screen: Any) -> None:
        del base_screen
        self.happened.append(f"add {mode}")

    async def switch_mode(self, mode: str) -> None:
        self.happened.append(f"switch {mode}")

    async def remove_mode(self, mode: str) -> None:
        self.happened.append(f"remove {mode}")


@pytest.fixture
def toasts() -> list[str]:
    return []


@pytest.fixture
def session(tmp_path: Path, toasts: list[str]) -> Session:
    """A session that no app has."""
    settings = settings_for("http://localhost:1/v1", tmp_path)
    return Session(
        settings,
        settings.profile(),
        SceneClock(),
        None,
        owner=DOMNode(),
        toast=lambda message, **_: toasts.append(message),
        copy_text=toasts.append,
    )


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


async def test_a_failure_becomes_a_notice_of_the_session(session: Session, toasts: list[str]) -> None:
    """Our own files in the banner, a request as a toast; anything else is a fault of the program and goes on."""

    async def fail(error: Exception) -> None:
        raise error

    await session.guard(fail, UnreachableError("No connection."))
    assert toasts == ["No connection."]
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


async def test_our_own_files_that_fail_during_a_reading_are_not_forgotten_with_it(session: Session) -> None:
    """The reading began before: it neither takes the failure back nor the mark in the header."""

    async def answer(value: Any) -> Any:
        return value

    def links() -> Any:
        session.vitals.storage_failed("The disk is full.")
        return answer(())

    def none(*_: Any) -> Any:
        return answer(0)

    engine: Any = SimpleNamespace(
        cache=SimpleNamespace(
            links=links,
            run_clock_ahead=lambda: answer(timedelta(0)),
            status_counts=lambda _: answer({}),
            count=none,
            health=none,
        ),
        client=SimpleNamespace(budget=SimpleNamespace(clock_ahead=timedelta(0))),
        polling=SimpleNamespace(next_poll=none),
    )
    works: list[Any] = []
    now = session.vitals.now
    vitals = VitalsFeed(
        now,
        session.vitals.timing,
        lambda: engine,
        SceneClock(),
        works.append,
        session.vitals.changed,
        moved=list,
        warn=str,
    )
    session.vitals = vitals
    vitals.ask()
    await works[0]()

    assert vitals.storage_trouble is not None
    assert vitals.now.files_fail


async def test_screens_go_before_the_engine_they_read_with(session: Session, toasts: list[str]) -> None:
    """And the other profile is shown only once the one before is closed; no other switch begins on the way."""
    happened: list[str] = []
    other = replace(session.profile, name="other")

    async def let_go(name: str) -> None:
        happened.append(f"close {name}")

    engines: Any = SimpleNamespace(profiles=(session.profile, other), profile=lambda _: other, let_go=let_go)
    modes = Modes(happened)
    switching = ProfileSwitching(
        engines, modes, lambda: happened.append("leave"), lambda profile, *_: happened.append(f"take up {profile.name}")
    )
    assert switching.is_possible
    switching.begin(session, "other")
    assert (modes.works, toasts) == ([], [STILL_OPENING])

    session.engine = engines
    for name in (None, session.profile.name, "other", "other"):
        switching.begin(session, name)
    assert len(modes.works) == 1, "one switch at a time"
    await modes.works[0]()

    assert happened[:2] == [f"add {BETWEEN}", f"switch {BETWEEN}"]
    assert all(each.startswith("remove ") for each in happened[2:-5])
    assert happened[-5:] == [
        "leave", f"close {session.profile.name}", "take up other", "switch runs", f"remove {BETWEEN}"
    ]  # fmt: skip
