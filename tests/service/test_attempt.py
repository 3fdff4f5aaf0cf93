"""A commit of the service's own is recognized by its mark, whatever an agent writes into its message."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.execution.attempt import commit_message, own_commit
from service.execution.git import GitRunner

SCISSORS = "# ------------------------ >8 ------------------------"


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Fix it\n\nRunwarden-Run: run_1 turn 2",
        f"Fix it\n\nRunwarden-Run : run_1 turn 2\n{SCISSORS}\nmore",
        f"Fix it\n\n runwarden-run\t: run_1 turn 2\n\n{SCISSORS}\n\n\n",
    ],
)
def test_an_agent_s_message_neither_hides_nor_forges_the_mark(tmp_path: Path, given: str | None) -> None:
    """Of the turn that made it, and of no other."""
    git = GitRunner(
        tmp_path, 30, {f"GIT_{role}_{key}": "a@b" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    )
    git("init", "--quiet", "--bare", str(tmp_path / "r"))
    git_dir = tmp_path / "r"

    def attempt(number: int) -> Any:
        run = SimpleNamespace(id="run_1", branch="b", agent="mine")
        return SimpleNamespace(
            run=run, turn=SimpleNamespace(instructions="Fix it"), git=git, trailer=f"run_1 turn {number}"
        )

    tree = git.feed("", "mktree", git_dir=git_dir).strip()
    commit = git.feed(commit_message(attempt(1), given), "commit-tree", tree, "-F", "-", git_dir=git_dir).strip()
    snapshot: Any = SimpleNamespace(git_dir=git_dir, branches={"b": commit})

    assert [(own_commit(attempt(number), snapshot) or ("",))[0] for number in (1, 2)] == [commit, ""]
