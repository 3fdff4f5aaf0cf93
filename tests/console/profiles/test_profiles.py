"""Several profiles in one console: switching between them, and showing all of them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from textual.content import Content

from app.actions.refusals import ActionRefusedError
from app.actions.screen_many import ManyForm
from app.actions.screen_writes import ContinueRunForm
from app.api.requests import CancelRun
from app.console.app import SWITCHING_MODE, RunwardenApp
from app.console.base import ALL
from app.console.session import SwitchProfile
from app.profiles import LEDGER_FILE, Settings, data_folder
from app.profiles.engines import ProfileEngines
from app.profiles.load import parse
from app.profiles.screen_profiles import AllProfilesScreen, ProfileSwitcher
from app.profiles.token import EnvToken, FileToken, ReadToken, Token
from app.runs.screen_run import RunScreen
from app.runs.screen_views import first_picture
from storage.errors import DatabaseBusyError, StorageError
from storage.records import RunFilter
from storage.records.run import split_row_id
from storage.state import State
from tests.console.conftest import SMALL, WIDE, Scene
from tests.console.scenes import NOW, TOKEN_VARIABLE, StillEngines, a_day, settings_for
from tests.lab import Clock, Lab, Received, Server, Step
from tests.waiting import until
from widgets.forms.dialog import FormDialog
from widgets.kit.choice_lists import Options
from widgets.runs.table import RunTable

FleetStaged = Callable[..., AbstractAsyncContextManager[Scene]]


@pytest.fixture
def staging() -> Iterator[Lab]:
    """Another service with few, healthy runs."""
    with Lab() as board:
        a_day(board, 3)
        board.health = {"github": {"status": "ok"}}
        yield board


@pytest.fixture
def several(board: Lab, staging: Lab, tmp_path: Path) -> Settings:
    """Three services: one with a degraded host, one that is read-only, one that does not answer."""
    with Server() as gone:
        nowhere = gone.base_url
    settings = settings_for(board.base_url, tmp_path)
    one = settings.profile()
    staged = replace(one, name="acme-staging", base_url=staging.base_url, read_only=True)
    profiles = (one, staged, replace(one, name="partner", base_url=nowhere))
    return replace(settings, profiles=profiles, default_profile=one.name)


@pytest.fixture
def fleet_staged(several: Settings) -> FleetStaged:
    """The console on the first of them, over real engines."""

    @asynccontextmanager
    async def stage(size: tuple[int, int] = SMALL, settings: Settings = several) -> AsyncIterator[Scene]:
        clock, profile = Clock(NOW), settings.profile()
        engines = StillEngines(settings, profile, clock)
        engine = await engines.engine(profile.name)
        await engine.refresh()
        first = await asyncio.to_thread(first_picture, settings, profile, clock())
        app = RunwardenApp(settings, profile, engines, first, clock)
        try:
            async with app.run_test(size=size) as pilot:
                scene = Scene(pilot, engine, clock)
                await scene.settle()
                yield scene
        finally:
            await app.engines.close()

    return stage


@pytest.fixture
def clock() -> Clock:
    """The scene's time."""
    return Clock(NOW)


