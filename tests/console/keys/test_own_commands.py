"""The user's own commands: how placeholders are filled in, which values are refused, and what is reported."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.console.own_commands import CommandUnusableError, filled_in, run_beside
from app.console.sheets import ConfirmSheet
from app.profiles import UserCommand
from tests.console.conftest import Staged
from tests.waiting import until

KNOWN = {"run_id": "run_1", "repository": "acme/api", "branch": "agent/flaky-retry", "status": "failed"}


@pytest.mark.parametrize(
    ("argument", "value", "why"),
    [
        ("{run_id}", "--upload-pack=evil", "begins with a dash"),
        ("/srv/{run_id}", "../../etc", "another folder"),
        ("{run_id}", "/etc/passwd", "another folder"),
        ("{run_id}", "a\x00b", "cannot be printed"),
    ],
)
def test_unsafe_values_of_a_command_are_refused(argument: str, value: str, why: str) -> None:
    """An option, a path outside or a control character is refused, since the service chose the value, not the user."""
    with pytest.raises(CommandUnusableError, match=why):
        filled_in(["less", argument], {**KNOWN, "run_id": value})


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["run_id", "repository", "branch", "status"]), st.text(max_size=30)))
def test_a_value_never_becomes_a_second_argument(values: dict[str, str]) -> None:
    """The command has as many arguments as its template, with the first one unchanged, or it is refused."""
    template = ("prog", "{run_id}", "--branch={branch}", "x/{repository}", "{status}")
    try:
        argv = filled_in(template, {**KNOWN, **values})
    except CommandUnusableError:
        return

    assert len(argv) == len(template)
    assert argv[0] == "prog"
    assert argv[2].startswith("--branch=")
    assert not argv[1].startswith("-")


async def test_a_background_command_reports_its_exit_code_and_last_line() -> None:
    """The last line may come from either stream; control characters in it are replaced."""
    ended = await run_beside(["sh", "-c", r"echo one; printf '\033[2Jtwo\n' >&2; exit 3"])

    assert ended == (3, "␛[2Jtwo")


async def test_a_slow_command_is_killed_with_its_children() -> None:
    """The whole session is killed, and the pipe closes although a grandchild held it.

    A missing program's error has the fix.
    """
    code, _ = await run_beside(["sh", "-c", "sleep 600 & sleep 600"], deadline_s=0.2)

    assert code is None
    with pytest.raises(CommandUnusableError, match=r"did not start: No such file or directory\. Correct argv"):
        await run_beside(["/no/such/program"])


def command(tmp_path: Path, **how: bool) -> UserCommand:
    argv = ("sh", "-c", 'echo "$0" > "$1"', "{run_id}", str(tmp_path / "ran"))
    return UserCommand("Write it down", argv, key="ctrl+l", **how)


async def test_a_key_runs_a_command_on_the_run_in_focus(staged: Staged, tmp_path: Path) -> None:
    """The argument arrives and the exit is reported.

    With confirmation, the filled-in command is shown and enter does nothing. The marked run is meant, not the one under
    the cursor; with several marked, none is.
    """
    asked = replace(command(tmp_path, confirm=True), name="Ask first", key="f12")
    async with staged(changed={"commands": (command(tmp_path), asked)}) as scene:
        await scene.press("j")
        row = scene.table.row
        await scene.press("ctrl+l")

        assert row is not None
        assert (tmp_path / "ran").read_text().strip() == row.run_id
        assert "✓ Write it down" in scene.toasts

        (tmp_path / "ran").unlink()
        await scene.press("k")
        row = scene.table.row
        assert row is not None
        await scene.pilot.press("f12")
        await until(lambda: isinstance(scene.app.screen, ConfirmSheet), "the command is shown")
        await scene.pilot.pause()

        assert row.run_id in scene.text

        await scene.pilot.press("enter")
        await scene.pilot.pause()

        assert not (tmp_path / "ran").exists()
        assert "ctrl+s Run it    esc Don't run it" in scene.text
        await scene.press("ctrl+s")

        assert (tmp_path / "ran").read_text().strip() == row.run_id

        (tmp_path / "ran").unlink()
        await scene.press("space", "space", "ctrl+l")
        assert "2 runs are marked: it is run on one. esc unmarks them." in scene.toasts[-1]
        assert not (tmp_path / "ran").exists()
        first, second = scene.table.marks
        scene.table.mark([second], is_marked=False)
        await scene.press("ctrl+l")
        assert (tmp_path / "ran").read_text().strip() == first
