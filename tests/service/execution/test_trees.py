"""Folder trees of any depth that an agent may leave, beyond Python's stack, descriptors and path lengths."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from service import trees
from service.execution.workspace import Workspace
from tests.service.conftest import Own
from tests.service_process import git

DEPTH = 1500


def below(root: Path, names: Sequence[str]) -> Iterator[int]:
    """Make nested folders, and yield the descriptor of each, which is closed after it."""
    here = os.open(root, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
        yield here
    os.close(here)


def touch(name: str, within: int, text: str = "") -> None:
    with os.fdopen(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=within), "w") as file:
        file.write(text)


def open_below(root: Path) -> int:
    """Return how many descriptors of this process are open in a tree."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(entry.readlink()).startswith(str(root))
    return count


def test_a_deep_tree_is_removed(tmp_path: Path) -> None:
    """A walk uses two descriptors; files, links and locked folders are removed, and a link's target stays."""
    deep, outside = tmp_path / "root", tmp_path / "outside"
    deep.mkdir()
    outside.mkdir()
    for level, folder in enumerate(below(deep, DEPTH * ["a-name-of-some-length"])):
        if level % 100 == 0:
            touch("file", folder)
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


def test_renamed_folders_do_not_stop_a_walk(tmp_path: Path) -> None:
    """Folders that are renamed meanwhile may be missed, but not their neighbours."""
    root, names = tmp_path / "root", list[str]()
    for number in range(20):
        for kind in ("early", "late"):
            (root / f"{kind}-{number}" / "inner" / "more").mkdir(parents=True)
        (root / f"steady-{number}").mkdir()
        (root / f"steady-{number}" / "file").write_text("x")
    for path, _, entries in trees.walk(root):
        names += [entry.name for entry in entries]
        kind = path.partition("-")[0]
        # Before the walk enters it, and while the walk is in it.
        if (kind, path.count("/")) in {("early", 1), ("late", 2)}:
            (root / path.partition("/")[0] / "inner").rename(root / f"out-{path.partition('/')[0]}")

    assert names.count("file") == 20


DEEP = "python3 -c 'import os\nfor _ in range(1500): os.mkdir(chr(100)); os.chdir(chr(100))\nopen(chr(102), chr(119))'"
"""Nested folders, with a file in the innermost."""


def leaves(script: str) -> str:
    """Instructions that write good.txt and run a script."""
    return f"subprocess.run(['sh', '-euc', {'echo good > good.txt; ' + script!r}], check=True)"


def left_by(own: Own, script: str) -> tuple[dict[str, Any], list[str]]:
    """Let an agent write good.txt and run a script; return its turn with the diff, and the files of its branch."""
    api, repository = own()
    turn = api.work(leaves(script))
    is_pushed = turn["branch"] in git("branch", "--format=%(refname:short)", cwd=repository).split()
    names = git("ls-tree", "-rz", "--name-only", turn["branch"], cwd=repository).split("\0") if is_pushed else []
    turn["diff"] = api.get(f"/external/runs/{turn['run_id']}/turns/1/diff").text
    return turn, [name for name in names if name not in {"", "README.md"}]


def test_files_that_git_cannot_store_fail_the_turn(own: Own) -> None:
    """At most five of them are named, the other files are the turn's patch, and nothing is pushed."""
    script = 'mkdir .git. git~1; touch .git./HEAD; for n in 0 1 2 3 4 5; do touch "git~1/$n\n"; done'
    turn, committed = left_by(own, script)

    assert turn["reason"].startswith("the agent left files that git cannot store: .git./HEAD, git~1/0␊, ")
    assert "git~1/3␊ and 2 more; nothing was pushed" in turn["reason"]
    assert "+good" in turn["diff"]
    assert "git~1" not in turn["diff"]
    assert committed == []


def test_files_the_agent_locked_are_committed(own: Own) -> None:
    """The service's user owns the files, and git does not store such permissions."""
    turn, committed = left_by(own, "mkdir -p a/b; echo x > a/b/f; chmod 0 a/b/f a/b a good.txt README.md .")

    assert (turn["outcome"], committed) == ("completed", ["a/b/f", "good.txt"]), turn["log"]
    assert "README.md" not in turn["diff"]


OURS = {
    "a link": """
        mkdir "$HOME/elsewhere"; echo '{"findings": []}' > "$HOME/elsewhere/findings.json"
        ln -s "$HOME/elsewhere" .runwarden""",
    "below the ignored folder bad": f"""
        mkdir -p bad/locked bad/listed/p bad/.git. bad/deep
        touch bad/locked/f bad/listed/p/f bad/.git./HEAD
        chmod 0 bad/locked; chmod 400 bad/listed/p; cd bad/deep; {DEEP}""",
}


def test_ignored_files_do_not_fail_a_turn(own: Own) -> None:
    """An ignored folder and `.runwarden` are not committed, so their contents do not matter."""
    api, repository = own()
    for name, script in OURS.items():
        turn = api.work(leaves(f"echo bad/ > .gitignore; {script}"))
        committed = git("diff", "--name-only", "main", turn["branch"], cwd=repository).split()

        assert (turn["outcome"], committed) == ("completed", [".gitignore", "good.txt"]), (name, turn["log"])
        assert (".runwarden is not read: a link is not followed" in turn["log"]) == (name == "a link")


def test_a_secret_below_a_long_path_is_found(tmp_path: Path) -> None:
    """The path of the checkout makes it longer than 4,095, but git stores it, so it is searched for secrets."""
    workspace = Workspace(tmp_path)
    workspace.tree.mkdir()
    for level, folder in enumerate(below(workspace.tree, 20 * [200 * "d"])):
        if level == 19:
            touch(75 * "f", folder, "s3cr3t")
            os.symlink("s3cr3t-place", "link", dir_fd=folder)
    found = set(trees.contents(workspace.tree, [f"{20 * (200 * 'd' + '/')}{name}" for name in (75 * "f", "link")]))
    trees.remove(workspace.tree)

    assert {b"s3cr3t", b"s3cr3t-place"} <= found


def test_permissions_are_restored_to_files_and_folders_only(tmp_path: Path) -> None:
    """The owner gets all rights to folders and read access to files; a link's target is unchanged."""
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