async def test_switching_profiles_interrupts_no_request(
    fleet_staged: FleetStaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch waits until the current request is answered, so that its outcome is not lost.

    Screens are gone while the old profile closes, and a late read does no harm. A profile that fails to close is left
    all the same, with a note.
    """
    gate, close_engine = asyncio.Event(), ProfileEngines.close_engine
    busy = AsyncMock(side_effect=DatabaseBusyError("The lease is held up.", path=Path("cache.sqlite3")))

    async def slow(self: ProfileEngines, name: str) -> None:
        await gate.wait()
        await close_engine(self, name)

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
        monkeypatch.setattr(ProfileEngines, "close_engine", slow)
        scene.app.post_message(SwitchProfile("acme-staging"))
        await scene.pilot.pause()
        for key in ("1", "2", "0"):
            await scene.pilot.press(key)

        assert scene.app.current_mode == SWITCHING_MODE
        gate.set()
        await scene.shows("acme-staging ▾ read-only", "All 3]")
        assert "The lease is held up." in " ".join(scene.toasts)
        monkeypatch.undo()


RULE = """[[automations]]
name = "nightly"
on = { schedule = "0 3 * * *" }
do = { start = "Look for flaky tests.", repository = "acme/api" }
"""


@pytest.mark.parametrize(
    ("keys", "count", "outcome"),
    [
        (("slash", *"is:active", "enter", "space", "space", "X", "ctrl+s", "escape"), 2, "2 runs were cancelled."),
        (("5", "S", "ctrl+s", "left"), 1, "● done → run_00060"),
    ],
)
async def test_a_profile_stays_until_every_outcome_is_recorded(
    fleet_staged: FleetStaged, several: Settings, board: Lab, keys: tuple[str, ...], count: int, outcome: str
) -> None:
    """Closing the dialog of a cancellation stops no request; running an automation by hand is a write as well."""
    gate, answer = threading.Event(), board.answer
    board.turns = {run_id: {"turns": []} for run_id in board.runs}

    def late(request: Received) -> Step:
        assert request.method == "GET" or gate.wait(300)
        return answer(request)

    changed = replace(several, automations=parse(Path("config.toml"), RULE).automations)
    async with fleet_staged(settings=changed) as scene:
        await scene.press(*keys[:-2])
        board.otherwise = late
        await scene.pilot.press(*keys[-2:])
        scene.app.post_message(SwitchProfile("acme-staging"))
        await scene.pilot.pause()
        assert scene.app.session.profile.name == "acme-prod"
        gate.set()
        await scene.settle()

        assert [action.state for action in await scene.engine.ledger.actions()] == ["confirmed"] * count
        assert "A request is being sent" in " ".join(scene.toasts)
        assert outcome in scene.toasts


async def test_a_profile_is_opened_by_its_letters(fleet_staged: FleetStaged, staging: Lab) -> None:
    """The other profile has its own screens, header and polling.

    The old one is closed, and reopens with the same token.
    """
    async with fleet_staged() as scene:
        left = scene.engine
        await scene.app.push_screen(sheet := ProfileSwitcher(scene.app.session))
        assert sheet.query_one(Options).option_count == 4  # Typed before the list is painted: keys typed ahead work.
        await scene.press("escape")
        await scene.press("ctrl+o", *"stag", "enter")
        await scene.shows("acme-staging ▾ read-only", "All 3]")

        assert scene.app.session.engine is not None
        assert scene.app.session.engine.profile.base_url == staging.base_url
        assert scene.app.session.engine.settings.command_line == "runwarden --profile=acme-staging"
        assert scene.app.session.engine.polling.is_poller
        assert len(scene.rows) == 3
        with pytest.raises(StorageError):
            await left.cache.count(RunFilter())

        await scene.press("ctrl+o", *"prod", "enter")
        await scene.shows("acme-prod ▾", "All 60]")

        assert scene.app.session.engine.token_problem is None


async def test_unusable_files_affect_one_profile_only(fleet_staged: FleetStaged, several: Settings) -> None:
    """Only that profile's rows are missing: the header of all profiles and its own banner say so.

    The user can switch to another one.
    """
    ledger = data_folder(several, several.profile("acme-staging")) / LEDGER_FILE
    ledger.mkdir(parents=True)
    async with fleet_staged(WIDE) as scene:
        await scene.press("0")
        await scene.shows("[60 runs]", "acme-staging ✗ files unusable")
        assert {row.profile for row in scene.table.rows_on_show} == {"acme-prod"}
        # Neither `press` nor `shows`, which would wait for the screen's worker and for files that never open.
        scene.app.post_message(SwitchProfile("acme-staging"))
        await until(lambda: "The answers cannot be stored" in scene.text, "the banner says so", saw=lambda: scene.text)
        scene.app.post_message(SwitchProfile("acme-prod"))
        await scene.shows("[All 60]")


def test_read_only_applies_to_every_profile(several: Settings, clock: Clock) -> None:
    """`--read-only` applies to the whole console; the configuration's `read_only` applies to its profile."""
    asked = ProfileEngines(several, replace(several.profile(), read_only=True), {}, clock)
    configured = ProfileEngines(several, several.profile("acme-staging"), {}, clock)

    assert [profile.read_only for profile in asked.profiles] == [True, True, True]
    assert [profile.read_only for profile in configured.profiles] == [False, True, False]


async def test_tokens_are_removed_from_the_environment_and_read_once(several: Settings, clock: Clock) -> None:
    """A variable that two profiles share serves both, and a token from stdin survives a switch.

    If RUNWARDEN_TOKEN belongs to RUNWARDEN_BASE_URL, a profile with another address opens without it.
    """
    stdin = ReadToken(Token("from-stdin"))
    foreign = EnvToken(TOKEN_VARIABLE, meant_for="RUNWARDEN_BASE_URL is https://other.example")
    problems = []
    for token, names in ((stdin, ("acme-prod", "acme-staging", "partner", "partner")), (foreign, ("partner",))):
        env = {TOKEN_VARIABLE: "shared-token", "PATH": "/bin"}
        engines = ProfileEngines(several, replace(several.profile("partner"), token=token), env, clock)
        try:
            for name in names:
                problems.append((await engines.engine(name)).token_problem)
                await engines.close_engine(name)
        finally:
            await engines.close()
        assert env == {"PATH": "/bin"} or token is foreign

    assert problems[:4] == [None] * 4
    assert "https://other.example" in str(problems[4])


async def test_a_replaced_token_file_is_read_when_its_profile_is_opened_again(
    several: Settings, clock: Clock, tmp_path: Path
) -> None:
    """Its earlier token is forgotten, even if the service would still accept it."""
    file, problems = tmp_path / "token", []
    engines = ProfileEngines(several, replace(several.profile("partner"), token=FileToken(file)), {}, clock)
    try:
        for text in ("first", "not a token"):
            file.touch(0o600)
            file.write_text(text)
            problems.append((await engines.engine("partner")).token_problem)
            await engines.close_engine("partner")
    finally:
        await engines.close()

    assert problems[0] is None
    assert "holds blanks" in str(problems[1])


@pytest.fixture
def writable(several: Settings) -> Settings:
    """The same services, each of which accepts writes."""
    return replace(several, profiles=tuple(replace(each, read_only=False) for each in several.profiles))


async def all_shown(scene: Scene) -> AllProfilesScreen:
    """Opens the list of all profiles with the profile switch."""
    await scene.press("ctrl+o", *"all", "enter")
    await scene.shows("[63 runs]", "service unreachable")
    screen = scene.app.screen
    assert isinstance(screen, AllProfilesScreen)
    return screen


def shown_profiles(scene: Scene) -> list[str]:
    """The profiles of the visible rows."""
    return [row.profile for row in scene.table.rows_on_show]


async def on_row_of(scene: Scene, profile: str) -> str:
    """Moves the cursor to the profile's newest run."""
    await scene.press("g")
    for row in scene.table.rows_on_show:
        if row.profile == profile:
            return row.own_id
        await scene.press("j")
    raise AssertionError(f"no run of {profile} in view:\n{scene.text}")


async def test_rows_of_all_profiles_are_in_one_order(
    fleet_staged: FleetStaged, picture: SnapshotAssertion, staging: Lab
) -> None:
    """Rows are sorted newest first, each with its profile in its colour, and filters apply to all.

    The header has the sums, and names the service that is down. On a read-only profile's row the send keys do nothing,
    and the banner says why. Enter switches to the run's profile.
    """
    async with fleet_staged() as scene:
        screen = await all_shown(scene)

        assert shown_profiles(scene)[:6] == ["acme-prod", "acme-staging"] * 3
        assert "all profiles ▾   partner  ◌ service unreachable" in scene.lines[0]
        assert "●5 ○2 ✗4" in scene.lines[0]
        assert scene.app.current_mode == ALL
        assert scene.app.export_screenshot() == picture

        await scene.press("slash", *"is:active", "enter")

        assert "[7 runs" in scene.text
        assert sorted(shown_profiles(scene)) == ["acme-prod"] * 4 + ["acme-staging"] * 3
        await scene.press("escape")
        assert "[63 runs]" in scene.text
        await on_row_of(scene, "acme-prod")
        assert "Nothing can be sent from here." not in scene.text
        run_id = await on_row_of(scene, "acme-staging")
        assert "Nothing can be sent from here." in scene.text
        for key in ("n", "c", "a", "X"):
            await scene.press(key)
            assert scene.app.screen is screen
        engine = screen.acting_engine
        assert not isinstance(engine, str)
        with pytest.raises(ActionRefusedError, match="read-only"):
            await engine.actions.submit(CancelRun(run_id))

        assert staging.posts == []

        await scene.press("enter")
        await scene.shows("acme-staging ▾ read-only")
        assert isinstance(scene.app.screen, RunScreen)


async def test_an_action_uses_the_service_of_its_row(
    fleet_staged: FleetStaged, writable: Settings, board: Lab, staging: Lab
) -> None:
    """The form names the profile in its colour, and the new run opens in its profile.

    A continuation waits for an active run only in the current profile. Marks in several profiles are refused. A retry
    warns while that service's code host is down.
    """
    failed = next(iter(staging.runs))
    staging.move(failed, "failed")
    for run_id in staging.runs:
        staging.turns[run_id] = {"turns": [{"number": 1, "instructions": "Do it."}]}
    staging.health = {"github": {"status": "unreachable"}}
    async with fleet_staged(WIDE, settings=writable) as scene:
        screen = await all_shown(scene)
        for profile, offered in (("acme-prod", True), ("acme-staging", False)):
            row = next(row for row in scene.table.rows_on_show if row.profile == profile and not row.is_final)
            scene.table.mark([row.run_id])
            await scene.press("c", *"Go on.", "ctrl+s")
            assert ("Later" in scene.text) == offered
            await scene.press("escape", "escape")
            scene.table.mark([row.run_id], is_marked=False)

        await scene.press("space", "space", "X")
        assert scene.toasts[-1].startswith("The marked runs are of acme-prod and acme-staging")
        assert scene.app.screen is screen
        await scene.press("f")
        assert scene.app.session.pins == ()
        await scene.press("escape")
        of_staging = [row.run_id for row in scene.table.rows_on_show if row.profile == "acme-staging"]
        scene.table.mark(of_staging[-2:])
        await scene.press("c")
        assert scene.toasts[-1].startswith("2 runs are marked, but only one can be continued")
        await scene.press("X")
        await scene.shows("Cancel 2 runs", "acme-staging")
        await scene.press("ctrl+s")
        await scene.shows("2 marked")
        cancelled = [request.path for request in staging.requests if request.method == "POST"]
        assert {path.split("/")[-2] for path in cancelled} == {split_row_id(row)[1] for row in scene.table.marks}

        await scene.press("escape", "slash", *"status:failed", "enter")
        assert await on_row_of(scene, "acme-staging") == failed
        assert "T retry" in scene.lines[-1]
        await scene.press("T")
        assert scene.toasts[-1].startswith("Code host github is unreachable")
        assert isinstance(scene.app.screen, ManyForm)
        await scene.press("ctrl+s", "ctrl+s")
        await scene.shows("Open run")
        assert b"Do it." in staging.posts[-1]
        assert scene.app.session.batches.views == ()
        await scene.press("escape", "escape")

        run_id = await on_row_of(scene, "acme-staging")
        await scene.press("c", *"Go on.")
        form = scene.app.screen
        assert isinstance(form, ContinueRunForm)
        title = form.query_one(FormDialog).border_title or ""
        assert Content.from_markup(title).plain == "Continue a run   acme-staging "
        await scene.press("ctrl+s", "ctrl+s")
        await scene.shows("Open run")
        assert b"Go on." in staging.posts[-1]
        assert run_id.encode() in staging.posts[-1]
        assert board.posts == []
        await scene.press("enter")
        await scene.shows("acme-staging ▾")
        assert isinstance(scene.app.screen, RunScreen)
        assert scene.app.session.profile.name == "acme-staging"
