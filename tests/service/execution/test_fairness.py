"""Slots: organizations take turns, stuck runs block no other organization, and a queued run shows its reason."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.clock import SECOND_MICROS, now_micros
from service.settings import ExecutionSettings
from service.store import dispatch, turns, workers
from service.store.database import Database, DatabaseClock, now_in
from service.store.dispatch import next_turns
from service.store.runs import Run
from service.store.turns import TurnOutcome
from service.store.workers import MISSING, Worker
from tests.service.conftest import BOTH, NOW, UNBOXED, Api, Make, accepted, organization
from tests.service_process import demo_setup
from tests.waiting import eventually


class Queue:
    """Accepted turns of organizations named by letters, and their dispatch."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.owners: dict[str, str] = {}
        self.under_way: list[tuple[str, int]] = []

    def accept(self, name: str, count: int, branch: str | None = None) -> None:
        self.owners[organization(self.database, name.lower(), now_micros())] = name
        for _ in range(count):
            accepted(self.database, name.lower(), now=now_micros(), branch=branch)

    def dispatch(self, places: int, share: int | None = None, ended: int = 0) -> str:
        """Finish this many turns, and return the organizations that get slots then."""
        with self.database.write() as connection:
            for _ in range(min(ended, len(self.under_way))):
                turns.end(connection, *self.under_way.pop(0), TurnOutcome("completed"), now_micros())
            found = next_turns(connection, places, share, 0)
            keys = [(turn.run_id, turn.number) for turn in found]
            if keys:
                turns.mark_dispatched(connection, keys, now_micros())
        self.under_way += keys
        return "".join(sorted(self.owners[turn.organization_id] for turn in found))


@BOTH
def test_organizations_take_turns(database: Database) -> None:
    """The second organization's only run does not wait for forty of the first.

    A branch has one queued run at a time.
    """
    queue = Queue(database)
    queue.accept("A", 40)
    queue.accept("B", 1)
    queue.accept("C", 2)

    assert queue.dispatch(4) == "AABC"
    assert queue.dispatch(4) == ""
    assert queue.dispatch(4, ended=1) == "A", "all have as many, and it waits longest"
    assert queue.dispatch(4, ended=1) == "C", "of those that wait, it has the fewest"
    queue.accept("D", 20, branch="same")
    queue.accept("D", 1)
    assert queue.dispatch(12).count("D") == 2


def test_one_slot_is_left_for_other_organizations(database: Database) -> None:
    """A later organization finds it free, a single one uses all, and a configured share holds."""
    queue = Queue(database)
    queue.accept("A", 9)
    assert queue.dispatch(3) == "AAA"
    queue.accept("B", 0)
    assert queue.dispatch(3, ended=3) == "AA"
    queue.accept("B", 1)
    assert queue.dispatch(3) == "B"
    assert queue.dispatch(6, share=1, ended=1) == ""


def test_the_number_of_active_runs_is_limited(start: Make, tmp_path: Path) -> None:
    """The limit is exact for simultaneous requests, and others are served meanwhile.

    A deactivated organization's runs are stopped, working or waiting.
    """
    setup = demo_setup(tmp_path)
    setup["organizations"].append(setup["organizations"][0] | {"name": "Other", "slug": "other"})
    settings = f"{UNBOXED}concurrency = 2\ndrain_s = 0.1\n[limits]\nactive_runs = 6\n"
    api = start(setup=setup, settings=settings)
    acme, other = (Api(api.service, one) for one in api.service.setup["organizations"])
    body = {"repository": "acme/api", "inputs": {"instructions": f"wait {tmp_path / 'never'}"}}
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: acme.post("/external/agents/scribe/runs", body), range(12)))
    stuck = [answer.json()["execution_id"] for answer in answers if answer.status_code == 201]
    refused = {(answer.status_code, answer.json().get("error_code")) for answer in answers} - {(201, None)}

    assert (len(stuck), refused) == (6, {(400, "too_many_active_runs")})
    assert other.ended(other.start("nothing"))["status"] == "completed"
    by_status = {acme.run(one)["status"]: one for one in stuck}
    assert set(by_status) == {"working", "queued"}
    assert acme.post(f"/external/runs/{by_status['queued']}/cancel", {}).status_code == 202
    assert acme.follow(by_status["queued"], "once more").status_code == 201
    assert acme.follow(by_status["working"], "beside it").status_code in {400, 409}
    assert len([*acme.runs(status="queued"), *acme.runs(status="working")]) == 6

    acme.service.admin("org", "deactivate", "acme")
    eventually(lambda: "interrupted" in acme.log(by_status["working"]), "the agent is interrupted")
    assert other.ended(other.start("nothing"))["status"] == "completed"
    for run_id in stuck:
        turn = acme.service.admin("run", run_id)["turns"][-1]
        assert (turn["status"], turn["failure"]) == ("failed", "cancelled: the organization was deactivated")


