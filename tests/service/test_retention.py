"""Retention: what only operators look at goes when it is old; runs, their conversation and what is open stay."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from service.cli import main
from service.clock import DAY_MICROS, SECOND_MICROS, now_micros
from service.execution.queue import forget_ended
from service.execution.retention import Pruner, Retention
from service.settings import DataFolder, Settings
from service.store import turn_files
from tests.service.conftest import Api
from tests.service.deployment import Deployment, deployment
from tests.waiting import eventually

SETTINGS = '[execution]\nsandbox = "none"\nworker_ttl_s = 2\ndrain_s = 1\n'
AT_ONCE = "[retention]\nlogs_days = 0.0000001\n"


class House:
    """A service with a worker, and what it keeps of its runs."""

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
        return sorted(file.name for file in (self.folder.runs / run_id).glob("*"))

    def has_stored(self, *run_ids: str) -> bool:
        """Whether the database holds a log of each run."""
        with self.database.read() as connection:
            return all(turn_files.log_size(connection, (run_id, 1)) is not None for run_id in run_ids)

    @property
    def entries(self) -> int:
        """How many ended turns and errands the queue remembers; what is pruned and rotated at a start are two."""
        return forget_ended(self.database, now_micros() + DAY_MICROS, dry_run=True)

    def prune(self, before: int, *, dry_run: bool = False) -> tuple[int, int, int]:
        """Prune what ended before; return the numbers of queue entries, of files in the database, and of files here."""
        pruner = Pruner(self.database, self.folder, dry_run=dry_run)
        queued = forget_ended(self.database, before, dry_run=dry_run)
        return queued, pruner.stored_files(before), pruner.files(before)[0]


@pytest.fixture
def house(either_url: str | None, tmp_path: Path) -> Iterator[House]:
    """A service over either database, of which nothing runs yet."""
    with deployment(tmp_path / "deployment", either_url, settings=SETTINGS) as made:
        yield House(made)


@pytest.mark.parametrize("either_url", ["postgresql"], indirect=True)
def test_what_is_old_goes_and_the_run_stays(house: House, tmp_path: Path) -> None:
    """Logs, diffs and queue entries of the older run only; of one that is open again, nothing."""
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
    young_only = house.deployment.admin("prune", "--older-than", "90d")
    removed, after = house.prune(between), house.prune(between)

    assert counted == removed == (4, 2, 2)
    assert [young_only[key] for key in ("queue_entries", "stored_files", "files")] == [0, 0, 0]
    assert (untouched, after) == ((["turn-1.diff", "turn-1.log"], 5), (0, 0, 0))
    assert (house.kept(old), len(house.kept(young)), "turn-1.log" in house.kept(again)) == ([], 2, True)
    assert house.has_stored(young, again)
    assert client.get("/external/runs").json() == listed
    shown = house.deployment.admin("run", old, "--log")["turns"][0]
    assert (shown["status"], shown["log"]) == ("completed", "")
    gate.touch()
    client.ended(again)


@pytest.mark.parametrize("either_url", ["sqlite"], indirect=True)
def test_the_worker_prunes_as_the_settings_say(house: House) -> None:
    """By default the queue's entries after thirty days, and no log ever; with `logs_days`, logs too, at its start."""
    node = house.deployment.begin("serve", "--port", "0")
    run_id = house.complete(house.deployment.client(node))
    eventually(lambda: house.entries == 3, "the database was pruned at the start")
    node.stop()

    def after(days: int) -> tuple[int, int]:
        clock = lambda: now_micros() + days * DAY_MICROS  # noqa: E731
        return Retention(house.database, house.folder, Settings(), clock).prune_database()

    by_default = after(29), after(31), after(3650)
    house.deployment.settings += AT_ONCE
    house.deployment.begin("serve", "--port", "0")
    eventually(lambda: house.kept(run_id) == [], "log and diff go")

    assert by_default == ((0, 0), (3, 0), (0, 0))
    assert house.deployment.admin("run", run_id)["status"] == "completed"


def test_an_age_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Status 2, and how to write one; nothing is opened before. Where no worker has ever been nothing is to prune."""
    runner, folder = CliRunner(), ["--data-dir", str(tmp_path / "data")]
    for age in ("soon", "0d", "-1d", "999999w"):
        done = runner.invoke(main, ["prune", f"--older-than={age}", *folder])
        assert (done.exit_code, done.stdout, "30d" in done.stderr) == (2, "", True)
    assert not (tmp_path / "data").exists()
    runner.invoke(main, ["org", "create", "Acme", *folder])
    done = runner.invoke(main, ["prune", "--older-than", "1d", *folder])

    assert (done.exit_code, done.stdout.splitlines()[1].split()[-1]) == (0, "0"), done.output
