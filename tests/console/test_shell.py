"""The console's shell: rooms, keys, palette, and how it ends."""

import asyncio
from pathlib import Path

import pytest

from app.api.requests import CreateOrganization
from app.console.app import RunwardenApp
from app.console.base import key_actions
from app.console.messages import OpenRun
from app.engine.events import StorageFailed
from app.profiles.load import parse
from app.runs.screen import RunsScreen
from app.runs.screen_run import RunScreen
from storage.records.activity import PollOutcome
from tests.console.automations.conftest import ONE
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.scenes import SceneClock, settings_for
from tests.lab import Lab
from widgets.kit.line_text import LineText


async def test_help_names_every_key_of_the_screen(staged: Staged) -> None:
    """It is made from the bindings, so nothing can be missing; a key or a word filters it, escape clears the filter."""
    async with staged((100, 120)) as scene:
        expected = [each for each in key_actions(scene.app.screen) if each.keys]
        await scene.press("question_mark")

        for key_action in expected:
            assert key_action.does in scene.text
            assert key_action.keys[0] in scene.text

        await scene.press("slash", *"by status", "enter")
        assert "Filter by status" in scene.text
        assert "Start a run" not in scene.text
        await scene.press("slash", *"zzz", "enter")
        assert "No key found. Search the palette: press :." in scene.text
        await scene.press("escape")
        assert "Start a run on a repository" in scene.text
        await scene.press("escape")
        assert "On this screen" not in scene.text


async def test_a_tab_that_is_not_set_up_is_hidden_until_it_is(staged: Staged, tmp_path: Path) -> None:
    """Its key leads there all the same; an organization, or a rule, shows its tab for good."""
    async with staged() as scene:
        tabs = scene.lines[1]
        assert "Organizations" not in tabs
        assert "Automations" not in tabs
        await scene.press("3")
        assert "3 Organizations" in scene.lines[1]
        await scene.engine.actions.submit(CreateOrganization("ada@globex.example"))
        await scene.ring()
        await scene.press("1")
        assert "3 Organizations" in scene.lines[1]
    file = tmp_path / "config.toml"
    file.write_text(ONE, "utf-8")
    async with staged(changed={"automations": parse(file, ONE).automations}) as scene:
        assert "5 Automations" in scene.lines[1]


@pytest.mark.parametrize("may_create", [True, False, None])
async def test_a_token_that_may_create_organizations_has_their_tab(
    staged: Staged, board: Lab, may_create: bool | None
) -> None:
    """The service is asked once; if it does not know, the tab is hidden until there is an organization."""
    board.may_create = may_create
    async with staged() as scene:
        for _ in range(2):
            await scene.sync()

        assert ("3 Organizations" in scene.lines[1]) is bool(may_create)
        assert sum(request.path.endswith("/invitations") for request in board.requests) == 1


async def test_a_terminal_too_small_says_what_it_needs_until_it_grows(staged: Staged) -> None:
    """From the start or later, over a form as well; no key acts on what is not seen, and nothing typed is lost."""
    async with staged((40, 10)) as scene:
        await scene.press("n")
        assert [line.strip() for line in scene.lines if line.strip()] == ["40x10 is too small: 50x12 at least."]
        await scene.pilot.resize_terminal(80, 24)
        await scene.settle()
        assert len(scene.rows) > 1
        await scene.press("n", "x")
        for size in ((80, 11), (49, 24), (80, 24)):
            await scene.pilot.resize_terminal(*size)
            await scene.settle()
            assert ("New run" in scene.text, "too small" in scene.text) == (size == (80, 24), size != (80, 24))
        assert "x" in scene.app.screen.values.values()  # type: ignore[attr-defined]  # a form's


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

        reading = page.run_worker(read_on_and_on)
        await scene.pilot.press("escape")
        await scene.settle()

        assert reading.is_cancelled
        assert isinstance(scene.app.screen, RunsScreen)


