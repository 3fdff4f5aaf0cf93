"""Folders as an agent may leave them: deeper than Python's stack, than the descriptors and than a path may be."""

import contextlib
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from service.execution import trees
from service.execution.workspace import Workspace
from tests.service.conftest import Own
from tests.service_process import git

DEPTH = 1500
ORDINARY: Final = pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with many others in it, one in the other, and a file in each hundredth."""
    root = tmp_path / "root"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for level in range(DEPTH):
        if level % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir("a-name-of-some-length", dir_fd=here)
        below = os.open("a-name-of-some-length", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    yield root
    subprocess.run(["rm", "-rf", root], check=True)


def open_below(root: Path) -> int:
    """Return how many descriptors of this process are open in a tree."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith(str(root))
    return count


def test_a_deep_tree_is_removed(deep: Path) -> None:
    """A walk sees every folder with two descriptors; files, links and locked folders go, what a link leads to stays."""
    outside = deep.parent / "outside"
    outside.mkdir()
    (deep / "link").symlink_to(outside)
    most = files = 0
    for folders, (_, _, entries) in enumerate(trees.walk(deep), 1):
        files += sum(entry.is_file() and not entry.is_symlink() for entry in entries)
        # The names of deeper folders are too long to be read.
        most = max(most, open_below(deep)) if folders < 100 else most
    left_open = open_below(deep)
    locked = deep / "locked" / "inner"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    locked.chmod(0)
    locked.parent.chmod(0)

    assert (folders, files, left_open) == (DEPTH + 1, DEPTH // 100, 0)
    assert 0 < most <= 2
    assert trees.remove(deep)
    assert (deep.exists(), outside.is_dir()) == (False, True)
    assert trees.remove(deep), "what is not there is gone"


def test_a_restless_agent_does_not_end_a_walk(tmp_path: Path) -> None:
    """Folders renamed all the time hide themselves at most, not what lies beside them."""
    root = tmp_path / "root"
    for number in range(20):
        (root / f"restless-{number}" / "inner" / "more").mkdir(parents=True)
        (root / f"steady-{number}").mkdir()
        (root / f"steady-{number}" / "file").write_text("x")
    over = threading.Event()

    def rename() -> None:
        while not over.is_set():
            for number in range(20):
                (root / f"restless-{number}" / "inner").rename(root / f"out-{number}")
                (root / f"out-{number}").rename(root / f"restless-{number}" / "inner")

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        for _ in range(20):
            names = [entry.name for _, _, entries in trees.walk(root) for entry in entries]
            assert names.count("file") == 20
    finally:
        over.set()
        thread.join()


SHELL = """
import json, subprocess, sys
subprocess.run(["sh", "-euc", "echo good > good.txt; " + json.load(sys.stdin)["inputs"]["script"]], check=True)
"""
NEST = "python3 -c 'import os\nfor name in {}: os.mkdir(name); os.chdir(name)\nfor name in {}: open(name, chr(119))'"
"""Folders one in the other, and files in the last."""
DEEP = NEST.format('1500 * ["d"]', '"f"')


def left_by(own: Own, folder: Path, script: str) -> tuple[dict[str, Any], list[str], str]:
    """Let an agent write good.txt and run a script; return its turn, the files of its branch and the turn's log."""
    api, repository = own()
    api.add_agent(folder, "shell", SHELL)
    run_id = api.begin("shell", script=script)
    branch = api.ended(run_id)["branch_name"]
    turn = api.service.admin("run", run_id, "--diff")["turns"][0]
    is_pushed = branch in git("branch", "--format=%(refname:short)", cwd=repository).split()
    names = git("ls-tree", "-rz", "--name-only", branch, cwd=repository).split("\0") if is_pushed else []
    return turn, [name for name in names if name not in {"", "README.md"}], api.log(run_id)


def test_files_that_git_cannot_store_fail_a_turn_that_keeps_the_rest(own: Own, tmp_path: Path) -> None:
    """They are named, at most five of them; the other files are the turn's patch, and nothing is pushed."""
    script = 'mkdir .git. git~1; touch .git./HEAD; for n in 0 1 2 3 4 5; do touch "git~1/$n\n"; done'
    turn, committed, _ = left_by(own, tmp_path, script)

    assert turn["failure"].startswith("the agent left files that git cannot store: .git./HEAD, git~1/0␊, ")
    assert "git~1/3␊ and 2 more; nothing was pushed" in turn["failure"]
    assert "+good" in turn["diff"]
    assert "git~1" not in turn["diff"]
    assert committed == []


@ORDINARY
@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("chmod 0 .", ["good.txt"]),
        ("mkdir -p a/b; echo x > a/b/f; chmod 0 a/b/f a/b a good.txt .", ["a/b/f", "good.txt"]),
        ("chmod 500 .", ["good.txt"]),
        (
            "env -u GIT_DIR -u GIT_WORK_TREE git init -q nest; echo x > nest/f; chmod 500 nest nest/.git",
            ["good.txt", "nest/f"],
        ),
        ("mkdir p; touch p/f; chmod 600 p", ["good.txt", "p/f"]),
        ("chmod 0 good.txt README.md", ["good.txt"]),
    ],
)
def test_what_the_agent_locked_is_committed_all_the_same(
    own: Own, tmp_path: Path, script: str, names: list[str]
) -> None:
    """Its files belong to the service's user, and git stores no such rights."""
    turn, committed, log = left_by(own, tmp_path, script)

    assert (turn["failure"], committed) == (None, names), log
    assert "README.md" not in turn["diff"]


