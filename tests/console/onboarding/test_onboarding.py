"""The first screen leads from no configuration to an open console, or changes nothing."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Input

from app.profiles import load
from app.profiles.screen_onboarding import OnboardingApp
from app.profiles.token import FileToken
from tests.console.conftest import SMALL
from tests.console.quiet import Driver
from tests.lab import Hang, Lab, Respond, Server
from tests.pty.terminal import Terminal

TOKEN = "a-token-for-newcomers"


class Newcomer(Driver):
    """A user in front of the first screen."""

    async def answer(self, address: str) -> None:
        """Pastes the address, skips the name and the choice, and pastes a token."""
        await self.fill(f"{address}\t\t\t{TOKEN}")


@asynccontextmanager
async def begun(size: tuple[int, int] = SMALL) -> AsyncIterator[Newcomer]:
    """The first screen; its answers go to config.toml in the current folder."""
    async with OnboardingApp(Path("config.toml"), frozenset()).run_test(size=size) as pilot:
        newcomer = Newcomer(pilot)
        await newcomer.settle()
        yield newcomer


def files(place: Path) -> list[str]:
    """The files of the folder."""
    return sorted(path.name for path in place.iterdir())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNWARDEN_TOKEN", raising=False)
    return tmp_path


async def test_a_profile_is_created_by_keyboard(place: Path, board: Lab) -> None:
    """Address and token are typed, the name is suggested, the service is asked once, and both files are private."""
    async with begun() as newcomer:
        await newcomer.press(*board.base_url, "tab", "tab", "tab", *TOKEN)
        assert TOKEN not in newcomer.words
        await newcomer.press("ctrl+s")

    assert newcomer.app.return_value == "local"
    assert len(board.list_queries) == 1
    profile = load(place / "config.toml", {}).profile()
    assert (profile.name, profile.base_url, profile.read_only) == ("local", board.base_url, False)
    assert profile.token.read({}).reveal() == TOKEN
    assert files(place) == ["config.toml", "local.token"]
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


async def test_the_token_may_come_from_a_file(place: Path, board: Lab) -> None:
    """A relative path counts from the current folder, not from the configuration's."""
    (place / "mine.token").write_text(TOKEN)
    (place / "mine.token").chmod(0o600)
    async with begun() as newcomer:
        await newcomer.fill(board.base_url)
        await newcomer.press("tab", "tab", "3", "tab")
        await newcomer.fill("mine.token")
        await newcomer.press("ctrl+s")

    assert load(place / "config.toml", {}).profile().token == FileToken(place / "mine.token")


UNCONFIRMED = (
    (Respond(401, {"message": "expired"}), "The service refused the token (401)."),
    (Respond(404, {"message": "nothing"}), "The address ends in the version, such as /v1."),
    (Respond(200, "<html>"), "The service's answer cannot be used."),
    (Respond(418, {"message": "\x1b[2J\x1b]52;c;eA==\x07[/b]tea"}), "tea"),
)


async def test_an_unconfirmed_profile_is_not_written(place: Path) -> None:
    """The screen shows the error and the fix; changed answers withdraw the offer to write anyway.

    If the service is down or behind a VPN, ctrl+y writes all the same. Escape stops the check, and then leaves.
    """
    with Server() as server:
        address = server.base_url
        async with begun() as newcomer:
            await newcomer.answer(address)
            for answer, words in UNCONFIRMED:
                server.script(answer)
                await newcomer.press("ctrl+y", "ctrl+s")
                assert words in newcomer.words
                assert "Write anyway" in newcomer.words
                assert "\x1b" not in newcomer.words
                await newcomer.press("end", "x")
                assert "Write anyway" not in newcomer.words
            server.script(Hang())
            await newcomer.pilot.press("ctrl+s")
            server.wait_for(len(UNCONFIRMED) + 1)
            await newcomer.pilot.press("ctrl+s")
            await newcomer.press("escape")
            assert "Stopped. Nothing was written." in newcomer.words
            await newcomer.press("escape")
        assert len(server.requests) == len(UNCONFIRMED) + 1
    assert newcomer.app.return_value is None
    assert files(place) == []

    async with begun() as newcomer:
        await newcomer.answer(address)
        await newcomer.press("ctrl+s", "ctrl+y")
    assert load(place / "config.toml", {}).profile().base_url == address


async def test_errors_are_shown_below_their_fields(place: Path) -> None:
    """Errors appear when the user continues, not while typing, and the first one gets the cursor.

    The token cannot be copied or cut to the clipboard.
    """
    async with begun((100, 40)) as newcomer:
        await newcomer.fill("http://api.example.com")
        assert "in the clear" not in newcomer.words
        await newcomer.press("tab")
        assert "in the clear" in newcomer.words
        await newcomer.press("ctrl+s")
        assert "The token is empty" in newcomer.words
        assert newcomer.app.focused is newcomer.screen.query_one("#field-base_url Input")

        await newcomer.press("ctrl+u")
        await newcomer.answer("https://api.example.com/v1")
        assert "in the clear" not in newcomer.words
        token = newcomer.screen.query_one("#field-pasted Input", Input)
        assert token.value == TOKEN
        for key in ("ctrl+c", "ctrl+x"):
            token.select_all()
            await newcomer.press(key)
            assert newcomer.app.clipboard == ""
        assert token.value == ""


async def test_an_unwritable_file_is_reported(place: Path, board: Lab) -> None:
    """The token is not left behind in a file that no configuration names."""
    (place / "config.toml").write_text("this is no TOML")
    async with begun() as newcomer:
        await newcomer.answer(board.base_url)
        await newcomer.press("ctrl+s")
        assert "this is not TOML" in newcomer.words

    assert files(place) == ["config.toml"]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """`runwarden` on its own terminal, with nothing configured."""
    nothing = {"RUNWARDEN_CONFIG": "", "RUNWARDEN_BASE_URL": "", "RUNWARDEN_TOKEN": "", "RUNWARDEN_PROFILE": ""}
    terminal = Terminal([], {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", **nothing})
    yield terminal
    terminal.close()


def test_the_console_opens_after_the_onboarding(terminal: Terminal, board: Lab) -> None:
    """All answers are typed at once in the program itself, and the token appears only in its field."""
    terminal.shows("Welcome", "with the version at the end")
    terminal.type(f"{board.base_url}\t\r\t{TOKEN}")
    terminal.shows("local", "\N{BULLET}" * len(TOKEN))
    terminal.type("\x13")
    terminal.shows("fix/login-timeout")
    terminal.type("q")

    assert terminal.end() == 0
    assert TOKEN.encode() not in terminal.seen
