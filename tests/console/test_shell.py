"""The console's shell: rooms, keys, palette, and how it ends."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from textual.screen import ModalScreen
from textual.widgets import Input

from app.console.app import RunwardenApp
from app.console.forms import ContinueRunForm, NewRunForm, StartAgentForm
from app.console.key_actions import key_actions
from app.console.runs.run_screen import RunScreen
from app.console.runs.screen import RunsScreen
from app.events import StorageFailed
from storage.records import Action, PollOutcome
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY, SceneClock, a_day, app_on, engine_on, settings_for
from tests.pty.terminal import Terminal
from tests.run_board import Board, served
from widgets.line_text import LineText

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from pathlib import Path
from app.config import Profile, Settings
from app.console import run_console
from app.token import EnvToken

profile = Profile("acme", sys.argv[1], EnvToken("RUNWARDEN_SCENE_TOKEN"))
settings = Settings(data_dir=Path(sys.argv[2]), profiles=(profile,))
sys.exit(run_console(settings, profile))
"""


def confirmed(run_id: str) -> Action:
    """A run that was started."""
    at = SceneClock().now
    return Action(
        action_id="act_1",
        kind="run.start",
        subject="",
        key="k",
        path="/external/runs",
        body_json="{}",
        actor="console",
        state="confirmed",
        created_at=at,
        result_id=run_id,
    )


async def test_keys_and_clicks_go_through_the_rooms(staged: Staged) -> None:
    """1, 2 and 3, or a click on the tab."""
    async with staged() as scene:
        for key, room in (("2", "health"), ("3", "organizations"), ("1", "runs")):
            await scene.press(key)

            assert scene.app.current_mode == room

        await scene.pilot.click("TabBar", offset=(14, 0))
        await scene.settle()

        assert scene.app.current_mode == "health"


async def test_every_tab_has_its_place_on_a_small_screen(staged: Staged) -> None:
    """Titles get shorter before one is cut, and a click still finds its room."""
    async with staged((60, 20)) as scene:
        bar = scene.lines[1]
        assert bar.split() == ["1", "Runs", "2", "Health", "3", "Orgs", "4", "Insights", "6", "Activity"]

        for title, room in (("Activity", "activity"), ("Orgs", "organizations"), ("Health", "health")):
            await scene.pilot.click("TabBar", offset=(bar.index(title) + 1, 0))
            await scene.settle()

            assert scene.app.current_mode == room


async def test_a_lab_is_said_at_the_top(staged: Staged) -> None:
    """Whoever asked the service, for it stands in the cache; an answer without the mark ends it."""
    async with staged() as scene:
        for in_lab in (True, False):
            await scene.ended(PollOutcome("runs", scene.clock(), in_lab=in_lab))

            assert ("acme-prod lab" in scene.lines[0]) is in_lab


async def test_help_names_every_key_of_the_screen(staged: Staged) -> None:
    """It is made from the bindings, so nothing can be missing."""
    async with staged((100, 120)) as scene:
        expected = key_actions(scene.app.screen)
        await scene.press("question_mark")

        for key_action in expected:
            assert key_action.does in scene.text
            assert key_action.keys[0] in scene.text

        await scene.press("escape")

        assert "On this screen" not in scene.text


async def test_the_palette_does_what_it_names(staged: Staged) -> None:
    """`:` and a few letters go to a room, or change the theme."""
    async with staged() as scene:
        await scene.pilot.press("colon")
        await scene.pilot.pause()
        scene.app.screen.query_one(Input).value = "Theme: runwarden-light"
        await scene.settle()
        await scene.press("enter")

        assert scene.app.theme == "runwarden-light"

        await scene.pilot.press("colon")
        await scene.pilot.pause()
        scene.app.screen.query_one(Input).value = "Next view"
        await scene.settle()
        await scene.press("enter")

        assert "[Active]" in scene.text


@pytest.mark.parametrize(("key", "form"), [("n", NewRunForm), ("c", ContinueRunForm), ("a", StartAgentForm)])
async def test_keys_open_the_forms(staged: Staged, key: str, form: type[ModalScreen[Action | None]]) -> None:
    """New run, continue, agent; escape leads back to the same run."""
    async with staged() as scene:
        await scene.press("j")
        before = scene.table.row
        await scene.press(key)

        assert isinstance(scene.app.screen, form)

        await scene.press("escape")

        assert scene.table.row == before


