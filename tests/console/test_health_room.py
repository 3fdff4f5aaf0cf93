"""The Health room: hosts, link and token are three things."""

from datetime import UTC, datetime, timedelta

from rich.color import Color

from app.console.health import NOTHING_SEEN, link_row
from app.times import clock_time
from storage.records import LinkState
from storage.records.activity import PollOutcome
from storage.records.service_traits import Wait
from tests.console.conftest import Scene, Staged
from tests.console.quiet import strips
from tests.run_board import Board
from widgets.frame.freshness import PollTiming


async def test_a_host_that_is_no_longer_connected_is_said_so(staged: Staged, board: Board) -> None:
    """It is not shown as healthy, nor forgotten."""
    async with staged() as scene:
        await scene.press("2")
        del board.health["gitlab"]
        await scene.sync()

        assert "not connected" in scene.text
        assert "gitlab" not in scene.lines[0]


async def test_a_token_without_the_scope_says_which_it_needs(staged: Staged) -> None:
    """403 is another thing than 401."""
    async with staged() as scene:
        await scene.press("2")
        await scene.ended(PollOutcome("runs", scene.clock(), "forbidden", "scope", 403))

        assert "✗ not permitted (403)" in scene.text
        assert "Administrator scope" in scene.text


def test_a_link_that_fails_says_when_it_is_tried_next() -> None:
    """As the header does; a wait that is over is not said."""
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    link = LinkState("runs", failing_since=now, failures=5, error_kind="unreachable")
    facts = [
        link_row((link,), NOTHING_SEEN, PollTiming(now, 10), now, Wait("service_down", now + timedelta(seconds=wait_s)))
        for wait_s in (70, -1)
    ]

    assert clock_time(now + timedelta(seconds=70), now) in facts[0].since
    assert "waiting until" not in facts[1].since


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
