"""Old branches: what the service made and no one else wrote to goes where that is asked for; everything else stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.clock import now_micros
from service.execution.retention import StaleBranches
from service.settings import DataFolder
from service.store import organizations, repositories, runs, turns
from service.store.database import Database
from service.store.repositories import Repository
from service.store.runs import Run, TurnRequest
from service.store.turns import TurnOutcome
from tests.service_process import git, make_repository


class Repo:
    """A real repository, and runs on it that ended with commits."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.place = make_repository(folder / "api", {"a": "1"})
        self.data = DataFolder(folder / "data")
        self.data.create()
        with database.write() as connection:
            self.owner = organizations.create(connection, name="Acme", now=now_micros()).id

    def run(self, branch: str | None = None, *, ended: bool = True) -> Run:
        """A run whose one turn pushed a commit to its branch."""
        request = TurnRequest(self.owner, "a", "github", "acme/api", str(self.place), branch, "Write it")
        with self.database.write() as connection:
            run = runs.accept(connection, request, now_micros())
            commit = self.commit(run.branch, f"turn of {run.id}")
            if ended:
                turns.end(connection, run.id, 1, TurnOutcome("completed", commit_sha=commit), now_micros())
        return run

    def commit(self, branch: str, message: str) -> str:
        there = git("branch", "--list", branch, cwd=self.place)
        onto = git("rev-parse", branch if there else "main", cwd=self.place)
        tree = git("rev-parse", "main^{tree}", cwd=self.place)
        commit = git("commit-tree", tree, "-p", onto, "-m", message, cwd=self.place)
        git("update-ref", f"refs/heads/{branch}", commit, cwd=self.place)
        return commit

    def remove(self, before: int | None = None) -> list[str]:
        """Remove what is older, and return the branches that are left."""
        StaleBranches(self.database, self.data, 300).remove(now_micros() if before is None else before)
        return sorted(git("branch", "--format=%(refname:short)", cwd=self.place).split())


@pytest.fixture
def repo(database: Database, tmp_path: Path) -> Repo:
    """An empty house with one repository."""
    return Repo(database, tmp_path)


def test_merged_and_abandoned_branches_of_runs_go_when_they_are_old(repo: Repo) -> None:
    """Not before their time; what a run was given by name stays, like every other branch."""
    merged, abandoned = repo.run(), repo.run()
    named = repo.run("feature/mine")
    git("update-ref", "refs/heads/main", merged.branch, cwd=repo.place)
    young = repo.remove(before=now_micros() - 3_600_000_000)

    assert young == sorted([merged.branch, abandoned.branch, named.branch, "main"])
    assert repo.remove() == ["feature/mine", "main"]
    assert repo.remove() == ["feature/mine", "main"]


def others_commit(repo: Repo) -> str:
    run = repo.run()
    repo.commit(run.branch, "by a person")
    return run.branch


def others_below_ours(repo: Repo) -> str:
    branch = others_commit(repo)
    repo.run(branch)
    return branch


def active_again(repo: Repo) -> str:
    run = repo.run()
    repo.run(run.branch, ended=False)
    return run.branch


def looks_alike(repo: Repo) -> str:
    return repo.run("agent/write-it-0123abcd").branch


def protected(repo: Repo) -> str:
    found = Repository("api", "github", "acme/api", str(repo.place), protected=("agent/*",))
    with repo.database.write() as connection:
        repositories.put(connection, repo.owner, found, now_micros())
    return repo.run().branch


def default_of_its_repository(repo: Repo) -> str:
    run = repo.run()
    git("symbolic-ref", "HEAD", f"refs/heads/{run.branch}", cwd=repo.place)
    return run.branch


@pytest.mark.parametrize(
    "spared", [others_commit, others_below_ours, active_again, looks_alike, protected, default_of_its_repository]
)
def test_a_branch_that_is_not_ours_alone_stays(repo: Repo, spared: Callable[[Repo], str]) -> None:
    """However old it is, and also when a commit of ours is its newest."""
    branch = spared(repo)

    assert branch in repo.remove()


def test_a_commit_that_comes_between_look_and_removal_keeps_the_branch(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal names the commit that it expects."""
    run = repo.run()
    known = runs.commits_on

    def late(*arguments: Any) -> frozenset[str]:
        repo.commit(run.branch, "by a person, just now")
        return known(*arguments)

    monkeypatch.setattr(runs, "commits_on", late)

    assert run.branch in repo.remove()