async def test_the_cursor_goes_to_the_run_that_was_started(staged: Staged, board: Board) -> None:
    """A form ended with a confirmed run: with the next answer the cursor is on it."""
    async with staged() as scene:
        await scene.press("j", "j", "j")
        screen = scene.app.screen
        assert isinstance(screen, RunsScreen)
        board.put("run_mine", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.engine.runs.refresh()
        screen.run_actions.form_closed(confirmed("run_mine"))
        await scene.settle()

        assert scene.table.row is not None
        assert scene.table.row.run_id == "run_mine"


async def test_a_read_only_profile_offers_no_writes(board: Board, tmp_path: Path) -> None:
    """The header says so, and the keys do nothing."""
    clock, settings = SceneClock(), settings_for(board.base_url, tmp_path)
    settings = replace(settings, profiles=(replace(settings.profile(), read_only=True),))
    async with engine_on(settings, clock) as engine:
        app = app_on(settings, clock, engine)
        async with app.run_test(size=WIDE) as pilot:
            scene = Scene(pilot, engine, clock)
            await scene.settle()
            await scene.press("n", "c", "a")

            assert "read-only" in scene.lines[0]
            assert isinstance(app.screen, RunsScreen)


async def test_what_reads_for_a_screen_ends_before_the_screen_goes(staged: Staged) -> None:
    """Else a result that arrives in that moment would look for parts that are gone already."""
    async with staged() as scene:
        await scene.press("enter")
        page = scene.app.screen
        assert isinstance(page, RunScreen)

        async def read_on_and_on() -> None:
            while True:
                page.query_one(LineText)
                await asyncio.sleep(0)

        reading = page.run_worker(read_on_and_on())
        await scene.pilot.press("escape")
        await scene.settle()

        assert reading.is_cancelled
        assert isinstance(scene.app.screen, RunsScreen)


async def test_files_that_fail_are_said_with_the_cure(staged: Staged) -> None:
    """A full disk is no empty list: the rows stay and the banner says what happened."""
    async with staged() as scene:
        scene.engine.doorbell.ring(StorageFailed("No space is left for cache.sqlite3. Free some, then try again."))
        await scene.settle()

        assert "own files unusable" in scene.lines[0]
        assert "Free some, then try again." in scene.text
        assert "fix/login-timeout" in scene.text


async def test_sixteen_colours_have_a_theme_of_their_own(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soft hues would all be the same grey there; a theme that was asked for by name is kept."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")

    for wanted, theme in (("runwarden", "runwarden-16"), ("nord", "nord"), ("no such theme", "runwarden-16")):
        settings = settings_for(board.base_url, tmp_path, theme=wanted)
        app = RunwardenApp(settings, settings.profile(), asyncio.Event().wait, None, SceneClock())  # type: ignore[arg-type]

        assert app.theme == theme


async def test_the_line_of_keys_is_clickable(staged: Staged) -> None:
    """A hint does what its key does."""
    async with staged(SMALL) as scene:
        x = scene.lines[-1].index("/ search")
        await scene.pilot.click("KeyBar", offset=(x, 0))
        await scene.settle()

        assert isinstance(scene.app.focused, Input)
        assert "esc clear" in scene.lines[-1]


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (99, 31), (140, 40), (200, 60)])
async def test_every_line_has_the_screen_width(staged: Staged, size: tuple[int, int]) -> None:
    """No frame breaks at any size: header, keys and help stay in view."""
    async with staged(size) as scene:
        for room in ("1", "2"):
            await scene.press(room)

            assert len(scene.lines) == size[1]
            assert "acme-prod" in scene.lines[0]
            assert scene.lines[-1].rstrip().endswith("? help")


def test_the_service_killed_leaves_the_same_rows_after_a_restart(tmp_path: Path) -> None:
    """Closed and opened again without a service: the cached rows, marked stale, and no error over them."""
    with served(Board()) as board:
        a_day(board)
        first = Terminal(["-c", PROGRAM, board.base_url, str(tmp_path)], {})
        # The rows are there a moment before it is written down that the service answered.
        first.shows("complete", "live")
        first.type("q")
        assert first.end() == 0
        first.close()

    second = Terminal(["-c", PROGRAM, board.base_url, str(tmp_path)], {})
    second.shows("it turns live by itself")
    second.type("q")

    assert second.end() == 0
    second.close()
    assert b"fix/login-timeout" in second.seen
    assert b"it turns live by itself" in second.seen
    assert second.seen.index(b"fix/login-timeout") < second.seen.index(b"service unreachable")
