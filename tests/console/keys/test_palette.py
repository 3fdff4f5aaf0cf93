"""The palette: whatever a key does can be found by name."""

import pytest
from textual.command import DiscoveryHit

from app.console.key_actions import key_actions
from app.console.keys.palette import HERE, MOVES, ConsoleCommands
from tests.console.keys.conftest import Configured


@pytest.mark.parametrize("room", ["1", "2", "3", "4", "6"])
async def test_every_action_of_a_room_is_in_it(configured: Configured, room: str) -> None:
    """All that can be done now, but moving the cursor and what is open already."""
    async with configured() as scene:
        await scene.press(room)
        screen = scene.app.screen
        offered = {hit.text async for hit in ConsoleCommands(screen).discover() if isinstance(hit, DiscoveryHit)}
        for key_action in key_actions(screen):
            name = key_action.action.partition("(")[0].rpartition(".")[2]
            if key_action.enabled and name not in MOVES and key_action.does not in HERE:
                shown = key_action.does[0].upper() + key_action.does[1:]

                assert shown in offered, key_action
