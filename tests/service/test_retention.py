"""Retention: what only operators look at goes when it is old; runs, their conversation and what is open stay."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from service.cli import main
from service.clock import DAY_MICROS, SECOND_MICROS, now_micros, rfc3339
from service.execution.queue import QueueHistory
from service.execution.retention import Pruner, PruneSummary, RetentionThread
from service.settings import DataFolder, RetentionSettings
from service.store.database import Database
from service.store.schema import log_pieces
from tests.service.conftest import Api
from tests.service.deployment import Deployment, deployment
from tests.service_process import ROOT, Node
from tests.waiting import eventually

SETTINGS = '[execution]\nsandbox = "none"\nworker_ttl_s = 2\ndrain_s = 1\n'
AT_ONCE = "[retention]\nlogs_days = 0.0000001\n"


class House:
    """A service with a worker, and what it keeps of its runs."""

    def __init__(self, made: Deployment, database_url: str | None) -> None:
        self.deployment = made
        self.folder = DataFolder(made.machine("first"))
        self.database = Database(database_url or self.folder.database_url)

    def serve(self) -> tuple[Node, Api]:
        node = self.deployment.begin("serve", "--port", "0")
        return node, self.deployment.client(node)

    def complete(self, client: Api) -> str:
        """Start a run, wait for its end, and return its id."""
        run_id = client.start("write it")
        assert client.ended(run_id)["status"] == "completed"
        eventually(lambda: f"{run_id}:1" in self.entries(), "the queue has noted it")
        assert self.kept(run_id) == ["turn-1.diff", "turn-1.log"]
        return run_id

    def kept(self, run_id: str) -> list[str]:
        folder = self.folder.runs / run_id
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []

    def stored(self) -> set[str]:
        """Return the runs of which the database holds files (none on SQLite)."""
        with self.database.read() as connection:
            return set(connection.execute(sa.select(log_pieces.c.run_id)).scalars())

    def entries(self) -> set[str]:
        """Return the turns whose end the queue remembers."""
        with QueueHistory(self.database) as history:
            return {entry.workflow_id for entry in history.ended(now_micros() + DAY_MICROS, 0, 100)}

    def prune(self, before: int, *, dry_run: bool = False) -> tuple[int, int, int]:
        """Prune what ended before; return the numbers of queue entries, of files in the database, and of files here."""
        pruner = Pruner(self.database, self.folder, dry_run=dry_run)
        return pruner.queue(before), pruner.stored_files(before), pruner.files(before)[0]


@contextlib.contextmanager
def housing(folder: Path, url: str | None) -> Iterator[House]:
    """A service of which nothing runs yet."""
    with deployment(folder, url, settings=SETTINGS) as made:
        there = House(made, url)
        with contextlib.closing(there.database):
            yield there


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with housing(tmp_path / "deployment", None) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """Over either database."""
    url = None if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with housing(tmp_path / "deployment", url) as made:
        yield made


def test_what_is_old_goes_and_the_run_stays(either: House) -> None:
    """Logs, diffs and queue entries of the older run only; the API lists both as before."""
    _, client = either.serve()
    old = either.complete(client)
    between = now_micros()
    eventually(lambda: now_micros() > between + SECOND_MICROS, "the queue's clock, which counts seconds, goes on")
    young = either.complete(client)
    listed = client.get("/external/runs").json()
    stored = 0 if either.database.is_sqlite else 2
    counted = either.prune(between, dry_run=True)
    untouched = either.kept(old), either.entries()
    removed, again = either.prune(between), either.prune(between)

    assert counted == removed == (1, stored, 2)
    assert untouched == (["turn-1.diff", "turn-1.log"], {f"{old}:1", f"{young}:1"})
    assert again == (0, 0, 0)
    assert (either.kept(old), either.entries()) == ([], {f"{young}:1"})
    assert either.stored() == (set() if either.database.is_sqlite else {young})
    assert len(either.kept(young)) == 2
    assert client.get("/external/runs").json() == listed
    shown = either.deployment.admin("run", old, "--log")["turns"][0]
    assert (shown["status"], shown["log"]) == ("completed", "")


def test_of_a_run_that_is_open_again_nothing_goes(either: House, tmp_path: Path) -> None:
    """Its first turn ended, its second one is at work: the log of the first stays, and the queue's note of it."""
    _, client = either.serve()
    run_id = either.complete(client)
    gate = tmp_path / "gate"
    assert client.follow(run_id, f"wait {gate}").status_code == 201
    kept_on = either.prune(now_micros() + DAY_MICROS)
    left = either.entries(), "turn-1.log" in either.kept(run_id)
    gate.touch()
    eventually(lambda: f"{run_id}:2" in either.entries(), "its second turn ends")
    pruned = either.prune(now_micros() + DAY_MICROS)

    assert (kept_on, left) == ((0, 0, 0), ({f"{run_id}:1"}, True))
    # Two logs, two diffs of turns, and that of the run after its second one.
    assert (pruned, either.entries()) == ((2, 0 if either.database.is_sqlite else 5, 5), set())


