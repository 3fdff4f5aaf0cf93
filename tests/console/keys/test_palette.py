"""The palette jumps to whatever a person can name."""

from textual.command import Command
from textual.widgets import Input, OptionList

from app.runs.screen_run import RunScreen
from tests.console.conftest import SMALL, Scene, Staged
from tests.lab import Lab


async def offered(scene: Scene, text: str, key: str = "colon") -> list[str]:
    """Open the palette, type, and return what it offers, best first."""
    await scene.press(key)
    scene.app.screen.query_one(Input).value = text
    await scene.settle()
    options = scene.app.screen.query_one(OptionList).options
    return [str(option.prompt.plain) for option in options if isinstance(option, Command)]  # type: ignore[union-attr]


LEADS = (
    ("status failed", "Status failed", "status:failed"),
    ("acme/web", "Repository acme/web", "repo:acme/web"),
    ("view stuck", "View Stuck", "[Stuck"),
    ("import", "Import (Organizations)", "csv"),
    ("insights", "Go to Insights", "success"),
    ("fix/login", "Branch fix/login", "branch:fix/login"),
)


async def test_what_is_typed_leads_there(staged: Staged) -> None:
    """By its name, from any tab, on one line; what was chosen lately comes first, also in the next console."""
    async with staged() as scene:
        for typed, first, shown in LEADS:
            await scene.press("escape", "2")
            assert shown.casefold() not in scene.text.casefold()
            found = await offered(scene, typed)
            assert found[0].startswith(first), found

            await scene.press("enter")

            assert shown.casefold() in scene.text.casefold()
        await offered(scene, "theme light")
        await scene.press("enter")
        assert scene.app.theme == "runwarden-light"
    async with staged() as scene:
        assert scene.app.theme == "runwarden-light"
        lately = await offered(scene, "")
        assert [lately[0][:10], lately[1][:16]] == ["Theme runw", "Branch fix/login"]
    async with staged(theme="runwarden-contrast") as scene:
        assert scene.app.theme == "runwarden-contrast", "what is configured anew counts"


async def test_a_run_is_found_by_its_id_its_repository_or_its_branch(staged: Staged) -> None:
    """Not only among those on show."""
    async with staged() as scene:
        found = await offered(scene, "run_01JX0033", "ctrl+p")
        assert found[0].startswith("Run run_01JX0033")

        await scene.press("enter")

        assert isinstance(scene.app.screen, RunScreen)
        assert "run_01JX0033" in scene.text


async def test_foreign_names_are_text_on_one_line(staged: Staged, board: Lab) -> None:
    """Neither markup nor a control character is obeyed."""
    for number, name in enumerate(("[red]x[/nope]", "x\x1b[31my", "a" * 300)):
        board.put(f"run_hostile{number}", "failed", created=1.0, branch_name=name)
    async with staged(SMALL) as scene:
        for number in range(2):
            found = await offered(scene, f"run_hostile{number}")

            assert len(found) == 1
            assert "\x1b" not in found[0]
            assert "\n" not in found[0]
            await scene.press("enter")
            assert isinstance(scene.app.screen, RunScreen)
            await scene.press("escape")
