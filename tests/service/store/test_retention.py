"""Retention removes old operational data and the service's own old branches, and nothing else."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.clock import DAY_MICROS, SECOND_MICROS, now_micros
from service.execution.queue import forget_ended
from service.execution.retention import Retention, prune_files, prune_stored_files
from service.hosts.tokens import HostTokens
from service.settings import DataFolder, Settings
from service.store import repositories, runs, turn_files, turns
from service.store.database import Database
from service.store.repositories import Repository
from service.store.runs import Run
from service.store.turns import TurnOutcome
from tests.service.conftest import UNBOXED, Api, accepted, organization
from tests.service.deployment import Deployment, deployment
from tests.service.git_hosts import push
from tests.service_process import git, make_repository
from tests.waiting import eventually

SETTINGS = f"{UNBOXED}worker_ttl_s = 2\ndrain_s = 1\n"


class House:
    """A service with a worker, and the stored data of its runs."""

    def __init__(self, made: Deployment) -> None:
        self.deployment, self.database = made, made.database
        self.folder = DataFolder(made.machine("first"))

    def complete(self, client: Api) -> str:
        """Start a run, wait for its end, and return its id."""
        before = self.entries
        run_id = client.start("write it")
        assert client.ended(run_id)["status"] == "completed"
        eventually(lambda: self.entries > before, "the queue has noted it")
        assert self.kept(run_id) == ["turn-1.diff", "turn-1.log"]
        return run_id

    def kept(self, run_id: str) -> list[str]:
        folder = self.folder.runs / run_id
        with contextlib.suppress(FileNotFoundError):  # It may be deleted at this moment.
            return sorted(file.name for file in folder.iterdir())
        return []

    @property
    def entries(self) -> int:
        """How many ended turns and jobs the queue has; a start adds two, for pruning and rotation."""
        return forget_ended(self.database, now_micros() + DAY_MICROS, dry_run=True)

    def prune(self, before: int, *, dry_run: bool = False) -> tuple[int, int, int]:
        """Prune older data; return the numbers of queue entries, of files in the database, and of files here."""
        queued = forget_ended(self.database, before, dry_run=dry_run)
        stored = prune_stored_files(self.database, before, dry_run=dry_run)
        return queued, stored, prune_files(self.database, self.folder, before, dry_run=dry_run)[0]


@pytest.fixture
def house(either_url: str | None, tmp_path: Path) -> Iterator[House]:
    """A service over either database, without runs."""
    with deployment(tmp_path / "deployment", either_url, settings=SETTINGS) as made:
        yield House(made)


@pytest.mark.parametrize("either_url", ["postgresql"], indirect=True)
def test_old_data_is_removed_and_the_run_stays(house: House, tmp_path: Path) -> None:
    """Logs, diffs and queue entries of the older run are removed; an open run keeps everything."""
    client = house.deployment.client(house.deployment.begin("serve", "--port", "0"))
    eventually(lambda: house.entries == 2, "the database was pruned at the start")
    old, again = house.complete(client), house.complete(client)
    between = now_micros()
    eventually(lambda: now_micros() > between + SECOND_MICROS, "the queue's clock, which counts seconds, goes on")
    young = house.complete(client)
    gate = tmp_path / "gate"
    assert client.follow(again, f"wait {gate}").status_code == 201
    client.reaches(again, "working")
    listed = client.get("/external/runs").json()
    counted, untouched = house.prune(between, dry_run=True), (house.kept(old), house.entries)
    removed, after = house.prune(between), house.prune(between)

    assert counted == removed == (4, 2, 2)
    assert (untouched, after) == ((["turn-1.diff", "turn-1.log"], 5), (0, 0, 0))
    assert (house.kept(old), len(house.kept(young)), "turn-1.log" in house.kept(again)) == ([], 2, True)
    with house.database.read() as connection:
        assert None not in [turn_files.log_size(connection, (one, 1)) for one in (young, again)]
    assert client.get("/external/runs").json() == listed
    shown = house.deployment.admin("run", old, "--log")["turns"][0]
    assert (shown["status"], shown["log"]) == ("completed", "")
    gate.touch()
    client.ended(again)


@pytest.mark.parametrize("either_url", ["sqlite"], indirect=True)
def test_the_worker_prunes_by_its_settings(house: House) -> None:
    """Queue entries are removed after thirty days and logs never; `logs_days` removes logs too, at the start."""
    node = house.deployment.begin("serve", "--port", "0")
    run_id = house.complete(house.deployment.client(node))
    eventually(lambda: house.entries == 3, "the database was pruned at the start")
    node.stop()

    def after(days: int) -> tuple[int, int]:
        clock = lambda: now_micros() + days * DAY_MICROS  # noqa: E731
        return Retention(house.database, HostTokens(house.database), house.folder, Settings(), clock).prune_database()

    by_default = after(29), after(31), after(3650)
    house.deployment.settings += "[retention]\nlogs_days = 0.0000001\n"
    house.deployment.begin("serve", "--port", "0")
    eventually(lambda: house.kept(run_id) == [], "log and diff go")

    assert by_default == ((0, 0), (3, 0), (0, 0))
    assert house.deployment.admin("run", run_id)["status"] == "completed"


class Repo:
    """A real repository, with runs that ended with commits."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.place = make_repository(folder / "api", {"a": "1"})
        self.data = DataFolder(folder / "data")
        self.data.create()
        self.owner = organization(database)

    def run(self, branch: str | None = None, *, ended: bool = True) -> Run:
        """A run whose only turn pushed a commit to its branch."""
        run = accepted(self.database, now=now_micros(), url=str(self.place), branch=branch)
        commit = self.commit(run.branch, f"turn of {run.id}")
        if ended:
            with self.database.write() as connection:
                turns.end(connection, run.id, 1, TurnOutcome("completed", commit_sha=commit), now_micros())
        return run

    def commit(self, branch: str, message: str = "by a person") -> str:
        there = git("branch", "--list", branch, cwd=self.place)
        return push(self.place, branch, {}, "" if there else "refs/heads/main", message=message)

    def remove(self, before: int | None = None) -> list[str]:
        """Remove older branches, and return those that are left."""
        retention = Retention(self.database, HostTokens(self.database), self.data, Settings(), now_micros)
        retention.remove_branches(now_micros() if before is None else before)
        return sorted(git("branch", "--format=%(refname:short)", cwd=self.place).split())


