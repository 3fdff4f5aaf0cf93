"""Repositories whose own files stand where the reviewer, or git, looks for something else."""

import os
from pathlib import Path

import pytest

from tests.reviewer.conftest import Repository

ODD = '[submodule "vendored"]\n\tpath = = [[[\n\tignore = bogus\n\x00'


def test_an_odd_gitmodules_fails_no_review(branch: Repository) -> None:
    """To compare submodules git would read it, and fail; the reviewer needs nothing of it."""
    branch.commit({"a.py": "import os\n", ".gitmodules": ODD})
    branch.git("update-index", "--add", "--cacheinfo", f"160000,{'a' * 40},vendored")
    branch.git("commit", "-q", "-m", "submodule")

    done = branch.turn()

    assert (done.status, done.errors) == (0, "")
    assert done.rules == {("a.py", "F401")}
    assert "compared with main" in done.log


@pytest.mark.parametrize("what", ["link", "folder at its name"])
def test_what_stands_in_the_reviews_place_stays_and_the_review_is_in_the_log(
    branch: Repository, tmp_path: Path, what: str
) -> None:
    """Summary and findings reach the service all the same; nothing is written through a link, or in place of it.

    What is in the findings' place is replaced: nothing of that folder is ever committed.
    """
    reviews, findings, outside = branch.folder / "reviews", branch.folder / ".runwarden", tmp_path / "outside"
    outside.mkdir()
    (outside / "findings.json").write_text("precious")
    if what == "link":
        reviews.symlink_to(outside)
        findings.symlink_to(outside)
    else:
        (reviews / "run_01TEST.md").mkdir(parents=True)
        (reviews / "run_01TEST.md/kept").write_text("mine\n")
        (findings / "findings.json").mkdir(parents=True)
    branch.commit({"a.py": "import os\n"})

    done = branch.turn()

    assert (done.status, done.errors) == (0, "")
    assert "The review is not written to the branch, because reviews" in done.log
    assert "# Review of agent/work, turn 1" in done.log
    assert done.rules == {("a.py", "F401")}
    assert done.result["summary"].startswith("Can be merged, with remarks: 1 minor")
    assert "reviews/" not in done.result["commit_message"]
    assert branch.git("status", "--porcelain", "--", "reviews") == ""
    assert {one.name: one.read_text() for one in outside.iterdir()} == {"findings.json": "precious"}


def test_a_file_that_became_something_else_is_not_read(branch: Repository, tmp_path: Path) -> None:
    """A set-up may leave a pipe or a link in a file's place: the reviewer does not wait for one or follow the other."""
    branch.commit({"pipe.py": "import os\n", "folder/linked.py": "import os\n", "a.py": "import os\r\n"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/linked.py").write_text("import sys\n")
    (branch.folder / "pipe.py").unlink()
    os.mkfifo(branch.folder / "pipe.py")
    (branch.folder / "folder/linked.py").unlink()
    (branch.folder / "folder").rmdir()
    (branch.folder / "folder").symlink_to(tmp_path / "outside")

    done = branch.turn()

    assert (done.status, done.errors) == (0, "")
    assert done.rules == {("a.py", "F401")}
    assert "- Files left unread, by their size or encoding or a tool that failed: 2." in done.review