def test_the_worker_prunes_as_the_settings_say(house: House) -> None:
    """By default the queue's notes after thirty days, and no log ever; with `logs_days`, logs too, at its start."""
    node, client = house.serve()
    run_id = house.complete(client)
    node.stop()

    def after(days: int) -> PruneSummary:
        rounds = RetentionThread(
            house.database, house.folder, RetentionSettings(), lambda: now_micros() + days * DAY_MICROS
        )
        return rounds.once()

    by_default = after(29), after(31), after(3650)
    house.deployment.settings += AT_ONCE
    house.serve()
    eventually(lambda: house.kept(run_id) == [], "log and diff go")

    assert by_default == (PruneSummary(), PruneSummary(queue_entries=1), PruneSummary())
    assert house.deployment.admin("run", run_id)["status"] == "completed"


def test_the_command_counts_before_it_removes(house: House) -> None:
    """`prune --older-than`: with --dry-run it only says what would go; what is younger stays."""
    node, client = house.serve()
    run_id = house.complete(client)
    node.stop()
    ended = now_micros()
    eventually(lambda: now_micros() > ended + SECOND_MICROS, "a second has passed")
    young = house.deployment.admin("prune", "--older-than", "90d")
    counted = house.deployment.admin("prune", "--older-than", "1s", "--dry-run")
    still = house.kept(run_id)
    removed = house.deployment.admin("prune", "--older-than", "1s")

    numbers = {"queue_entries": 1, "stored_files": 0, "files": 2}
    assert {key: young[key] for key in numbers} == dict.fromkeys(numbers, 0)
    assert {key: counted[key] for key in numbers} == numbers == {key: removed[key] for key in numbers}
    assert counted["bytes"] == removed["bytes"] > 0
    assert (counted["dry_run"], removed["dry_run"]) == (True, False)
    assert young["before"] < rfc3339(ended - 89 * DAY_MICROS)
    assert (still, house.kept(run_id), house.entries()) == (["turn-1.diff", "turn-1.log"], [], set())


def test_where_no_worker_has_ever_been_there_is_nothing_to_prune(tmp_path: Path) -> None:
    """A service that was only set up: the queue has no tables yet, and none are made by looking."""
    runner = CliRunner()
    folder = ["--data-dir", str(tmp_path / "data")]
    runner.invoke(main, ["org", "create", "Acme", *folder])
    done = runner.invoke(main, ["prune", "--older-than", "1d", *folder])

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].split()[-1] == "0"


@pytest.mark.parametrize("age", ["soon", "0d", "-1d", "999999w"])
def test_an_age_that_cannot_be_read_is_refused(tmp_path: Path, age: str) -> None:
    """Status 2, and how to write one; nothing is opened before."""
    done = CliRunner().invoke(main, ["prune", f"--older-than={age}", "--data-dir", str(tmp_path / "none")])

    assert (done.exit_code, done.stdout) == (2, "")
    assert "30d" in done.stderr
    assert not (tmp_path / "none").exists()


def test_an_idle_queue_does_not_ask_for_what_is_never_there(tmp_path: Path) -> None:
    """Of DBOS's threads, the one for delays and deadlines ends, and an empty queue is not asked for its turns."""
    script = f"""
import threading, time
from dbos import DBOS
from service.execution.queue import TurnQueue
from service.store.database import Database
from dbos._dbos import _get_dbos_instance
queue = TurnQueue(Database("sqlite:///{tmp_path}/service.sqlite"), "me", 1)
queue.open(lambda run_id, number: None, lambda run_id, number, ending: None)
while not any(thread.name.startswith("queue-worker-") for thread in threading.enumerate()):
    time.sleep(0.01)
for thread in threading.enumerate():
    if thread.name == "dbos-background-jobs":
        thread.join(300)
print(sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(("dbos-b", "queue-w"))))
print(_get_dbos_instance()._sys_db.dequeue_scopes("turns"))
queue.close(0, 60)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert "dbos-background-jobs" not in done.stdout, done.stderr
    assert "queue-worker-" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
