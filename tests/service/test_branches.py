"""Old branches: what the service made and no one else wrote to goes where that is asked for; everything else stays."""

from pathlib import Path
from typing import Any

import pytest

from service.clock import now_micros
from service.execution.retention import StaleBranches
from service.settings import DataFolder
from service.store import repositories, runs, turns
from service.store.database import Database
from service.store.repositories import Repository
from service.store.runs import Run
from service.store.turns import TurnOutcome
from tests.service.conftest import accepted, organization
from tests.service_process import git, make_repository


class Repo:
    """A real repository, and runs on it that ended with commits."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.place = make_repository(folder / "api", {"a": "1"})
        self.data = DataFolder(folder / "data")
        self.data.create()
        self.owner = organization(database)

    def run(self, branch: str | None = None, *, ended: bool = True) -> Run:
        """A run whose one turn pushed a commit to its branch."""
        run = accepted(self.database, now=now_micros(), url=str(self.place), branch=branch)
        commit = self.commit(run.branch, f"turn of {run.id}")
        if ended:
            with self.database.write() as connection:
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


def test_a_branch_that_is_not_ours_alone_stays(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """However old it is: with commits of others, a run that is open, the default one, or one that is protected."""
    with_others, below_ours, open_again, default = (repo.run() for _ in range(4))
    named = repo.run("agent/write-it-0123abcd")
    repo.commit(with_others.branch, "by a person")
    repo.commit(below_ours.branch, "by a person")
    repo.run(below_ours.branch)
    repo.run(open_again.branch, ended=False)
    git("symbolic-ref", "HEAD", f"refs/heads/{default.branch}", cwd=repo.place)
    spared = {one.branch for one in (with_others, below_ours, open_again, default, named)}

    assert set(repo.remove()) == spared | {"main"}
    late, known = repo.run(), runs.commits_on

    def push_late(connection: Any, run: Run) -> frozenset[str]:
        if run.id == late.id:
            repo.commit(late.branch, "by a person, between look and removal")
        return known(connection, run)

    monkeypatch.setattr(runs, "commits_on", push_late)
    assert late.branch in repo.remove()
    monkeypatch.undo()
    protected = repo.run()
    found = Repository("api", "github", "acme/api", str(repo.place), protected=("agent/*",))
    with repo.database.write() as connection:
        repositories.put(connection, repo.owner, found, now_micros())
    assert protected.branch in repo.remove()
