"""Each key can be changed, and the palette finds everything that has a name."""

import pytest
from textual.command import Command
from textual.widgets import Input, OptionList

from app.console.keymap import problems
from app.console.palette import KeyHelpScreen
from app.profiles import UserCommand
from app.runs.screen_run import RunScreen
from tests.console.conftest import SMALL, Scene, Staged
from tests.lab import Lab


async def test_a_configured_key_replaces_the_default(staged: Staged) -> None:
    """The new key works, the old one does nothing, and errors are reported at the start."""
    async with staged(changed={"keys": {"app.help": "f1", "app.hlep": "f2"}}) as scene:
        assert [line for line in scene.toasts if line.startswith("keys.")] == [
            "keys.app.hlep: there is no such action, so the key does nothing. Did you mean app.help?"
        ]

        await scene.press("question_mark")

        assert not isinstance(scene.app.screen, KeyHelpScreen)

        await scene.press("f1")

        assert isinstance(scene.app.screen, KeyHelpScreen)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"run.continue": "s"}, 'keys.run.continue: "s" is the key of runs.statuses there'),
        ({"app.quit": "hyperctrl+q"}, 'app.quit: "hyperctrl+q" is not a key'),
    ],
)
def test_impossible_keys_are_reported(keys: dict[str, str], said: str) -> None:
    """Keys that no terminal sends, and invalid keys, are reported."""
    assert said in " ".join(problems(keys))


def test_a_commands_key_must_be_unused() -> None:
    """A screen would handle the key before the command."""
    taken = UserCommand("Deploy", ("true",), key="n")
    twice = (UserCommand("One", ("true",), key="ctrl+l"), UserCommand("Two", ("true",), key="ctrl+l"))

    assert "Choose another" in next(iter(problems({}, (taken,))))
    assert "is the key of One" in next(iter(problems({}, twice)))
    assert problems({"run.continue": "n", "run.new": "c"}, (UserCommand("Free", ("true",), key="f12"),)) == {}


async def offered(scene: Scene, text: str, key: str = "colon") -> list[str]:
    """Open the palette, type, and return its offers, best first."""
    await scene.press(key)
    scene.app.screen.query_one(Input).value = text
    await scene.settle()
    options = scene.app.screen.query_one(OptionList).options
    return [str(option.prompt.plain) for option in options if isinstance(option, Command)]  # type: ignore[union-attr]


LEADS = (
    ("status failed", "Status failed", "status:failed"),
    ("acme/web", "Repository acme/web", "repo:acme/web"),
    ("import", "Import (Organizations)", "csv"),
)


async def test_the_palette_opens_everything_by_name(staged: Staged) -> None:
    """The palette opens it by its name, from any tab."""
    async with staged() as scene:
        for typed, first, shown in LEADS:
            await scene.press("escape", "2")
            assert shown.casefold() not in scene.text.casefold()
            found = await offered(scene, typed)
            assert found[0].startswith(first), found

            await scene.press("enter")

            assert shown.casefold() in scene.text.casefold()


async def test_the_palette_finds_runs_and_shows_foreign_names_safely(staged: Staged, board: Lab) -> None:
    """Runs outside the list are found as well; markup and control characters have no effect."""
    for number, name in enumerate(("[red]x[/nope]", "x\x1b[31my")):
        board.put(f"run_hostile{number}", "failed", created=1.0, branch_name=name)
    async with staged(SMALL) as scene:
        for run_id, key in (("run_01JX0033", "ctrl+p"), ("run_hostile0", "colon"), ("run_hostile1", "colon")):
            found = await offered(scene, run_id, key)
            assert found[0].startswith(f"Run {run_id}")
            assert not {"\x1b", "\n"} & set(found[0])
            await scene.press("enter")
            assert isinstance(scene.app.screen, RunScreen)
            assert str(scene.app.screen.focused_run_id).startswith(run_id)
            await scene.press("escape")
