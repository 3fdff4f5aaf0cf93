"""Keys: each can be another one, one letter has one meaning, and the palette leads to all that has a name."""

import pytest
from textual.command import Command, DiscoveryHit
from textual.widgets import Input, OptionList

from app.console.base import key_actions, key_hints
from app.console.keys.help import KeyHelpScreen
from app.console.keys.keymap import all_bindings, catalog, problems, written
from app.console.keys.palette import MOVES, NOT_LISTED, ConsoleCommands
from app.profiles import UserCommand
from app.runs.screen_run import RunScreen
from tests.console.conftest import SMALL, Scene, Staged
from tests.lab import Lab


async def test_a_key_of_the_users_own_takes_the_place_of_ours(staged: Staged) -> None:
    """The new key does it, the old one nothing, and the help shows the new one; what is wrong is told at the start.

    An action without a key is in the palette.
    """
    keys = {"app.help": "f1", "tab.health": "ctrl+h", "app.hlep": "f2", "runs.order": "f7"}
    async with staged((140, 60), changed={"keys": keys}) as scene:
        assert [line for line in scene.toasts if line.startswith("keys.")] == [
            "keys.app.hlep: there is no such action, so the key does nothing. Did you mean app.help?"
        ]

        await scene.press("question_mark")

        assert not isinstance(scene.app.screen, KeyHelpScreen)

        await scene.press("f1", "G")

        assert "f1" in scene.text

        await scene.press("escape", "colon", *"columns", "enter")
        assert "> wider" in scene.text
        await scene.press("escape", "f7")
        assert "Sort by" in scene.text
        await scene.press("escape", "ctrl+h")
        assert scene.app.current_mode == "health"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"run.continue": "s"}, 'keys.run.continue: "s" is the key of runs.statuses there'),
        ({"app.quit": "s"}, 'keys.app.quit: "s" is the key of'),
        ({"table.down": "enter"}, 'keys.table.down: "enter" is the key of table.open there'),
        ({"app.quit": "hyperctrl+q"}, 'app.quit: "hyperctrl+q" is not a key'),
    ],
)
def test_keys_that_cannot_work_are_named(keys: dict[str, str], said: str) -> None:
    """What would never be heard, and invalid keys."""
    assert said in " ".join(problems(keys))


def test_keys_that_work_are_let_be() -> None:
    """Swapping two, adding one, and naming what is already so; in each place of the console a key does one thing."""
    ours = {fact.id: ",".join(fact.keys) for fact in catalog() if fact.keys}
    for keys in ({"run.continue": "n", "run.new": "c"}, {"app.quit": "ctrl+q,Q"}, {"app.help": "?,f1"}, ours):
        assert problems(keys) == ()


def test_a_commands_key_must_be_free() -> None:
    """A screen would hear it first."""
    taken = UserCommand("Deploy", ("true",), key="n")
    twice = (UserCommand("One", ("true",), key="ctrl+l"), UserCommand("Two", ("true",), key="ctrl+l"))

    assert "Choose another" in problems({}, (taken,))[0]
    assert "is the key of One" in problems({}, twice)[0]
    assert problems({}, (UserCommand("Free", ("true",), key="f12"),)) == ()


async def every_action_of_a_room_is_in_the_palette(scene: Scene) -> None:
    """All that can be done now, but moving the cursor and what is open already."""
    for room in ("1", "2", "3", "4", "5", "6", "7"):
        await scene.press(room)
        screen = scene.app.screen
        offered = {hit.text async for hit in ConsoleCommands(screen).discover() if isinstance(hit, DiscoveryHit)}
        for key_action in key_actions(screen):
            name = key_action.action.partition("(")[0].rpartition(".")[2]
            if key_action.enabled and name not in MOVES and key_action.does not in NOT_LISTED:
                shown = key_action.does[0].upper() + key_action.does[1:]

                assert shown in offered, key_action


MEANINGS = {
    "c": {"answer", "continue"},
    "E": {"edit", "edit and resend", "fix the line"},
    "f": {"follow", "follow all"},
    "g": {"to the first one", "to the first row", "top"},
    "G": {"bottom", "to the end", "to the last one", "to the last row"},
    "j": {"down", "next", "to the repositories"},
    "k": {"previous", "to the repositories", "up"},
    "n": {"create another", "new", "new file", "new organization", "new run", "now"},
    "q": {"cancel", "close", "quit"},
    "s": {"outcome", "status"},
    "t": {"since", "when"},
    "x": {"export", "stop"},
    "X": {"cancel", "cancel run", "stop"},
    "y": {"copy as curl", "copy id", "copy name", "copy run id"},
    "ctrl+k": {"confirm the other choice", "reject"},
    "ctrl+n": {"fresh", "start fresh"},
    "ctrl+o": {"cancel", "switch profile"},
    "ctrl+s": {
        *("approve", "check and open", "confirm anyway", "create them", "preview", "preview, then send"),
        *("replace the file", "replace the view", "resolve it"),
    },
    "ctrl+t": {"recipe", "template"},
    "ctrl+y": {"record it anyway", "write anyway"},
}
"""The descriptions of actions on one letter, which mean the same in different places."""


def test_one_letter_has_one_meaning_on_all_screens() -> None:
    """A new action on a letter belongs to its meaning, or gets another letter. Digits and signs depend on the place."""
    found: dict[str, set[str]] = {}
    for _, binding in all_bindings():
        for key in map(written, binding.key.split(",")):
            if key.removeprefix("ctrl+").isalpha() and len(key.removeprefix("ctrl+")) == 1:
                found.setdefault(key, set()).add(binding.description.lower())

    assert {letter: does for letter, does in found.items() if len(does) > 1} == MEANINGS
    refreshing = [(binding.key, binding.action) for _, binding in all_bindings() if binding.id == "app.refresh"]
    assert set(refreshing) == {("ctrl+r", "refresh"), ("f5", "refresh")}


async def test_without_any_run_no_tab_offers_a_key_about_one(staged: Staged, board: Lab) -> None:
    """Before the first answer, and after one without a run or a code host; each list is all that is offered there."""
    board.runs.clear()
    board.health = {}
    offers = {"1": "n a / s", "2": "", "3": "n I p", "4": "t", "5": "n", "6": "", "7": ""}
    async with staged(synced=False) as scene:
        for tab, keys in (*offers.items(), *offers.items()):
            await scene.press(tab)
            assert [hint.key for hint in key_hints(scene.app.screen)] == [*keys.split(), ":", "?"], tab
            if tab == "7":
                await scene.sync()


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
    ("import", "Import (Organizations)", "csv"),
    ("fix/login", "Branch fix/login", "branch:fix/login"),
)


async def test_what_is_typed_leads_there(staged: Staged) -> None:
    """By its name, from any tab, on one line; what was chosen lately comes first, also in the next console."""
    async with staged() as scene:
        await every_action_of_a_room_is_in_the_palette(scene)
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


async def test_a_run_is_found_by_its_id_and_foreign_names_are_text_on_one_line(staged: Staged, board: Lab) -> None:
    """Not only among those on show; neither markup nor a control character is obeyed."""
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