@ORDINARY
def test_findings_in_a_locked_folder_are_read(own: Own, tmp_path: Path) -> None:
    """As the rest of the checkout is."""
    found = '{"version": 1, "findings": [{"path": "README.md", "title": "short"}]}'
    script = f"mkdir .runwarden; echo '{found}' > .runwarden/findings.json; chmod 0 .runwarden ."
    turn, committed, log = left_by(own, tmp_path, script)

    assert (turn["failure"], committed) == (None, ["good.txt"]), log
    assert "findings" not in log.replace(tmp_path.name, ""), "no remark on what could not be read"


OURS = {
    "a pipe": "mkfifo .runwarden",
    "a link": """
        mkdir "$HOME/elsewhere"; echo '{"findings": []}' > "$HOME/elsewhere/findings.json"
        ln -s "$HOME/elsewhere" .runwarden""",
    "below the ignored folder bad": f"""
        mkdir -p bad/locked bad/listed/p bad/.git. bad/deep
        touch bad/locked/f bad/listed/p/f bad/.git./HEAD
        chmod 0 bad/locked; chmod 400 bad/listed/p; cd bad/deep; {DEEP}""",
    "ignored by the agent": "echo .runwarden/ >> .gitignore; mkdir .runwarden; touch .runwarden/findings.json",
    "locked or unstorable below": """
        mkdir -p .runwarden/sub .runwarden/.git.; touch .runwarden/sub/f .runwarden/.git./HEAD
        chmod 0 .runwarden/sub""",
    "a repository": "env -u GIT_DIR -u GIT_WORK_TREE git init -q .runwarden",
}

REMARKS = {
    "a pipe": ".runwarden is not read: it is not a folder",
    "a link": ".runwarden is not read: a link is not followed",
}


def test_what_is_ignored_or_ours_fails_no_turn(own: Own, tmp_path: Path) -> None:
    """An ignored folder and `.runwarden` are not committed, so it does not matter what they are or hold."""
    api, repository = own()
    api.add_agent(tmp_path, "shell", SHELL)
    runs = {name: api.begin("shell", script=f"echo bad/ > .gitignore; {script}") for name, script in OURS.items()}
    for name, run_id in runs.items():
        run = api.ended(run_id)
        committed = git("diff", "--name-only", "main", run["branch_name"], cwd=repository).split()

        assert (run["status"], committed) == ("completed", [".gitignore", "good.txt"]), (name, api.log(run_id))
        assert REMARKS.get(name, "") in api.log(run_id)


@pytest.mark.parametrize(
    ("nested", "files", "stored"),
    [
        ('30 * [200 * "d"]', '"f"', 0),
        ('20 * [200 * "d"]', '(75 * "f", 76 * "g", 77 * "h")', 1),
        ('30 * [200 * "d"]', "()", None),
    ],
)
def test_files_below_too_long_a_path_are_told(
    own: Own, tmp_path: Path, nested: str, files: str, stored: int | None
) -> None:
    """A path of 4,095 bytes is stored; a longer one fails the turn, and the rest is its patch; empty folders do not."""
    turn, committed, _ = left_by(own, tmp_path, NEST.format(nested, files))

    if stored is None:
        assert (turn["failure"], committed) == (None, ["good.txt"])
    else:
        assert turn["failure"].startswith("the agent left files that git cannot store: d")
        assert "…; nothing was pushed; see the change with: runwarden runs diff" in turn["failure"]
        assert len(turn["failure"]) < 400
        assert "+good" in turn["diff"]
        assert turn["diff"].count("new file") == 1 + stored


def test_a_secret_below_a_long_path_is_found(tmp_path: Path) -> None:
    """A path that git stores is read for secrets too, although the checkout's own path makes it longer than 4,095."""
    workspace = Workspace(tmp_path)
    workspace.tree.mkdir()
    names = [*(20 * [200 * "d"]), 75 * "f"]
    here = os.open(workspace.tree, os.O_RDONLY)
    for name in names[:-1]:
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with os.fdopen(os.open(names[-1], os.O_CREAT | os.O_WRONLY, dir_fd=here), "w") as file:
        file.write("s3cr3t")
    os.symlink("s3cr3t-place", "link", dir_fd=here)
    os.close(here)
    long = ["/".join(names), "/".join([*names[:-1], "link"])]

    found = set(workspace.contents(long))
    trees.remove(workspace.tree)

    assert {b"s3cr3t", b"s3cr3t-place"} <= found


def test_rights_are_given_back_to_files_and_folders_alone(tmp_path: Path) -> None:
    """A folder's owner gets all rights, a file's the right to read; what a link leads to stays as it is."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    (root / "folder").mkdir(mode=0)
    for file in (root / "file", outside):
        file.touch()
        file.chmod(0o010)
    (root / "link").symlink_to(outside)
    (root / "out").symlink_to(tmp_path)
    tmp_path.chmod(0o500)
    for _, folder, entries in trees.walk(root):
        for entry in entries:
            trees.unlock(entry.name, within=folder)
            trees.unlock_file(entry, folder)

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (root / "folder", root / "file", outside, tmp_path)]
    assert modes == [0o700, 0o410, 0o010, 0o500]
    tmp_path.chmod(0o700)