@pytest.fixture
def repo(database: Database, tmp_path: Path) -> Repo:
    """A service with one repository and no runs."""
    return Repo(database, tmp_path)


def test_old_branches_of_runs_are_removed(repo: Repo) -> None:
    """Branches stay until then; a branch that a caller named stays, like any other."""
    merged, abandoned = repo.run(), repo.run()
    named = repo.run("feature/mine")
    git("update-ref", "refs/heads/main", merged.branch, cwd=repo.place)
    young = repo.remove(before=now_micros() - 3_600_000_000)

    assert young == sorted([merged.branch, abandoned.branch, named.branch, "main"])
    assert repo.remove() == ["feature/mine", "main"]
    assert repo.remove() == ["feature/mine", "main"]


def test_other_branches_are_never_removed(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches with others' commits, of an open run, default and protected ones stay, however old they are."""
    with_others, below_ours, open_again, default = (repo.run() for _ in range(4))
    named = repo.run("agent/write-it-0123abcd")
    repo.commit(with_others.branch)
    repo.commit(below_ours.branch)
    repo.run(below_ours.branch)
    repo.run(open_again.branch, ended=False)
    git("symbolic-ref", "HEAD", f"refs/heads/{default.branch}", cwd=repo.place)
    spared = {one.branch for one in (with_others, below_ours, open_again, default, named)}

    assert set(repo.remove()) == spared | {"main"}
    late, known = repo.run(), runs.commits_on

    def push_late(connection: Any, run: Run) -> frozenset[str]:
        if run.id == late.id:
            repo.commit(late.branch)
        return known(connection, run)

    monkeypatch.setattr(runs, "commits_on", push_late)
    assert late.branch in repo.remove()
    monkeypatch.undo()
    protected = repo.run()
    found = Repository("api", "github", "acme/api", str(repo.place), protected=("agent/*",))
    with repo.database.write() as connection:
        repositories.save(connection, repo.owner, found, now_micros())
    assert protected.branch in repo.remove()
