"""The form of an automation is checked while typing, and saved as one table of the configuration."""

from collections.abc import Callable

from textual.widgets import TextArea

from tests.console.automations.conftest import ONE, Changed, file_of
from tests.console.conftest import Hasty, Scene, Staged

Configured = Callable[[str], Changed]


async def type_at_the_end(scene: Scene, text: str) -> None:
    """Types below the table in the form."""
    area = scene.app.screen.query_one(TextArea)
    area.move_cursor(area.document.end)
    await scene.press(*text)


async def test_the_form_checks_while_typing_and_saves(staged: Staged, configured: Configured, hasty: Hasty) -> None:
    """An error shows its line and the fix, and the saved text is shown first.

    If the file changed meanwhile it is not overwritten: a note says so, and the typed text stays.
    """
    async with staged(toasts=True, changed=configured(ONE)) as scene:
        file, before = file_of(scene), file_of(scene).read_text("utf-8")
        await scene.press("5", "E")
        await type_at_the_end(scene, "overlapp=1")
        await scene.shows("✗ line 6, overlapp", "Did you mean overlap?")
        await scene.press("ctrl+s")
        assert "Cannot be saved yet" in scene.text

        await scene.press(*(["backspace"] * 3), *'="allow"')
        await scene.shows("✓ When a run in acme/* fails", "even while its last run is active")
        await scene.press("ctrl+s")
        await scene.shows(f"WRITE {file}", '+overlap="allow"')
        await hasty(scene, "ctrl+s")
        assert file.read_text("utf-8") == before

        await scene.press("ctrl+s")
        assert file.read_text("utf-8") == f'{before.rstrip()}\noverlap="allow"\n'
        assert "Saved: second chance. No bot is running" in scene.toasts[-1]
        assert "even while its last run is active" in scene.text

        await scene.press("E")
        await type_at_the_end(scene, "# mine")
        await scene.press("ctrl+s")
        changed = f"{file.read_text('utf-8')}# theirs\n"
        file.write_text(changed, "utf-8")
        await scene.press("ctrl+s")
        await scene.shows("changed since it was read", "# mine")
        assert file.read_text("utf-8") == changed
