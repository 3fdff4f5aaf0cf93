"""Pictures of runs and of what opens above them, with a fixed clock."""

from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import SMALL, WIDE, Staged

KEYS = {
    "runs": ("j", "j"),
    "marked": ("space", "space", "shift+down", "shift+down"),
    "groups": ("runs.group", "enter", "j", "runs.fold"),
}


async def test_runs_by_keys(staged: Staged, picture: SnapshotAssertion) -> None:
    """Each picture follows its keys from the whole list; the list next to a run needs a wide terminal."""
    async with staged(SMALL) as scene:
        for name, keys in KEYS.items():
            await scene.press(*keys)
            assert scene.app.export_screenshot() == picture(name=f"{name}-80x24"), name
            await scene.to_all_runs()
        await scene.pilot.resize_terminal(*WIDE)
        await scene.press(*KEYS["runs"])
        assert scene.app.export_screenshot() == picture(name="runs-140x40")
