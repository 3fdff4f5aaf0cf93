"""Following runs: by key and by mouse, in every room, to their end, and after a restart."""

from textual.widgets import OptionList

from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.follow.conftest import Mover
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import Lab, Respond, stamp
from widgets.follow import FollowStrip


def strip(scene: Scene) -> list[str]:
    """The strip's lines."""
    region = scene.app.screen.query_one(FollowStrip).region
    return [line.strip() for line in scene.lines[region.y : region.bottom]]


async def followed(scene: Scene, *run_ids: str) -> None:
    """Follows these."""
    for run_id in run_ids:
        assert scene.app.following is not None
        await scene.app.following.toggle(run_id)
    await scene.settle()


async def test_f_follows_the_run_under_the_cursor(staged: Staged, move: Mover) -> None:
    """A line appears above the keys; f again takes it away.

    At its end, a toast says how long it took; the strip keeps it until a person saw that, and the list until it is
    let go.
    """
    async with staged(WIDE) as scene:
        assert scene.table.row is not None
        await scene.press("f")

        (line,) = strip(scene)
        assert line.startswith("● working")
        assert "acme/solo" in line
        assert "30s" in line
        assert "usually 6m30s, 95% within 11m00s" in line

        await scene.press("f")
        assert strip(scene) == []

        await followed(scene, "run_go1")
        scene.clock.move(minutes=2)
        await move(scene, "run_go1", "completed")

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
        assert "✓ completed" in scene.text
        await scene.press("X", "escape")
        assert scene.app.session.pins == ()


async def test_many_are_one_line(staged: Staged) -> None:
    """The rest is counted, a click on the number lists them; j and k move, f lets go, enter opens."""
    async with staged(SMALL) as scene:
        await followed(scene, "run_go1", "run_go2", "run_go3")

        (line,) = strip(scene)
        assert line.endswith("+2 F")

        await scene.pilot.click(FollowStrip, offset=(77, 0))
        await scene.settle()
        assert scene.app.screen.query_one(OptionList).option_count == 3

        await scene.press("j", "f")
        assert {pin.run_id for pin in scene.app.session.pins} == {"run_go1", "run_go3"}
        await scene.press("k", "enter")
        assert "run_go1" in scene.text


async def test_the_strip_is_in_every_room_and_a_click_on_a_run_opens_it(staged: Staged, board: Lab) -> None:
    """Over one run on the whole screen as well; escape leads back to where the click was."""
    async with staged(WIDE) as scene:
        await scene.press("F")
        assert "No run is followed" in scene.text
        await scene.press("escape")
        await followed(scene, "run_go1", "run_go2")
        for key in ("3", "1", "enter", "escape", "2"):
            await scene.press(key)
            assert [line[-4:] for line in strip(scene)] == ["+1 F"], key
        await scene.pilot.click(FollowStrip, offset=(20, 0))
        await scene.settle()

        assert "run_go1" in scene.text
        await scene.press("escape")
        assert "code hosts" in scene.text

        del board.runs["run_go1"]
        await scene.sync()
        assert "no longer shown by the service" in " ".join(strip(scene))


async def test_what_was_followed_is_followed_after_a_restart(staged: Staged, board: Lab) -> None:
    """From the cache; what had ended by then is listed alone."""
    async with staged(WIDE) as scene:
        await followed(scene, "run_go1", "run_go2")
        board.runs["run_go1"] |= {"status": "completed", "updated_at": stamp(MINUTES_INTO_THE_DAY)}
        await scene.sync()
        assert strip(scene)[0].endswith("+1 F")
    async with staged(WIDE) as scene:
        assert {pin.run_id for pin in scene.app.session.pins} == {"run_go1", "run_go2"}
        shown, _ = scene.app.session.followed
        assert [pin.run_id for pin in shown] == ["run_go2"], "the end of the other one is in the inbox"
        await scene.press("F")
        assert "✓ completed" in scene.text


async def test_a_run_that_a_colleague_cancelled_is_told_as_cancelled(staged: Staged, board: Lab) -> None:
    """Of two that end at once: the first is never seen as a failure, by no screen; the other one is."""
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
