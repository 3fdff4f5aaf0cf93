"""git: mirrors of repositories, and that nothing in a repository or a workspace runs or leads away."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.execution.git import GitCommandError, GitRunner
from service.execution.mirror import RepositoryMirror
from tests.service.conftest import NEEDS_SANDBOX, Api
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


def test_a_mirror_keeps_two_names_however_many_branches_were_fetched(
    mirror: RepositoryMirror, repository: Path
) -> None:
    """Branches that move, appear and go are so in the next snapshot; git reads all names in each fetch."""
    git("branch", "other", "main", cwd=repository)
    first = mirror.fetch("next")
    moved = move(repository, "main", "next")
    git("branch", "-D", "next", cwd=repository)
    git("branch", "next/newer", "main", cwd=repository)
    second, third, fourth = (mirror.fetch(name) for name in ("next", "next/newer", "main"))
    listed = git("for-each-ref", "--format=%(refname)", cwd=mirror.git_dir).splitlines()

    assert (first.default_branch, set(first.branches)) == ("main", {"main", "next"})
    assert second.branches == {"main": moved}
    assert third.branches == {"main": moved, "next/newer": moved}
    assert fourth.branches == {"main": moved}
    assert listed == ["refs/fetched/branch", "refs/fetched/default"]


def test_a_few_large_files_come_with_progress_and_packs_stay_few(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git would unpack few objects without a word; every branch stays readable when small packs become one."""
    monkeypatch.setattr("service.execution.mirror._MOST_PACKS", 3)
    said: list[str] = []
    (tmp_path / "mirrors").mkdir()
    mirror = RepositoryMirror(tmp_path / "mirrors", str(repository), GitRunner(tmp_path, 300, progress=said.append))
    mirror.fetch("next")
    for number in range(8):
        tree = git("mktree", cwd=repository, given="").strip()
        made = git(*("-c", "user.name=t", "-c", "user.email=t"), "commit-tree", tree, "-m", str(number), cwd=repository)
        move(repository, "next", made.strip())
        last = mirror.fetch("next")

    assert any(line.startswith("Receiving objects: 100%") for line in said), said
    assert len(list((mirror.git_dir / "objects/pack").glob("*.pack"))) <= 4
    assert git("cat-file", "-t", last.branches["next"], cwd=mirror.git_dir) == "commit"
    assert git("cat-file", "-t", last.branches["main"], cwd=mirror.git_dir) == "commit"


def test_names_are_told_apart(mirror: RepositoryMirror, repository: Path) -> None:
    """Git matches the ends of names; a HEAD that points nowhere is no default branch."""
    for name in ("refs/heads/fix", "a/HEAD"):
        git("update-ref", f"refs/heads/{name}", "next", cwd=repository)
    alike = mirror.fetch("fix")
    git("symbolic-ref", "HEAD", "refs/heads/gone", cwd=repository)
    headless = mirror.fetch("next")

    assert (alike.default_branch, set(alike.branches)) == ("main", {"main"})
    assert (headless.default_branch, set(headless.branches)) == (None, {"next"})


@pytest.mark.parametrize(("branch", "beside"), [("next/x", "next"), ("a", "a/b"), ("next", None), ("other/x", None)])
def test_a_branch_that_git_cannot_make_names_the_one_in_its_way(
    mirror: RepositoryMirror, repository: Path, branch: str, beside: str | None
) -> None:
    """Git keeps branches as files and folders."""
    git("branch", "a/b", "main", cwd=repository)

    assert mirror.fetch(branch).beside == beside


def test_only_a_lock_that_cannot_be_held_is_broken(mirror: RepositoryMirror, repository: Path) -> None:
    """A fresh one is an error and stays; one that is older than any command of ours was left by a power cut."""
    mirror.fetch("main")
    moved = move(repository, "main", "next")
    (kept,) = (mirror.git_dir / "refs" / "fetched").iterdir()
    lock = kept.with_suffix(".lock")
    lock.touch()
    with pytest.raises(GitCommandError, match="fetch failed"):
        mirror.fetch("main")
    assert lock.exists()
    os.utime(lock, (1, 1))

    assert mirror.fetch("main").branches["main"] == moved
    assert not lock.exists()


def test_an_address_that_is_no_repository_is_an_error_and_no_command(tmp_path: Path) -> None:
    """Nothing in an address is an option or a program."""
    for url in ("--upload-pack=touch sprung", "ext::sh -c touch% sprung", "/nowhere"):
        with pytest.raises(GitCommandError):
            RepositoryMirror(tmp_path, url, GitRunner(tmp_path, timeout_s=300)).fetch("main")
    assert not list(tmp_path.rglob("sprung"))


def test_git_that_cannot_be_started_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is missing is the cure to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitCommandError, match="install git"):
        GitRunner(tmp_path, timeout_s=300)("version")
    (tmp_path / "git").touch(0o600)
    with pytest.raises(GitCommandError, match=r"Permission denied: 'git'\)$"):
        GitRunner(tmp_path, timeout_s=300)("version")


HOSTILE = """
import json, os, pathlib, shutil, subprocess
inputs = json.load(__import__("sys").stdin)["inputs"]
trap = pathlib.Path(inputs["trap"])
shutil.rmtree("src"); os.symlink(inputs["outside"], "src")
os.symlink("/", "root"); os.symlink("../../..", "up"); os.symlink("loop", "loop")
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
locked = pathlib.Path("locked"); locked.mkdir(); (locked / "in").write_text("x"); locked.chmod(0o500)
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).symlink_to("/etc/passwd")
"""


@pytest.mark.parametrize("service", ["shared_service", pytest.param("equipped", marks=NEEDS_SANDBOX)])
def test_what_an_agent_plants_for_git_never_runs(request: pytest.FixtureRequest, tmp_path: Path, service: str) -> None:
    """Hooks, filters, fsmonitor and aliases in any git-dir it can write, a nested repository: harmless.

    Links out of the checkout are committed as links: what they point to is neither read, nor changed, nor removed.
    """
    trap, outside = tmp_path / "sprung", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    api = Api(request.getfixturevalue(service))
    api.add_agent(tmp_path, "hostile", HOSTILE)
    run_id = api.begin("hostile", trap=str(trap), outside=str(outside))
    run = api.ended(run_id)
    repository = api.service.repositories["acme/api"]
    committed = git("ls-tree", "-r", "--full-tree", run["branch_name"], cwd=repository).splitlines()
    names = [line.split()[-1] for line in committed]

    assert run["status"] == "completed", api.log(run_id)
    assert not trap.exists()
    assert "nested/file" in names
    assert [line.split()[-1] for line in committed if line.startswith("120000")] == ["loop", "root", "src", "up"]
    assert not [name for name in names if ".git/" in name or "secret" in name]
    assert not [line for line in committed if line.startswith("160000")]
    assert (outside / "secret").read_text() == "secret"
    assert list((api.service.data_dir / "work").glob(f"*{run_id}*")) == []


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
