"""Maintenance mode, and readiness that a process only claims when it can work."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from tests.service.conftest import UNBOXED, Api, Make
from tests.service_process import command as administer
from tests.service_process import refused_start
from tests.waiting import eventually


def test_maintenance_finishes_turns_and_begins_none(start: Make, tmp_path: Path) -> None:
    """A run is accepted, shows what it waits for, and starts after the maintenance, even over a restart.

    A killed turn does not continue before that, and shows the reason.
    """
    api, go_on = start(settings=UNBOXED), tmp_path / "go-on"
    working, interrupted = at_work(api, go_on), at_work(api, tmp_path / "later")
    api.service.admin("maintenance", "New disks until 14:00.")
    waiting = api.start("Look at it.")

    eventually(lambda: status(api)["slots"]["all"] == 0, "no worker offers a slot")
    assert (status(api)["maintenance"], status(api)["safe_to_stop"]) == ("New disks until 14:00.", False)
    go_on.touch()
    assert api.ended(working)["status"] == "completed"
    assert reason(api, waiting) == "maintenance: New disks until 14:00."
    api.service.kill()
    api.service.restart()
    eventually(lambda: status(api)["workers"] and status(api)["safe_to_stop"], "nothing is at work")
    assert (status(api)["slots"]["all"], reason(api, waiting)) == (0, "maintenance: New disks until 14:00.")
    says_why = lambda: reason(api, interrupted).startswith("it was interrupted, and continues when")  # noqa: E731
    eventually(says_why, "it says why it waits", saw=lambda: api.run(interrupted))

    (tmp_path / "later").touch()
    api.service.admin("maintenance", "--end")

    assert [api.ended(one)["status"] for one in (waiting, interrupted)] == ["completed"] * 2
    assert (status(api)["maintenance"], status(api)["safe_to_stop"]) == (None, False)


def at_work(api: Api, go_on: Path) -> str:
    """Return a run whose agent waits for a file."""
    run_id = api.start(f"wait {go_on}")
    eventually(lambda: "scribe at work" in api.log(run_id), "the agent has started")
    return run_id


def status(api: Api) -> dict[str, Any]:
    return api.service.admin("status")


def reason(api: Api, run_id: str) -> str:
    return str(api.turns(run_id)[-1]["reason"])


def test_a_process_that_cannot_execute_is_never_ready(tmp_path: Path) -> None:
    """If the queue does not work, the service prints no ready line and exits with the reason in its log."""
    administer(tmp_path, "migrate")
    with contextlib.closing(sqlite3.connect(tmp_path / "service.sqlite")) as connection:
        connection.execute("DROP TABLE workflow_status")
    done = refused_start(tmp_path, "serve", "--port", "0")

    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "workflow_status" in done.stderr
