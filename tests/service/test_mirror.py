"""The mirror of a repository, against real git."""

import os
from pathlib import Path

import pytest

from service.execution.git import GitCommandError, GitRunner
from service.execution.mirror import RepositoryMirror
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
