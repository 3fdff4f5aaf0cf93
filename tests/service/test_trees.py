"""Folders as an agent may leave them: deeper than Python's stack, than the descriptors and than a path may be."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service.execution import trees
from tests.service.conftest import Api
from tests.service_process import git

DEPTH = 3000


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with 3,000 others in it, one in the other, and a file in each hundredth."""
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
    for folders, (_, entries) in enumerate(trees.walk(deep), 1):
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
            names = [entry.name for _, entries in trees.walk(root) for entry in entries]
            assert names.count("file") == 20
    finally:
        over.set()
        thread.join()


LEAVE = """
import json, pathlib, sys
pathlib.Path("kept").write_text("kept")
for one in json.load(sys.stdin)["inputs"]["left"]:
    path = pathlib.Path(one)
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
"""


def test_files_that_git_cannot_store_fail_a_turn_that_keeps_the_rest(
    own: Callable[..., tuple[Api, Path]], tmp_path: Path
) -> None:
    """They are named, at most five of them; the other files are the turn's patch, and nothing is pushed."""
    api, repository = own()
    api.add_agent(tmp_path, "careless", LEAVE)
    left = [".git./HEAD", *(f"git~1/{number}\n" for number in range(6))]
    run_id = api.begin("careless", left=left)
    api.ended(run_id)
    turn = api.service.admin("run", run_id, "--diff")["turns"][0]

    assert turn["failure"].startswith("the agent left files that git cannot store: .git./HEAD, git~1/0␊, ")
    assert "git~1/3␊ and 2 more; nothing was pushed" in turn["failure"]
    assert "+kept" in turn["diff"]
    assert "git~1" not in turn["diff"]
    assert git("branch", "--format=%(refname:short)", cwd=repository).split() == ["main"]


LINK = """
import os, pathlib
folder = os.environ["HOME"] + "/elsewhere"
os.mkdir(folder)
pathlib.Path(folder, "findings.json").write_text('{"findings": []}')
os.symlink(folder, ".runwarden")
pathlib.Path("kept").write_text("kept")
"""


def test_a_link_in_place_of_our_folder_is_neither_followed_nor_committed(
    own: Callable[..., tuple[Api, Path]], tmp_path: Path
) -> None:
    """The rest of the change is pushed, and the log says that the link was not followed."""
    api, repository = own()
    api.add_agent(tmp_path, "linking", LINK)
    run_id = api.begin("linking")
    run = api.ended(run_id)

    assert run["status"] == "completed", api.log(run_id)
    assert git("ls-tree", "-r", "--name-only", run["branch_name"], cwd=repository).split() == ["README.md", "kept"]
    assert "a link is not followed" in api.log(run_id)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Among a folder's entries; files and links are none."""
    (tmp_path / "locked").mkdir(mode=0)
    (tmp_path / "open").mkdir()
    (tmp_path / "link").symlink_to("locked")

    assert [trees.locked(folder, entries) for folder, entries in trees.walk(tmp_path)] == [["locked"], []]
    (tmp_path / "locked").chmod(0o700)
