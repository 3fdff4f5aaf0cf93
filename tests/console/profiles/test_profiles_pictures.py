"""Pictures of the switcher and of all profiles at a glance, at two sizes."""

import asyncio
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from app.console.profiles.screen import ProfilesScreen
from app.console.profiles.switcher import ProfileSwitcher
from tests.console.conftest import DEADLINE_S, SMALL, WIDE, Scene
from tests.console.profiles.conftest import FleetStaged
from widgets.profiles import ProfileFacts

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


def at_home(facts: ProfileFacts) -> ProfileFacts:
    """At an address that is the same in every run."""
    return replace(facts, address=f"https://{facts.name}.runs.example/v1")


async def overview(scene: Scene) -> ProfilesScreen:
    """The overview, once it has looked around."""
    await scene.press("0")
    screen = scene.app.screen
    assert isinstance(screen, ProfilesScreen)
    assert screen._look is not None
    async with asyncio.timeout(DEADLINE_S):
        while "nothing is known" not in scene.text and "service unreachable" not in scene.text:
            await scene.settle()
            await asyncio.sleep(0.01)
    screen._look.facts = {name: at_home(facts) for name, facts in screen._look.facts.items()}
    return screen


@SIZES
async def test_all_profiles(fleet_staged: FleetStaged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """One with a degraded host, one that is well, one whose service is not there."""
    async with fleet_staged(size) as scene:
        screen = await overview(scene)
        await scene.press("j")
        screen._show()
        await scene.settle()

        assert scene.app.export_screenshot() == picture


async def test_all_profiles_before_anything_is_read(fleet_staged: FleetStaged, picture: SnapshotAssertion) -> None:
    """Their names and places, at once."""
    async with fleet_staged(SMALL) as scene:
        screen = await overview(scene)
        assert screen._look is not None
        screen._look.facts = {name: replace(facts, vitals=None) for name, facts in screen._look.facts.items()}
        screen._show()
        await scene.settle()

        assert scene.app.export_screenshot() == picture


async def test_a_profile_whose_files_fail(fleet_staged: FleetStaged, picture: SnapshotAssertion) -> None:
    """What happened and the cure, in its own line."""
    async with fleet_staged(SMALL) as scene:
        screen = await overview(scene)
        assert screen._look is not None
        broken = replace(screen._look.facts["partner"], problem="ledger.sqlite3 cannot be opened. Move it aside.")
        screen._look.facts["partner"] = broken
        screen._show()
        await scene.settle()

        assert scene.app.export_screenshot() == picture


async def test_the_switcher(fleet_staged: FleetStaged, picture: SnapshotAssertion) -> None:
    """What was seen of each, without asking anybody."""
    async with fleet_staged(SMALL) as scene:
        await overview(scene)
        await scene.press("1")
        await scene.tick(minutes=4)
        await scene.press("ctrl+o")
        screen = scene.app.screen
        assert isinstance(screen, ProfileSwitcher)
        screen._facts = tuple(map(at_home, screen._facts))
        screen._find("")
        await scene.press("down")

        assert scene.app.export_screenshot() == picture
