"""Pictures of the switcher and of all profiles at a glance, at two sizes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import DEADLINE_S, SMALL, WIDE, Scene
from tests.console.profiles.conftest import FleetStaged
from widgets.profiles import ProfileFacts, ProfileList

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


Change = Callable[[ProfileFacts], ProfileFacts]


@pytest.fixture
def shown_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Has lists of profiles show them at addresses that are the same in every run, and otherwise changed."""
    show = ProfileList.show

    def change_by(change: Change) -> None:
        def changed(self: ProfileList, facts: Sequence[ProfileFacts], by: Any) -> None:
            at_home = (replace(each, address=f"https://{each.name}.runs.example/v1") for each in facts)
            show(self, tuple(map(change, at_home)), by)

        monkeypatch.setattr(ProfileList, "show", changed)

    change_by(lambda facts: facts)
    return change_by


async def overview(scene: Scene) -> None:
    """The overview, once it has looked around."""
    await scene.press("0")
    async with asyncio.timeout(DEADLINE_S):
        while "nothing is known" not in scene.text and "service unreachable" not in scene.text:
            await scene.settle()
            await asyncio.sleep(0.01)


@SIZES
@pytest.mark.usefixtures("shown_as")
async def test_all_profiles(fleet_staged: FleetStaged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """One with a degraded host, one that is well, one whose service is not there."""
    async with fleet_staged(size) as scene:
        await overview(scene)
        await scene.press("j")
        await scene.tick()

        assert scene.app.export_screenshot() == picture


async def test_all_profiles_before_anything_is_read(
    fleet_staged: FleetStaged, shown_as: Callable[[Change], None]
) -> None:
    """Their names and places, at once."""
    async with fleet_staged(SMALL) as scene:
        await overview(scene)
        shown_as(lambda facts: replace(facts, vitals=None))
        await scene.tick()

        for name in ("acme-prod", "acme-staging", "partner"):
            assert f"{name}.runs.example" in scene.text


async def test_a_profile_whose_files_fail(
    fleet_staged: FleetStaged, picture: SnapshotAssertion, shown_as: Callable[[Change], None]
) -> None:
    """What happened and the cure, in its own line."""
    problem = "ledger.sqlite3 cannot be opened. Move it aside."
    async with fleet_staged(SMALL) as scene:
        await overview(scene)
        shown_as(lambda facts: replace(facts, problem=problem if facts.name == "partner" else ""))
        await scene.tick()

        assert scene.app.export_screenshot() == picture


@pytest.mark.usefixtures("shown_as")
async def test_the_switcher(fleet_staged: FleetStaged, picture: SnapshotAssertion) -> None:
    """What was seen of each, without asking any service."""
    async with fleet_staged(SMALL) as scene:
        await overview(scene)
        await scene.press("1")
        await scene.tick(minutes=4)
        await scene.press("ctrl+o", "down")

        assert scene.app.export_screenshot() == picture
