"""A change is taken over from the run's screen into real checkouts of a real repository."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.console.run.conftest import OnShow, ScriptedResults
from tests.results.repository import Origin, change_of, git, repositories, run_detail
from widgets.forms.inputs import LineInput

RUN = run_detail("fix/it")


async def test_a_change_is_applied_or_checked_out_into_a_new_folder(
    run_on_show: OnShow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`B` creates a folder with the named commit and leaves the checkout as it was.

    `A` changes the files of a checkout, and commits nothing. A checkout of another repository is not offered, and needs
    a second confirmation.
    """
    origin = Origin(tmp_path / "host")
    git(tmp_path, "clone", "--quiet", str(origin.bare), "home/mine")
    origin.commit("fix/it", {"code.py": b"def f():\n    return 2\n", "new.txt": b"new\n"})
    real = repositories(tmp_path / "data", origin.url)
    # The run on the screen is treated as the one that pushed to the origin.
    one = SimpleNamespace(
        mirror=lambda _: real.mirror(RUN.run.repository),
        address=lambda _: real.address(RUN.run.repository),
        history=lambda _: real.history(RUN),
    )
    results = ScriptedResults(change_=await change_of(real, RUN), repositories=one)
    checkout = tmp_path / "home/mine"
    monkeypatch.chdir(checkout)
    async with run_on_show(results) as scene:
        await scene.press("d")
        await scene.shows("new.txt")
        await scene.press("B")
        scene.app.screen.query_one(LineInput).value = str(checkout)
        await scene.press("enter")
        commit = (results.change_.head or "")[:10]
        assert scene.toasts[-1].startswith(f"Checked out {commit} in {tmp_path / 'home'}/origin-"), scene.toasts
        assert f"It needs {checkout} to stay." in scene.toasts[-1]
        (made,) = set((tmp_path / "home").iterdir()) - {checkout}
        assert (made / "new.txt").read_bytes() == b"new\n"
        assert git(checkout, "status", "--porcelain") == b""

        git(checkout, "remote", "set-url", "origin", "https://example.com/other/thing.git")
        await scene.press("A")
        folder = scene.app.screen.query_one(LineInput)
        assert (folder.value, "has no remote of" in " ".join(scene.text.replace("│", " ").split())) == ("", True)
        await scene.press("enter")
        assert "Name a folder" in scene.text
        folder.value = str(checkout)
        await scene.press("ctrl+s", "enter", "enter")
        assert git(checkout, "status", "--porcelain") == b""
        assert "ctrl+s" in scene.text
        await scene.press("ctrl+s")

        assert f"Applied 2 files in {checkout}. Look at it with git status." in scene.toasts
        assert git(checkout, "status", "--porcelain") == b" M code.py\n?? new.txt\n"
        assert (checkout / "code.py").read_bytes() == b"def f():\n    return 2\n"
