"""The key map: every key of ours can be another one, and what cannot work is said."""

import pytest
from textual.command import DiscoveryHit

from app.console.base import key_actions
from app.console.keys.help import KeyHelpScreen
from app.console.keys.keymap import catalog, problems
from app.console.keys.palette import MOVES, NOT_LISTED, ConsoleCommands
from app.profiles import UserCommand
from tests.console.conftest import Staged


async def test_a_key_of_the_users_own_takes_the_place_of_ours(staged: Staged) -> None:
    """The new key does it, the old one nothing, and the help shows the new one; what is wrong is told at the start."""
    keys = {"app.help": "f1", "tab.health": "ctrl+h", "app.hlep": "f2"}
    async with staged((140, 60), changed={"keys": keys}) as scene:
        assert [line for line in scene.toasts if line.startswith("keys.")] == [
            "keys.app.hlep: there is no such action, so the key does nothing. Did you mean app.help?"
        ]

        await scene.press("question_mark")

        assert not isinstance(scene.app.screen, KeyHelpScreen)

        await scene.press("f1", "G")

        assert "f1" in scene.text

        await scene.press("escape")
        await scene.press("ctrl+h")

        assert scene.app.current_mode == "health"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"run.continue": "s"}, 'keys.run.continue: "s" is the key of runs.statuses there'),
        ({"app.quit": "s"}, 'keys.app.quit: "s" is the key of'),
        ({"table.down": "enter"}, 'keys.table.down: "enter" is the key of table.open there'),
        ({"app.quit": "blah"}, 'app.quit: "blah" is not a key'),
        ({"app.quit": "hyperctrl+q"}, 'app.quit: "hyperctrl+q" is not a key'),
    ],
)
def test_keys_that_cannot_work_are_named(keys: dict[str, str], said: str) -> None:
    """What would never be heard, and invalid keys."""
    assert said in " ".join(problems(keys))


@pytest.mark.parametrize(
    "keys",
    [{}, {"run.continue": "f7"}, {"run.continue": "n", "run.new": "c"}, {"app.quit": "ctrl+q,Q"}, {"app.help": "?,f1"}],
)
def test_keys_that_work_are_let_be(keys: dict[str, str]) -> None:
    """Swapping two, adding one, and naming what is already so."""
    assert problems(keys) == ()


def test_a_commands_key_must_be_free() -> None:
    """A screen would hear it first."""
    taken = UserCommand("Deploy", ("true",), key="n")
    twice = (UserCommand("One", ("true",), key="ctrl+l"), UserCommand("Two", ("true",), key="ctrl+l"))

    assert "Choose another" in problems({}, (taken,))[0]
    assert "is the key of One" in problems({}, twice)[0]
    assert problems({}, (UserCommand("Free", ("true",), key="f12"),)) == ()


def test_the_console_itself_has_no_two_things_on_one_key() -> None:
    """In each place a key does one thing."""
    assert problems({fact.id: ",".join(fact.keys) for fact in catalog() if fact.keys}) == ()


async def test_an_action_without_a_key_is_in_the_palette_until_the_user_gives_it_one(staged: Staged) -> None:
    """The help lists keys, and says where the rest is."""
    async with staged() as scene:
        await scene.press("question_mark", "slash", *"palette", "enter")
        assert ": ^p" in scene.text
        await scene.press("escape", "slash", *"sort")
        assert "No key found" in scene.text
        await scene.press("escape", "escape", "colon", *"sort", "enter")
        assert "Sort by" in scene.text
    async with staged(changed={"keys": {"runs.order": "f7"}}) as scene:
        await scene.press("f7")
        assert "Sort by" in scene.text
        await scene.press("escape", "question_mark", "slash", *"sort")
        assert "f7" in scene.text


async def test_every_action_of_a_room_is_in_the_palette(staged: Staged) -> None:
    """All that can be done now, but moving the cursor and what is open already."""
    async with staged() as scene:
        for room in ("1", "2", "3", "4", "5", "6", "7"):
            await scene.press(room)
            screen = scene.app.screen
            offered = {hit.text async for hit in ConsoleCommands(screen).discover() if isinstance(hit, DiscoveryHit)}
            for key_action in key_actions(screen):
                name = key_action.action.partition("(")[0].rpartition(".")[2]
                if key_action.enabled and name not in MOVES and key_action.does not in NOT_LISTED:
                    shown = key_action.does[0].upper() + key_action.does[1:]

                    assert shown in offered, key_action
