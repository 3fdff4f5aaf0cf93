"""The mirror of a repository, against real git."""

import os
from pathlib import Path

import pytest

from service.execution.git import Git, GitError
from service.execution.mirror import Mirror
from tests.service_process import git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "api", {"a": "1"}, {"next": {"a": "2"}})


@pytest.fixture
def mirror(tmp_path: Path, repository: Path) -> Mirror:
    (tmp_path / "mirrors").mkdir()
    return Mirror(tmp_path / "mirrors", str(repository), Git(tmp_path, timeout_s=300))


def move(repository: Path, branch: str, onto: str) -> str:
    git("update-ref", f"refs/heads/{branch}", onto, cwd=repository)
    return git("rev-parse", branch, cwd=repository)


def test_it_follows_the_repository(mirror: Mirror, repository: Path) -> None:
    """Branches that move, appear and go are so in the next snapshot."""
    first = mirror.fetch()
    moved = move(repository, "main", "next")
    git("branch", "-D", "next", cwd=repository)
    git("branch", "newer", "main", cwd=repository)
    second = mirror.fetch()

    assert (first.default_branch, set(first.branches)) == ("main", {"main", "next"})
    assert second.branches == {"main": moved, "newer": moved}


def test_a_head_that_points_nowhere_is_no_default_branch(mirror: Mirror, repository: Path) -> None:
    """None, and the branches are there all the same."""
    git("symbolic-ref", "HEAD", "refs/heads/gone", cwd=repository)
    snapshot = mirror.fetch()

    assert (snapshot.default_branch, set(snapshot.branches)) == (None, {"main", "next"})


def test_a_lock_that_a_power_cut_left_is_broken(mirror: Mirror, repository: Path) -> None:
    """Older than any command of ours may last: nobody holds it."""
    mirror.fetch()
    moved = move(repository, "main", "next")
    lock = mirror.git_dir / "refs" / "heads" / "main.lock"
    lock.touch()
    os.utime(lock, (1, 1))

    assert mirror.fetch().branches["main"] == moved
    assert not lock.exists()


def test_a_lock_that_somebody_may_hold_is_respected(mirror: Mirror, repository: Path) -> None:
    """A fresh lock is an error, and stays."""
    mirror.fetch()
    move(repository, "main", "next")
    lock = mirror.git_dir / "refs" / "heads" / "main.lock"
    lock.touch()

    with pytest.raises(GitError, match="fetch failed"):
        mirror.fetch()
    assert lock.exists()


@pytest.mark.parametrize("url", ["--upload-pack=touch sprung", "ext::sh -c touch% sprung", "/nowhere"])
def test_an_address_that_is_no_repository_is_an_error_and_no_command(tmp_path: Path, url: str) -> None:
    """Nothing in an address is an option or a program."""
    mirror = Mirror(tmp_path, url, Git(tmp_path, timeout_s=300))

    with pytest.raises(GitError):
        mirror.fetch()
    assert not list(tmp_path.rglob("sprung"))
