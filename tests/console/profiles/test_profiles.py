"""Several profiles in one console: going from one to another, and looking at all of them."""

import asyncio
import os
from io import StringIO
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from textual.color import Color
from textual.content import Content

from app.console.app import BETWEEN
from app.console.messages import SwitchProfile
from app.profiles import LEDGER_FILE, Settings, data_folder
from app.profiles.engines import ProfileEngines
from app.profiles.screen_profiles import GENTLE_S, ProfileOverview, ProfileSwitcher
from app.profiles.token import EnvToken, StreamToken
from storage.errors import DatabaseBusyError, StorageError
from storage.records import RunFilter
from storage.state import State
from tests.console.conftest import SMALL, WIDE, Disk, Staged
from tests.console.profiles.conftest import FleetStaged
from tests.console.scenes import TOKEN_VARIABLE, SceneClock
from tests.console.test_error_boundary import press_all
from tests.lab import Lab
from tests.waiting import present, until
from widgets.frame.header_bar import HeaderBar
from widgets.kit.badges import HUES
from widgets.profiles import ProfileList
from widgets.runs.table import RunTable


async def test_between_two_profiles_nothing_is_cut_off(
    fleet_staged: FleetStaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile stays while a request is being sent: cut off, its outcome would be unknown.

    The rooms are gone while the old profile closes; a reading that ends then finds no widget, and ends nothing. A
    profile that cannot be closed properly is left all the same, and that is said.
    """
    gate, let_go = asyncio.Event(), ProfileEngines.let_go
    busy = AsyncMock(side_effect=DatabaseBusyError("The lease is held up.", path=Path("cache.sqlite3")))

    async def slow(self: ProfileEngines, name: str) -> None:
        await gate.wait()
        await let_go(self, name)

    async with fleet_staged() as scene:
        screen, outcome = scene.app.screen, asyncio.Event()
        screen.run_worker(outcome.wait, group="import")
        scene.app.post_message(SwitchProfile("acme-staging"))
        await scene.pilot.pause()
        assert "A request is being sent" in " ".join(scene.toasts)
        assert scene.app.session.profile.name == "acme-prod"
        outcome.set()
        await scene.settle()

        async def late() -> None:
            await until(lambda: not screen.query(RunTable), "the table is removed", pause_s=0)
            screen.query_one(RunTable)

        screen.run_worker(late)
        scene.engine.polling.is_poller = True
        monkeypatch.setattr(State, "release_lease", busy)
        monkeypatch.setattr(ProfileEngines, "let_go", slow)
        scene.app.post_message(SwitchProfile("acme-staging"))
        await scene.pilot.pause()
        for key in ("1", "2", "0"):
            await scene.pilot.press(key)

        assert scene.app.current_mode == BETWEEN
        gate.set()
        await scene.shows("acme-staging ▾ read-only", "All 3]")
        assert "The lease is held up." in " ".join(scene.toasts)
        monkeypatch.undo()


async def test_another_profile_by_its_letters_and_back_again(fleet_staged: FleetStaged, staging: Lab) -> None:
    """Its rooms, its header, its polling; the one that was left is closed, and opens again with the same token.

    ctrl+o twice, or letters of no profile, change nothing; a click on the name at the top opens the list.
    """
    async with fleet_staged() as scene:
        for keys in (("ctrl+o",), (*"zzz", "enter")):
            await scene.press("ctrl+o")
            await scene.shows("acme-prod", "acme-staging")
            assert isinstance(scene.app.screen, ProfileSwitcher)
            await scene.press(*keys)
            assert not isinstance(scene.app.screen, ProfileSwitcher)
            assert scene.app.session.profile.name == "acme-prod"
        left = scene.engine
        await scene.pilot.click("HeaderBar", offset=(4, 0))
        await scene.settle()
        await scene.pilot.click(ProfileList, offset=(6, 1))
        await scene.shows("acme-staging ▾ read-only", "All 3]")

        assert scene.app.session.engine is not None
        assert scene.app.session.engine.profile.base_url == staging.base_url
        assert scene.app.session.engine.settings.command_line == "runwarden --profile=acme-staging"
        assert scene.app.session.engine.polling.is_poller
        assert len(scene.rows) == 3
        with pytest.raises(StorageError):
            await left.cache.count(RunFilter())

        await scene.press("2")
        await scene.shows("code host", "github")
        assert "gitlab" not in scene.text

        await scene.press("1", "ctrl+o", *"prod", "enter")
        await scene.shows("acme-prod ▾", "All 60]")

        assert scene.app.session.engine.token_problem is None


async def test_each_profile_has_its_colour_where_something_is_sent(
    fleet_staged: FleetStaged, several: Settings
) -> None:
    """The name stands in it in the header and beside the title of each form and confirmation, whose border has it."""
    writable = replace(several, profiles=tuple(replace(each, read_only=False) for each in several.profiles))
    async with fleet_staged(settings=writable) as scene:
        for profile, hue, keys in (("acme-prod", "red", "ncaX"), ("acme-staging", "green", "X")):
            line = scene.app.screen.query_one(HeaderBar).render()
            span = next(span for span in line.spans if " on " in str(span.style))
            assert line.plain[span.start : span.end] == f" {profile} "
            assert span.style == f"bold #ffffff on {HUES[hue]}"
            for key in keys:
                await scene.press(key)
                box = scene.app.screen.query_one("FormDialog, #picker")
                assert Content.from_markup(box.border_title or "").plain.endswith(f"  {profile} ")
                assert box.styles.border_top[1] == Color.parse(HUES[hue])
                await scene.press("escape")
            await scene.press("ctrl+o", *"stag", "enter")
            await scene.shows("acme-staging ▾", "All 3]")


async def test_the_name_at_the_top_stays_what_it_is_where_there_is_one(staged: Staged) -> None:
    """With a single profile nothing opens, and the titles of forms do not name it."""
    async with staged(SMALL) as scene:
        for key in ("ctrl+o", "0"):
            await scene.press(key)

            assert "▾" not in scene.lines[0]
            assert "Only one profile is configured." in " ".join(scene.toasts)
            assert not isinstance(scene.app.screen, ProfileSwitcher)
        await scene.press("1", "n")
        assert scene.app.screen.query_one("FormDialog").border_title == "New run"


async def test_looking_is_gentle(several: Settings, board: Lab, staging: Lab) -> None:
    """A minute between two questions, longer where they fail; the one on show is never asked from here."""
    clock = SceneClock()
    profile_engines = ProfileEngines(several, several.profile(), os.environ, clock)
    look = ProfileOverview(profile_engines, "acme-prod", clock)

    async def asked(after_s: float) -> tuple[bool, int]:
        """Whether a round asked a service that answers, and how often the one that is down failed so far."""
        clock.move(seconds=after_s)
        before = len(staging.requests)
        async for _ in look.round():
            pass
        link = present(present(look.facts["partner"].vitals).runs_link)
        return len(staging.requests) > before, link.failures

    try:
        rounds = [await asked(after_s) for after_s in (0, 0, GENTLE_S - 1, 2, GENTLE_S + 1)]
        look.make_due()
        rounds.append(await asked(1))
    finally:
        await profile_engines.close()

    assert rounds == [(True, 1), (False, 1), (False, 1), (True, 2), (True, 2), (False, 3)]
    assert board.list_queries == []


async def test_files_that_cannot_be_used_are_one_profiles_trouble(fleet_staged: FleetStaged, several: Settings) -> None:
    """Only its rows are hidden: the header of all profiles says so, and its banner once it is open.

    From there one goes to another.
    """
    ledger = data_folder(several, several.profile("acme-staging")) / LEDGER_FILE
    ledger.mkdir(parents=True)
    async with fleet_staged(WIDE) as scene:
        await scene.press("0")
        await scene.shows("[60 runs]", "acme-staging ✗ files unusable")
        assert {row.profile for row in scene.table.rows_on_show} == {"acme-prod"}
        # Neither `press` nor `shows`: they would wait for the screen's worker, and with it for files that never open.
        scene.app.post_message(SwitchProfile("acme-staging"))
        await until(lambda: "The answers cannot be stored" in scene.text, "the banner says so", saw=lambda: scene.text)
        scene.app.post_message(SwitchProfile("acme-prod"))
        await scene.shows("[All 60]")


def test_read_only_for_this_console_holds_for_every_profile(several: Settings, clock: SceneClock) -> None:
    """`--read-only` was asked of the console; what the configuration says of one profile is that one's."""
    asked = ProfileEngines(several, replace(several.profile(), read_only=True), {}, clock)
    configured = ProfileEngines(several, several.profile("acme-staging"), {}, clock)

    assert [profile.read_only for profile in asked.profiles] == [True, True, True]
    assert [profile.read_only for profile in configured.profiles] == [False, True, False]


async def test_tokens_leave_the_environment_and_are_read_once(several: Settings, clock: SceneClock) -> None:
    """A variable that two profiles share serves both; one from stdin is still there after coming back.

    RUNWARDEN_TOKEN beside RUNWARDEN_BASE_URL: a profile with another address is opened without it.
    """
    stdin = StreamToken(StringIO("from-stdin\n"))
    foreign = EnvToken(TOKEN_VARIABLE, meant_for="RUNWARDEN_BASE_URL is https://other.example")
    problems = []
    for token, names in ((stdin, ("acme-prod", "acme-staging", "partner", "partner")), (foreign, ("partner",))):
        env = {TOKEN_VARIABLE: "shared-token", "PATH": "/bin"}
        engines = ProfileEngines(several, replace(several.profile("partner"), token=token), env, clock)
        try:
            for name in names:
                problems.append((await engines.engine(name)).token_problem)
                await engines.let_go(name)
        finally:
            await engines.close()
        assert env == {"PATH": "/bin"} or token is foreign

    assert problems[:4] == [None] * 4
    assert "https://other.example" in str(problems[4])


async def test_no_key_ends_the_console_while_our_files_fail(fleet_staged: FleetStaged, disk: Disk) -> None:
    """Nor does any key of all profiles and of the switcher."""
    async with fleet_staged() as scene:
        pressed = set[tuple[type, str]]()
        for way in ("0", "ctrl+o"):
            await press_all(scene, disk, way, pressed)
