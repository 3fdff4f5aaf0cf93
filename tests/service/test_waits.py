"""Why a queued run waits: computed when somebody asks, and never about other organizations unless the operator asks."""

from typing import Any

import pytest

from service.settings import ExecutionSettings
from service.store import turns, waits, workers
from service.store.database import Database, now_in
from service.store.runs import Run
from service.store.workers import MISSING, Worker
from tests.service.conftest import BOTH, NOW, accepted


class Queue:
    """Runs and workers at one moment."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def now(self) -> int:
        with self.database.read() as connection:
            return int(now_in(connection, lambda: NOW))

    def worker(self, slots: int, sandbox: str = "none (a test)") -> None:
        at = self.now()
        with self.database.write() as connection:
            workers.beat(connection, Worker("w", "host", sandbox, 1, slots, at, at), lambda: at)

    def begin(self, slug: str = "acme", **given: Any) -> Run:
        run = accepted(self.database, slug, **given)
        with self.database.write() as connection:
            turns.mark_dispatched(connection, [(run.id, 1)], NOW)
        return run

    def reason(self, run: Run, *, for_operator: bool = False, **settings: Any) -> str | None:
        with self.database.read() as connection:
            given = (turns.of(connection, run.id), ExecutionSettings(**settings), lambda: NOW)
            return waits.explained(connection, run, *given, for_operator=for_operator)[-1].reason


@pytest.fixture
def queue(database: Database) -> Queue:
    return Queue(database)


@BOTH
def test_a_run_waits_for_a_worker_that_can_work(queue: Queue) -> None:
    """None is there, none has a sandbox, or the disks are full; the command is for the operator alone."""
    run = accepted(queue.database)
    found = [queue.reason(run), queue.reason(run, for_operator=True)]
    queue.worker(0, f"{MISSING}bubblewrap is not installed")
    found.append(queue.reason(run))
    queue.worker(0)
    found.append(queue.reason(run))
    queue.worker(2)

    assert found == [
        "no worker is running",
        "no worker is running; start one: runwarden service worker",
        "no worker has a sandbox",
        "the disk of every worker is nearly full",
    ]
    assert queue.reason(run) is None


def test_a_run_waits_for_a_slot(queue: Queue) -> None:
    """Who takes the slots is shown to the operator; an organization sees its own share."""
    queue.worker(3)
    for _ in range(2):
        queue.begin("other")
    queue.begin("acme")
    run = accepted(queue.database, "acme")

    assert queue.reason(run) == "all 3 slots are taken: 1 by this organization"
    assert queue.reason(run, for_operator=True) == "all 3 slots are taken: 2 by other, 1 by acme"
    queue.worker(4)
    assert queue.reason(run, organization_slots=1) == (
        "the organization may use 1 slot at a time, which other runs of it take"
    )


def test_a_run_waits_for_its_branch_and_for_earlier_ones(queue: Queue) -> None:
    """Another organization's run on the branch is not named."""
    queue.worker(8)
    first = queue.begin("acme", branch="work")
    run, theirs = accepted(queue.database, "acme", branch="work"), accepted(queue.database, "other", branch="work")
    last = accepted(queue.database, "acme", now=NOW + 5)

    assert queue.reason(run) == f"{first.id} is at work on the branch work"
    assert queue.reason(theirs) == "another run is at work on the branch work"
    assert queue.reason(last) == "1 earlier turn of the organization waits"
    assert queue.reason(first) is None


def test_a_run_that_was_put_back_says_why_until_it_begins_again(queue: Queue) -> None:
    """So does one that waits for its code host: what is stored comes first."""
    run = queue.begin()
    with queue.database.write() as connection:
        turns.claim(connection, run.id, 1, "w", NOW)
        turns.note_put_back(connection, run.id, 1, "put back: the disk is nearly full", NOW)
    put_back = queue.reason(run)
    with queue.database.write() as connection:
        turns.claim(connection, run.id, 1, "w", NOW)

    assert (put_back, queue.reason(run)) == ("put back: the disk is nearly full", None)
