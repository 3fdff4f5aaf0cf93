"""Followed runs: the strip, the list, and the notifications when they end."""

import pytest

from tests.console.conftest import WIDE, Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import START, Lab, Respond, stamp
from widgets.runs.follow import FollowStrip

SOLO = {"platform": "github", "data": {"owner": "acme", "repo": "solo"}}


async def move(scene: Scene, board: Lab, run_id: str, status: str) -> None:
    """Changes a run's status now, and lets the console poll."""
    minute = (scene.clock() - START).total_seconds() / 60
    board.runs[run_id] |= {"status": status, "updated_at": stamp(minute)}
    await scene.sync()


@pytest.fixture(autouse=True)
def busy(board: Lab) -> None:
    """Six active runs on `acme/solo`, whose earlier runs took 2 to 12 minutes."""
    for number in range(20):
        end = MINUTES_INTO_THE_DAY - 100 - number
        board.put(f"run_old{number:02}", created=end - 2.0 - number / 2, updated=end, repository=SOLO)
    for number in range(6):
        created = MINUTES_INTO_THE_DAY - 0.5 - number * 3
        board.put(f"run_go{number}", "working", created=created, updated=created + 0.2, repository=SOLO)


def strip(scene: Scene) -> list[str]:
    """The strip's lines."""
    region = scene.app.screen.query_one(FollowStrip).region
    return [line.strip() for line in scene.lines[region.y : region.bottom]]


async def followed(scene: Scene, *run_ids: str) -> None:
    """Follows these runs."""
    for run_id in run_ids:
        assert scene.app.following is not None
        await scene.app.following.toggle(run_id)
    await scene.settle()


async def test_f_follows_the_run_under_the_cursor(staged: Staged, board: Lab) -> None:
    """`f` adds a line above the keys, and removes it when pressed again.

    When the run ends, a toast says how long it took and the strip keeps it until the user has seen it. It is listed
    until `f` unfollows it.
    """
    async with staged(WIDE) as scene:
        assert scene.table.row is not None
        await scene.press("f")

        (line,) = strip(scene)
        assert line.startswith("● working")
        assert "usually 6m30s, 95% within 11m00s" in line

        await scene.press("f")
        assert strip(scene) == []

        await followed(scene, "run_go1")
        scene.clock.move(minutes=2)
        await move(scene, board, "run_go1", "completed")

        assert "Run completed after 5m30s: acme/solo" in scene.titles
        (line,) = strip(scene)
        assert line.startswith("✓ completed")
        assert "5m30s ended just now" in line

        await scene.press("j")
        assert strip(scene) == [line]
        scene.clock.move(seconds=3)
        await scene.press("j")
        assert strip(scene) == []
        await scene.press("F")
        assert [row.run_id for row in scene.table.rows_on_show] == ["run_go1"]


async def test_followed_runs_survive_a_restart(staged: Staged, board: Lab) -> None:
    """Followed runs come back from the cache; those that ended meanwhile are only listed.

    A run that a colleague cancelled is reported as cancelled. Of two that end at once, the cancelled one is never shown
    as failed on any screen.
    """
    told = {"questions": [], "cancelled": ["run_go1"]}
    board.otherwise = lambda asked: Respond(200, told) if asked.path.endswith("questions") else board.answer(asked)
    async with staged(WIDE) as scene:
        await followed(scene, "run_go1")
        for run_id in ("run_go1", "run_go2"):
            board.runs[run_id] |= {"status": "failed", "updated_at": stamp(MINUTES_INTO_THE_DAY)}
        await scene.sync()
        assert strip(scene)[0].startswith("⊘ cancelled")
        assert scene.titles[-2:] == ["Run cancelled after 3m30s: acme/solo", "Run failed after 6m30s: acme/solo"]
        await scene.press("slash", *"status:cancelled", "enter")
        assert [row.run_id for row in scene.table.rows_on_show] == ["run_go1"]
        await followed(scene, "run_go3")
    async with staged(WIDE) as scene:
        assert {pin.run_id for pin in scene.app.session.pins} == {"run_go1", "run_go3"}
        shown, _ = scene.app.session.followed
        assert [pin.run_id for pin in shown] == ["run_go3"], "the end of the other one is in the inbox"
        await scene.press("F")
        assert [row.run_id for row in scene.table.rows_on_show] == ["run_go1", "run_go3"]
