"""Pictures of runs, of what opens above them and of the themes, under a clock that stands still."""

from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import SMALL, WIDE, Staged

KEYS = {
    "runs": ("j", "j"),
    "continue": ("j", "j", "space", "space", "space", "J", "J", "c", *"Try once more, please."),
    "marked": ("space", "space", "shift+down", "shift+down"),
    "query": ("slash", *"failed", "escape", "slash", *"repo", "colon", *"acme", "slash", "asterisk", "space", *"da"),
    "nothing": ("slash", *"nowhere", "enter"),
    "columns": ("runs.columns", "j", "j"),
    "groups": ("runs.group", "enter", "j", "runs.fold"),
}


LARGE = ("runs", "query")
THEMES = ("runwarden-light", "runwarden-colour-blind", "runwarden-contrast")


async def test_runs_by_keys(staged: Staged, picture: SnapshotAssertion) -> None:
    """Each after the keys that lead there from the whole list; then the other themes."""
    async with staged(SMALL) as scene:
        for size, names in ((SMALL, KEYS), (WIDE, LARGE)):
            await scene.pilot.resize_terminal(*size)
            await scene.settle()
            for name in names:
                await scene.press(*KEYS[name])
                assert scene.app.export_screenshot() == picture(name=f"{name}-{size[0]}x{size[1]}"), name
                await scene.to_all_runs()
        await scene.pilot.resize_terminal(*SMALL)
        for theme in THEMES:
            scene.app.theme = theme
            await scene.settle()
            assert scene.app.export_screenshot() == picture(name=theme), theme
