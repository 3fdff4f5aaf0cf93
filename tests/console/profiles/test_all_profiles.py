"""The runs of all profiles in one list. Both services have runs of the same ids."""

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from textual.content import Content

from app.actions.refusals import ActionRefusedError
from app.actions.screen_many import ManyForm
from app.actions.screen_writes import ContinueRunForm
from app.api.requests import CancelRun
from app.console.base import ALL
from app.profiles import Settings
from app.profiles.screen_all_profiles import AllProfilesScreen
from app.runs.screen_run import RunScreen
from storage.records.run import whose
from tests.console.conftest import WIDE, Scene
from tests.console.profiles.conftest import FleetStaged
from tests.lab import Lab
from widgets.forms.dialog import FormDialog


@pytest.fixture
def writable(several: Settings) -> Settings:
    """The same services; each takes writes."""
    return replace(several, profiles=tuple(replace(each, read_only=False) for each in several.profiles))


async def all_shown(scene: Scene) -> AllProfilesScreen:
    """Goes to the list by the profile switch."""
    await scene.press("ctrl+o", *"all", "enter")
    await scene.shows("[63 runs]", "service unreachable")
    screen = scene.app.screen
    assert isinstance(screen, AllProfilesScreen)
    return screen


def profiles(scene: Scene) -> list[str]:
    """The profiles of the rows in view."""
    return [row.profile for row in scene.table.rows_on_show]


async def on_row_of(scene: Scene, profile: str) -> str:
    """Puts the cursor on the profile's newest run."""
    await scene.press("g")
    for row in scene.table.rows_on_show:
        if row.profile == profile:
            return row.own_id
        await scene.press("j")
    raise AssertionError(f"no run of {profile} in view:\n{scene.text}")


async def test_all_rows_are_in_one_order(fleet_staged: FleetStaged, picture: SnapshotAssertion, staging: Lab) -> None:
    """Newest first, each with its profile in its colour; the header has the sums, and names the service that is down.

    A filter holds for all of them; escape shows all again. On a row of a read-only profile, the keys that send do
    nothing, and the banner says why. Enter switches to the run's profile; backspace comes back to the list, the filter
    and the row.
    """
    async with fleet_staged() as scene:
        screen = await all_shown(scene)

        assert profiles(scene)[:6] == ["acme-prod", "acme-staging"] * 3
        assert "all profiles ▾   partner  ◌ service unreachable" in scene.lines[0]
        assert "●5 ○2 ✗4" in scene.lines[0]
        assert scene.app.current_mode == ALL
        assert scene.app.export_screenshot() == picture

        await scene.press("slash", *"is:active", "enter")

        assert "[7 runs" in scene.text
        assert sorted(profiles(scene)) == ["acme-prod"] * 4 + ["acme-staging"] * 3
        await scene.pilot.click("RunTable", offset=(6, 0))
        await scene.settle()
        assert [row.status for row in scene.table.rows_on_show] == ["working"] * 5 + ["queued"] * 2
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

        await scene.press("slash", *"is:active", "enter")
        await on_row_of(scene, "acme-staging")
        row = scene.table.row
        await scene.press("enter")
        await scene.shows("acme-staging ▾ read-only")
        assert isinstance(scene.app.screen, RunScreen)
        await scene.press("backspace", "backspace")
        await scene.shows("all profiles ▾", "[7 runs")

        assert scene.table.row == row
        await scene.press("ctrl+o", *"stag", "enter")
        assert scene.app.current_mode == "runs"


async def test_a_service_that_goes_down_is_named_and_its_rows_stay(fleet_staged: FleetStaged, staging: Lab) -> None:
    """Its active runs are timed up to its last answer; those of the other go on."""
    async with fleet_staged(WIDE) as scene:
        await all_shown(scene)
        staging.close()
        scene.clock.move(minutes=5)
        await scene.press("ctrl+r")
        await scene.sync()
        await scene.tick()
        await scene.shows("acme-staging ◌ no answer 5m", "● 1 live")
        took = {row.profile: line for row, line in zip(scene.table.rows_on_show, scene.rows, strict=False)}

        assert "≥" in next(line for line in scene.rows if "acme-staging" in line)
        assert "≥" not in next(line for line in scene.rows if "acme-prod" in line)
        assert set(took) == {"acme-prod", "acme-staging"}


async def test_an_action_reaches_the_service_of_its_row_and_no_other(
    fleet_staged: FleetStaged, writable: Settings, board: Lab, staging: Lab
) -> None:
    """The form names the profile in its colour; the run that it made opens in its profile.

    A continuation of an active run waits only where this console sends it: in the profile on show. Marks of several
    profiles are not acted on. A retry warns while that service's code host is down.
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
        assert scene.toasts[-1].startswith("2 runs are marked: here this is done for one.")
        await scene.press("X")
        await scene.shows("Cancel 2 runs", "acme-staging")
        await scene.press("ctrl+s")
        await scene.shows("2 marked")
        cancelled = [request.path for request in staging.requests if request.method == "POST"]
        assert {path.split("/")[-2] for path in cancelled} == {whose(row)[1] for row in scene.table.marks.ids}

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
