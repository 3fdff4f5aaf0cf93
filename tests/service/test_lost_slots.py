"""Slots whose turn has ended: each is given back, even if the queue could not record the end."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.settings import DataFolder
from service.store.database import Database
from tests.service.conftest import Api
from tests.service.deployment import VARIABLE
from tests.service_process import RunningService, start_service
from tests.waiting import eventually

REFUSES = """
CREATE FUNCTION dbos.refuse_end() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'cannot execute UPDATE in a read-only transaction' USING ERRCODE = '25006'; END $$;
CREATE TRIGGER refuse_end BEFORE UPDATE ON dbos.workflow_status
FOR EACH ROW WHEN (NEW.status = 'SUCCESS') EXECUTE FUNCTION dbos.refuse_end()
"""
"""PostgreSQL as it is after a failover to a read-only server, though for the end of work alone."""
SETTINGS = """
[execution]
sandbox = "none"
concurrency = 1
worker_ttl_s = 1
put_back_s = 0.5
[execution.agent]
disk_reserve_bytes = 67108864
disk_reserve_files = 0
"""


@pytest.fixture
def service(small_disk: Path, either_url: str | None) -> Iterator[RunningService]:
    """A service with one slot and a small disk, on either database."""
    if either_url is not None:
        execute(either_url, REFUSES)
    environment = {} if either_url is None else {VARIABLE: either_url}
    running = start_service(small_disk, settings=SETTINGS, environment=environment)
    yield running
    running.kill()


def test_a_slot_is_given_back_if_the_end_of_its_turn_could_not_be_recorded(
    service: RunningService, small_disk: Path, tmp_path: Path, either_url: str | None
) -> None:
    """The disk is full on SQLite, the server read-only on PostgreSQL; the turn that was put back completes."""
    api = Api(service)
    go_on = tmp_path / "go-on"
    run_id = api.start(f"wait {go_on}")
    api.reaches(run_id, "working")
    eventually(lambda: "scribe at work" in api.log(run_id), "the agent has started")
    errands = [] if either_url is None else ["prune:", "rotate:"]
    eventually(lambda: refused_ends(service) == len(errands), "the ends of errands are refused on PostgreSQL")

    ballast = small_disk / "ballast"
    fill(ballast)
    eventually(lambda: f"{run_id} turn 1 is put back" in service.log, "it is put back", saw=lambda: service.log)

    def is_refused() -> bool:
        # Again and again, since what ends leaves room.
        fill(ballast)
        return refused_ends(service) > len(errands)

    eventually(is_refused, "its end is refused", saw=lambda: service.log)
    assert f"{run_id}:1" in pending(service, either_url)
    if either_url is not None:
        lost = {"all": 0, "taken": 1, "at_work": 0}
        eventually(lambda: slots(service) == lost, "status shows the difference", saw=lambda: slots(service))
    go_on.touch()
    ballast.unlink()
    if either_url is not None:
        execute(either_url, "DROP TRIGGER refuse_end ON dbos.workflow_status")

    assert api.ended(run_id)["status"] == "completed"
    eventually(lambda: not pending(service, either_url), "nothing is left in the queue")
    free = {"all": 1, "taken": 0, "at_work": 0}
    eventually(lambda: slots(service) == free, "no slot is taken", saw=lambda: slots(service))
    for name in [f"{run_id}:1", *errands]:
        assert f"{name} had ended here" in service.log


def slots(service: RunningService) -> object:
    return service.admin("status")["slots"]


def refused_ends(service: RunningService) -> int:
    """Return how often DBOS has reported an error at the end of work."""
    return service.log.count("Exception encountered in background workflow")


def fill(ballast: Path) -> None:
    """Use up all that is left of a disk."""
    free = os.statvfs(ballast.parent)
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        if free.f_bavail > 16:
            os.posix_fallocate(file.fileno(), file.tell(), (free.f_bavail - 16) * free.f_frsize)
        file.seek(0, os.SEEK_END)
        while file.write(bytes(free.f_frsize)):
            pass


def execute(url: str, statements: str) -> None:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.exec_driver_sql(statements)
    engine.dispose()


def pending(service: RunningService, url: str | None) -> set[str]:
    """Return the names of the work that the queue takes for unfinished."""
    database = Database(url or DataFolder(service.data_dir).database_url)
    table = "workflow_status" if url is None else "dbos.workflow_status"
    with database.read() as connection:
        query = sa.text(f"SELECT workflow_uuid FROM {table} WHERE status = 'PENDING'")
        found = set(connection.execute(query).scalars())
    database.close()
    return found
