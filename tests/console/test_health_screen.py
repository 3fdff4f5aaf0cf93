"""The Health room: hosts, link and token are three things."""

from rich.color import Color

from storage.records.activity import PollOutcome
from tests.console.conftest import Scene, Staged
from tests.console.quiet import strips
from tests.lab import Lab


async def test_a_host_that_is_no_longer_connected_is_said_so(staged: Staged, board: Lab) -> None:
    """It is not shown as healthy, nor forgotten."""
    async with staged() as scene:
        await scene.press("2")
        del board.health["gitlab"]
        await scene.sync()

        assert "not connected" in scene.text
        assert "gitlab" not in scene.lines[0]


async def test_hosts_of_old_turn_grey_in_the_header_although_their_words_stay(staged: Staged) -> None:
    """What was true twelve minutes ago is not shown in the colours of now."""
    async with staged() as scene:
        scene.clock.move(minutes=12)
        await scene.ended(PollOutcome("runs", scene.clock(), "unreachable", "gone"))
        before = colour_of(scene, "degraded 12m")
        await scene.ended(PollOutcome("health", scene.clock(), "unreachable", "gone"))

        assert colour_of(scene, "degraded 12m") != before
        assert colour_of(scene, "github ✓") == colour_of(scene, "degraded 12m")


def colour_of(scene: Scene, words: str) -> Color | None:
    """Of those words in the screen's first line."""
    line = strips(scene.app)[0]
    (style,) = [segment.style for segment in line if words in segment.text]
    return style.color if style is not None else None