async def test_sixteen_colours_have_a_theme_of_their_own(
    board: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soft hues would all be the same grey there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")

    for wanted, theme in (
        ("runwarden", "runwarden-16"),
        ("runwarden-light", "runwarden-light-16"),
        ("no such theme", "runwarden-16"),
    ):
        settings = settings_for(board.base_url, tmp_path, theme=wanted)
        app = RunwardenApp(settings, settings.profile(), asyncio.Event().wait, None, SceneClock())  # type: ignore[arg-type]

        assert app.theme == theme


SIZES = ((60, 20), (80, 24), (200, 50))


def below(scene: Scene) -> list[str]:
    """The lines between the screen's content and its end."""
    return scene.lines[scene.app.screen.query_one("#bottom").region.y :]


async def test_at_most_two_lines_stand_below_the_table(staged: Staged) -> None:
    """The keys and one more, for the most urgent message."""
    async with staged(SIZES[0]) as scene:
        assert len(below(scene)) == 1
        await scene.press("f", "j", "f", "j", "f")
        assert below(scene)[0].rstrip().endswith("+2 F")
        await scene.ended(PollOutcome("runs", scene.clock(), "unreachable", "Connection refused " * 20))
        assert "No answer for" in below(scene)[0]
        await scene.ring(StorageFailed("No space is left. " * 30))
        for size in SIZES:
            await scene.pilot.resize_terminal(*size)
            await scene.settle()
            assert "see Health (2)" in below(scene)[0]
            assert len(below(scene)) == 2
            assert "? help" in below(scene)[1]


ROWS = "RunTable, RunPane, LineTable, LeadList, RuleTable, Conversation, ReplyBox, LogView, HeaderBar, #bottom"
"""What a toast covers on no screen."""


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (140, 40)])
async def test_a_toast_covers_neither_rows_nor_the_reply_nor_the_keys(staged: Staged, size: tuple[int, int]) -> None:
    """However long it is, it takes the line of the tabs and the one below; its key is in the bottom line."""
    async with staged(size, toasts=True) as scene:
        for keys in ("1", "2", "4", "5", "6", "7", ("1", "enter"), "l"):
            await scene.press(*keys)
            scene.app.session.notify("A long notice. " * 20)
            await scene.tick()
            scene.text  # noqa: B018 — lays out what is on show
            (toast,) = [toast for toast in scene.app.screen.query("Toast") if toast.region]

            covered = [each for each in scene.app.screen.query(ROWS) if each.region and each.display]
            assert covered
            assert not [each for each in covered if toast.region.overlaps(each.region)], keys
            assert scene.lines[toast.region.y].lstrip("▌ ").startswith("A long notice.")
            assert "N notice" in scene.lines[-1]


async def test_a_key_opens_what_a_toast_is_about(staged: Staged) -> None:
    """The run, or the row on another screen; if it is about nothing in particular, all of it is shown."""
    async with staged(SMALL) as scene:
        scene.app.notify("branch \x1b[2J gone")
        assert "\x1b" not in scene.app.session.notices[0].text
        scene.app.session.notices.clear()
        await scene.press("N")
        assert scene.toasts[-1] == "There was no notice yet."

        scene.app.session.notify("It ended.", opens=OpenRun("run_01JX00017F3KQ9ZT2M1879"))
        await scene.press("N")
        assert isinstance(scene.app.screen, RunScreen)

        await scene.press("f")
        await scene.tick(seconds=10)
        await scene.press("N")
        assert "is:followed" in scene.text

        scene.app.session.notify("Word after word. " * 20 + "The end.")
        await scene.press("N")
        await scene.shows("Notices", "The end.")
        await scene.press("2")
        assert "is:followed" in scene.text


async def test_one_toast_stands_where_it_covers_no_dialog(staged: Staged) -> None:
    """The newest one: over a dialog in the last line, and below the dialog not once more."""
    places = ((("n",), "FormDialog"), (("escape", "X"), "#picker"))
    async with staged(toasts=True) as scene:
        await scene.pilot.resize_terminal(*SIZES[1])
        for keys, dialog in places:
            await scene.press(*keys)
            scene.app.session.notify("Said before.")
            scene.app.session.notify("A long notice. " * 10)
            await scene.settle()
            scene.text  # noqa: B018 — lays out what is on show
            below_it, top = scene.app.screen_stack[:-1], scene.app.screen
            (toast,) = [toast for toast in top.query("Toast") if toast.region]

            assert "A long notice" in str(toast.render())
            assert not any(screen.query_one("ToastRack").display for screen in below_it)
            for name in (dialog, "HeaderBar", "TabBar"):
                covered = (top if name == dialog else scene.app.screen_stack[0]).query_one(name).region
                assert not toast.region.overlaps(covered), name