@dataclass
class Waiting:
    """Runs and workers at one moment."""

    database: Database

    def worker(self, slots: int, sandbox: str = "none (a test)") -> None:
        with self.database.write() as connection:
            at = int(now_in(connection, lambda: NOW))
            workers.beat(connection, Worker("w", "host", sandbox, 1, slots, at, at), lambda: at)

    def begin(self, slug: str = "acme", **given: Any) -> Run:
        run = accepted(self.database, slug, **given)
        with self.database.write() as connection:
            turns.mark_dispatched(connection, [(run.id, 1)], NOW)
        return run

    def reason(self, run: Run, *, for_operator: bool = False, **settings: Any) -> str | None:
        with self.database.read() as connection:
            given = (ExecutionSettings(**settings), lambda: NOW)
            return dispatch.explain_turns(connection, run, *given, for_operator=for_operator)[-1].reason


@pytest.fixture
def queue(database: Database) -> Waiting:
    return Waiting(database)


def test_a_run_waits_for_an_able_worker(queue: Waiting) -> None:
    """The worker may be missing, without a sandbox, out of disk or draining; only the operator sees commands."""
    run = accepted(queue.database)
    assert queue.reason(run) == "no worker is running"
    assert queue.reason(run, for_operator=True) == "no worker is running; start one: runwarden service worker"
    queue.worker(0, f"{MISSING}bubblewrap is not installed")
    assert queue.reason(run) == "no worker has a sandbox"
    queue.worker(0)
    assert queue.reason(run) == "the disk of every worker is nearly full"
    with queue.database.write() as connection:
        begun = (("host", NOW - 1), ("host", NOW), ("other", NOW + 1))
        workers.drain(connection, "host", [Worker("w", host, "none", 1, 0, at, at) for host, at in begun])
        assert workers.pauses(connection).drained == {"host": NOW}
    assert queue.reason(run) == "every worker is drained"
    assert queue.reason(run, for_operator=True) == "every worker is drained; start one: runwarden service worker"
    queue.worker(2)
    assert queue.reason(run) is None


def test_a_run_waits_for_a_slot(queue: Waiting) -> None:
    """The operator sees who uses the slots; an organization sees its own share."""
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


def test_a_requeued_run_keeps_its_reason(queue: Waiting) -> None:
    """The stored reason has priority, for example while it waits for its code host."""
    run = queue.begin()
    with queue.database.write() as connection:
        turns.claim(connection, run.id, 1, "w", NOW)
        turns.note_put_back(connection, run.id, 1, "put back: the disk is nearly full", NOW)
    put_back = queue.reason(run)
    with queue.database.write() as connection:
        turns.claim(connection, run.id, 1, "w", NOW)

    assert (put_back, queue.reason(run)) == ("put back: the disk is nearly full", None)


def test_a_run_waits_for_its_branch_and_for_earlier_ones(queue: Waiting) -> None:
    """Another organization's run on the branch is not named."""
    queue.worker(8)
    first = queue.begin("acme", branch="work")
    run, theirs = accepted(queue.database, "acme", branch="work"), accepted(queue.database, "other", branch="work")
    last = accepted(queue.database, "acme", now=NOW + 5)

    assert queue.reason(run) == f"{first.id} is at work on the branch work"
    assert queue.reason(theirs) == "another run is at work on the branch work"
    assert queue.reason(last) == "1 earlier turn of the organization waits"
    assert queue.reason(first) is None


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_workers_use_the_databases_clock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose clock is an hour ahead would delay the next turn of the organizations it served."""
    monkeypatch.setattr("service.store.database.now_micros", lambda: now_micros() + 3600 * SECOND_MICROS)
    clock = DatabaseClock(database)
    with database.read() as connection:
        first, there, second = clock(), now_in(connection, clock), clock()

    assert first - SECOND_MICROS <= there <= second + SECOND_MICROS
