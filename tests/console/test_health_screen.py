"""The Health room: hosts, link and token are three things."""

from datetime import timedelta

import pytest
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


async def test_our_own_outages_are_incidents_too(staged: Staged) -> None:
    """From the first poll without an answer to the next answer; a refusal is an answer, and no runs are counted."""
    async with staged() as scene:
        await scene.press("2")
        for seconds, kind in ((10, "unreachable"), (46, None), (600, "forbidden"), (660, None)):
            at = scene.clock() + timedelta(seconds=seconds)
            await scene.ended(PollOutcome("runs", at, kind, kind))
        await scene.tick(minutes=12)
        await scene.ring()

        (outage,) = [line for line in scene.lines if "our link" in line and "22:00:10" in line]
        assert "✗ unreachable" in outage
        assert "36s" in outage
        assert "failed" not in outage
        await scene.press("exclamation_mark", "exclamation_mark")
        assert scene.app.screen.bookmark.startswith("incident:our link")  # type: ignore[attr-defined]
        await scene.press("enter")
        assert scene.app.current_mode == "health"


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        ("not_authorized", "✓ answers         token refused"),
        ("forbidden", "✓ answers         not permitted"),
        ("token", "◌ not asked       there is no usable token"),
    ],
)
async def test_a_refusal_is_named_as_what_it_is(staged: Staged, kind: str, link: str) -> None:
    """A service that was never asked, for want of a token, is not said to answer."""
    async with staged() as scene:
        await scene.press("2")
        await scene.ended(PollOutcome("runs", scene.clock(), kind, "no"))

        (row,) = [line for line in scene.lines if line[1:].startswith("our link") and ":" not in line]
        assert row.removeprefix(" our link").strip() == link


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
