"""git: mirrors of repositories, and that nothing in a repository or a workspace runs or leads away."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.execution.git import GitCommandError, GitRunner
from service.execution.mirror import RepositoryMirror
from tests.service.conftest import SANDBOXES
from tests.service_process import git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "api", {"a": "1"}, {"next": {"a": "2"}})


@pytest.fixture
def mirror(tmp_path: Path, repository: Path) -> RepositoryMirror:
    (tmp_path / "mirrors").mkdir()
    return RepositoryMirror(tmp_path / "mirrors", str(repository), GitRunner(tmp_path, timeout_s=300))


def move(repository: Path, branch: str, onto: str) -> str:
    git("update-ref", f"refs/heads/{branch}", onto, cwd=repository)
    return git("rev-parse", branch, cwd=repository)


def test_it_follows_the_branch_and_the_default_branch(mirror: RepositoryMirror, repository: Path) -> None:
    """Branches that move, appear and go are so in the next snapshot; the others are not fetched."""
    git("branch", "other", "main", cwd=repository)
    first = mirror.fetch("next")
    moved = move(repository, "main", "next")
    git("branch", "-D", "next", cwd=repository)
    git("branch", "next/newer", "main", cwd=repository)
    second, third, fourth = (mirror.fetch(name) for name in ("next", "next/newer", "main"))

    assert (first.default_branch, set(first.branches)) == ("main", {"main", "next"})
    assert second.branches == {"main": moved}
    assert third.branches == {"main": moved, "next/newer": moved}
    assert fourth.branches == {"main": moved}


def test_a_mirror_keeps_two_names_however_many_branches_were_fetched(
    mirror: RepositoryMirror, repository: Path
) -> None:
    """Git reads all of them in each fetch; those that an earlier release kept are dropped."""
    for number in range(4):
        git("branch", f"b{number}", "next", cwd=repository)
        mirror.fetch(f"b{number}")
    git("update-ref", f"refs/fetched/{'0' * 32}", "refs/fetched/default", cwd=mirror.git_dir)
    tip = mirror.fetch("next").branches["next"]
    listed = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=mirror.git_dir).splitlines()

    assert [line.split()[0] for line in listed] == ["refs/fetched/branch", "refs/fetched/default"]
    assert listed[0].endswith(tip)


def test_branches_whose_names_end_alike_are_told_apart(mirror: RepositoryMirror, repository: Path) -> None:
    """Git matches the ends of names."""
    for name in ("refs/heads/fix", "a/HEAD"):
        git("update-ref", f"refs/heads/{name}", "next", cwd=repository)
    snapshot = mirror.fetch("fix")

    assert (snapshot.default_branch, set(snapshot.branches)) == ("main", {"main"})


def test_a_head_that_points_nowhere_is_no_default_branch(mirror: RepositoryMirror, repository: Path) -> None:
    """None, and the branch is there all the same."""
    git("symbolic-ref", "HEAD", "refs/heads/gone", cwd=repository)
    snapshot = mirror.fetch("next")

    assert (snapshot.default_branch, set(snapshot.branches)) == (None, {"next"})


def test_a_lock_that_a_power_cut_left_is_broken(mirror: RepositoryMirror, repository: Path) -> None:
    """Older than any command of ours may last: it is not held."""
    mirror.fetch("main")
    moved = move(repository, "main", "next")
    (kept,) = (mirror.git_dir / "refs" / "fetched").iterdir()
    lock = kept.with_suffix(".lock")
    lock.touch()
    os.utime(lock, (1, 1))

    assert mirror.fetch("main").branches["main"] == moved
    assert not lock.exists()


def test_a_lock_that_may_be_held_is_respected(mirror: RepositoryMirror, repository: Path) -> None:
    """A fresh lock is an error, and stays."""
    mirror.fetch("main")
    move(repository, "main", "next")
    (kept,) = (mirror.git_dir / "refs" / "fetched").iterdir()
    lock = kept.with_suffix(".lock")
    lock.touch()

    with pytest.raises(GitCommandError, match="fetch failed"):
        mirror.fetch("main")
    assert lock.exists()


@pytest.mark.parametrize("url", ["--upload-pack=touch sprung", "ext::sh -c touch% sprung", "/nowhere"])
def test_an_address_that_is_no_repository_is_an_error_and_no_command(tmp_path: Path, url: str) -> None:
    """Nothing in an address is an option or a program."""
    mirror = RepositoryMirror(tmp_path, url, GitRunner(tmp_path, timeout_s=300))

    with pytest.raises(GitCommandError):
        mirror.fetch("main")
    assert not list(tmp_path.rglob("sprung"))


HOSTILE = """
import json, os, pathlib, subprocess
trap = pathlib.Path(json.load(__import__("sys").stdin)["inputs"]["trap"])
alarm = f"touch {trap}"
script = pathlib.Path("evil.sh"); script.write_text(f"#!/bin/sh\\n{alarm}\\n"); script.chmod(0o755)
def infect(folder):
    config = f'[core]\\n\\tfsmonitor = "{alarm}; false"\\n\\tsshCommand = "{alarm}"\\n\\thooksPath = {os.getcwd()}\\n'
    config += f'[filter "x"]\\n\\tclean = "{alarm}; cat"\\n\\tsmudge = "{alarm}; cat"\\n'
    config += f'[alias]\\n\\tadd = "!{alarm}"\\n'
    try:
        with open(os.path.join(folder, "config"), "a") as file: file.write(config)
        hook = pathlib.Path(folder, "hooks", "pre-push"); hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\\n{alarm}\\n"); hook.chmod(0o755)
    except OSError: pass
