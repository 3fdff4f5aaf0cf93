"""Pictures of the first screen in every state, and at three sizes."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from app.console.onboarding.answers import CheckResult
from app.console.onboarding.screen import OnboardingApp, OnboardingScreen
from tests.console.conftest import SMALL, WIDE
from tests.console.onboarding.test_onboarding import Newcomer

TINY = (60, 20)


async def filled(newcomer: Newcomer) -> None:
    await newcomer.answer("https://api.acme.example/v1")


async def a_command(newcomer: Newcomer) -> None:
    await newcomer.paste("https://api.acme.example/v1")
    await newcomer.press("tab", "tab", "4")


async def wrong(newcomer: Newcomer) -> None:
    await newcomer.paste("http://api.acme.example/v1")
    await newcomer.press("ctrl+s")


async def asking(newcomer: Newcomer) -> None:
    await filled(newcomer)
    screen = newcomer.pilot.app.screen
    assert isinstance(screen, OnboardingScreen)
    screen._say("Asking https://api.acme.example/v1 …", "busy")


async def refused(newcomer: Newcomer) -> None:
    await filled(newcomer)
    screen = newcomer.pilot.app.screen
    assert isinstance(screen, OnboardingScreen)
    words = "The service refused the token (401). Is it whole, of this service, and not expired?"
    screen._tell(CheckResult(is_good=False, text=words, token_is_at_fault=True))
    screen._doubt(screen._complain())


async def empty(newcomer: Newcomer) -> None:
    await newcomer.settle()


@pytest.mark.parametrize(
    ("state", "size"),
    [(empty, TINY), (empty, WIDE), *((state, SMALL) for state in (empty, filled, a_command, wrong, asking, refused))],
    ids=lambda value: f"{value[0]}x{value[1]}" if isinstance(value, tuple) else value.__name__,
)
async def test_the_first_screen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    picture: SnapshotAssertion,
    state: Callable[[Newcomer], Awaitable[None]],
    size: tuple[int, int],
) -> None:
    """Questions, answers, what is wrong with them, and what the service said."""
    monkeypatch.chdir(tmp_path)
    async with OnboardingApp(Path("~/.config/runwarden/config.toml"), frozenset()).run_test(size=size) as pilot:
        newcomer = Newcomer(pilot)
        await state(newcomer)
        for blinking in pilot.app.query("Input"):
            blinking.cursor_blink = False  # type: ignore[attr-defined]
        await newcomer.settle()

        assert pilot.app.export_screenshot() == picture
