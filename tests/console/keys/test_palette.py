"""The palette jumps to whatever a person can name."""

import pytest
from textual.command import Command
from textual.widgets import Input, OptionList

from app.console.run.screen import RunScreen
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.scenes import a_day
from tests.run_board import Board


async def offered(scene: Scene, text: str) -> list[str]:
    """Open the palette, type, and return what it offers, best first."""
    await scene.press("colon")
    scene.app.screen.query_one(Input).value = text
    await scene.settle()
    options = scene.app.screen.query_one(OptionList).options
    return [str(option.prompt.plain) for option in options if isinstance(option, Command)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("typed", "first", "shown"),
    [
        ("status failed", "Status failed", "status:failed"),
        ("acme/web", "Repository acme/web", "repo:acme/web"),
        ("view stuck", "View Stuck", "[Stuck"),
        ("import", "Import (Organizations)", "csv"),
        ("insights", "Go to Insights", "success"),
        ("fix/login", "Branch fix/login", "branch:fix/login"),
    ],
)
async def test_what_is_typed_leads_there(staged: Staged, board: Board, typed: str, first: str, shown: str) -> None:
    """By its name, from any tab, on one line."""
    a_day(board)
    async with staged() as scene:
        await scene.press("2")
        found = await offered(scene, typed)
        assert found[0].startswith(first), found

        await scene.press("enter")

        assert shown.casefold() in scene.text.casefold()


async def test_a_run_is_found_by_its_id_its_repository_or_its_branch(staged: Staged, board: Board) -> None:
    """Not only among those on show."""
    a_day(board, 40)
    async with staged() as scene:
        found = await offered(scene, "run_01JX0033")
        assert found[0].startswith("Run run_01JX0033")

        await scene.press("enter")

        assert isinstance(scene.app.screen, RunScreen)
        assert "run_01JX0033" in scene.text


async def test_what_was_chosen_lately_comes_first(staged: Staged, board: Board) -> None:
    """Also in the next console."""
    a_day(board, 5)
    async with staged() as scene:
        await offered(scene, "status failed")
        await scene.press("enter")
    async with staged() as scene:
        assert (await offered(scene, ""))[0].startswith("Status failed")


async def test_a_theme_lasts_until_another_one_is_configured(staged: Staged) -> None:
    """The palette's choice, and then the configuration's."""
    async with staged() as scene:
        await offered(scene, "theme nord")
        await scene.press("enter")
        assert scene.app.theme == "nord"
    async with staged() as scene:
        assert scene.app.theme == "nord"
    async with staged(theme="dracula") as scene:
        assert scene.app.theme == "dracula"


@pytest.mark.parametrize("name", ["[red]x[/nope]", "x\x1b[31my", "a" * 300])
async def test_foreign_names_are_text_on_one_line(staged: Staged, board: Board, name: str) -> None:
    """Neither markup nor a control character is obeyed."""
    board.put("run_hostile", "failed", created=1.0, branch_name=name)
    async with staged(SMALL) as scene:
        found = await offered(scene, "run_hostile")

        assert len(found) == 1
        assert "\x1b" not in found[0]
        assert "\n" not in found[0]
        await scene.press("enter")
        assert isinstance(scene.app.screen, RunScreen)