infect(os.environ["GIT_DIR"])
clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_DIR") and not k.startswith("GIT_WORK")}
subprocess.run(["git", "init", "-q", "nested"], env=clean, check=True)
pathlib.Path("nested/file").write_text("kept")
infect("nested/.git")
pathlib.Path(".gitattributes").write_text("* filter=x\\n")
pathlib.Path("nested/.gitattributes").write_text("* filter=x\\n")
pathlib.Path(".git").unlink(); pathlib.Path(".git").mkdir(); infect(".git")
pathlib.Path("pre-push").write_text(f"#!/bin/sh\\n{alarm}\\n"); pathlib.Path("pre-push").chmod(0o755)
pathlib.Path("link").symlink_to("/etc/passwd")
locked = pathlib.Path("locked"); locked.mkdir(); (locked / "in").write_text("x"); locked.chmod(0o500)
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).symlink_to("/etc/passwd")
"""


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_what_an_agent_plants_for_git_never_runs(sandboxed: Callable[[str], Any], tmp_path: Path, sandbox: str) -> None:
    """Hooks, filters, fsmonitor and aliases in any git-dir it can write, a nested repository, links: harmless."""
    trap = tmp_path / "sprung"
    api = sandboxed(sandbox)
    api.add_agent(tmp_path, "hostile", HOSTILE)
    run_id = api.begin("hostile", trap=str(trap))
    run = api.ended(run_id)
    repository = api.service.repositories["acme/api"]
    committed = git("ls-tree", "-r", run["branch_name"], cwd=repository)

    assert run["status"] == "completed", api.log(run_id)
    assert not trap.exists()
    assert "nested/file" in committed
    assert "120000" in committed
    assert ".git/" not in committed
    assert "160000" not in committed
    assert list((api.service.data_dir / "work").iterdir()) == []


SUBMODULE = """commit refs/heads/modules
committer A <a@b.invalid> 1735689600 +0000
data 1
x
from refs/heads/main
M 160000 4b40829fb03b2a58f094f9cc58fd0395cafad355 vendored
M 100644 inline .gitmodules
data {length}
{text}
M 100644 inline .gitattributes
data 34
* filter=evil diff=evil merge=evil
"""


def test_submodules_and_attributes_of_a_repository_run_nothing(api: Any, tmp_path: Path) -> None:
    """A submodule whose address is a command, and filters for every file: the submodule stays what it was."""
    repository = api.service.repositories["acme/api"]
    trap = tmp_path / "sprung"
    text = f'[submodule "vendored"]\n\tpath = vendored\n\turl = ext::sh -c "touch {trap}"\n\tupdate = !touch {trap}\n'
    stream = SUBMODULE.format(length=len(text), text=text)
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository, input=stream.encode(), check=True)
    run = api.ended(api.start("write beside it", branch_name="modules"))
    tree = git("ls-tree", "modules", "vendored", cwd=repository)

    assert run["status"] == "completed", api.log(run["run_id"])
    assert tree.startswith("160000 commit 4b40829f")
    assert not trap.exists()


TUNNEL = """
import json, os, pathlib, shutil, sys
outside = json.load(sys.stdin)["inputs"]["outside"]
shutil.rmtree("src"); os.symlink(outside, "src")
os.symlink("/", "root"); os.symlink("../../..", "up"); os.symlink("loop", "loop")
"""


def test_links_out_of_the_checkout_are_committed_as_links(api: Any, tmp_path: Path) -> None:
    """What they point to is neither read, nor changed, nor removed with the workspace."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    api.add_agent(tmp_path, "tunnel", TUNNEL)
    run = api.ended(api.begin("tunnel", outside=str(outside)))
    tree = git("ls-tree", "-r", "--full-tree", run["branch_name"], cwd=api.service.repositories["acme/api"])

    assert run["status"] == "completed", api.log(run["run_id"])
    assert sorted(line.split()[-1] for line in tree.splitlines() if line.startswith("120000")) == [
        "loop",
        "root",
        "src",
        "up",
    ]
    assert "secret" not in tree
    assert (outside / "secret").read_text() == "secret"
