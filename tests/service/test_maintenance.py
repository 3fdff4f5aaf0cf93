"""Maintenance and drained machines: turns at work finish, nothing new begins, and `status` tells when to stop."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from tests.service.conftest import UNBOXED, Api
from tests.service_process import ROOT
from tests.waiting import eventually

Start = Callable[..., Api]


def test_in_maintenance_turns_at_work_finish_and_no_other_begins(start: Start, tmp_path: Path) -> None:
    """A run is accepted, says what it waits for, and begins when the maintenance ends, over a restart too.

    One that a kill interrupts meanwhile does not go on before that, and says so.
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
    says_why = lambda: reason(api, interrupted).startswith("it was interrupted, and goes on when")  # noqa: E731
    eventually(says_why, "it says why it waits")

    (tmp_path / "later").touch()
    api.service.admin("maintenance", "--end")

    assert [api.ended(one)["status"] for one in (waiting, interrupted)] == ["completed"] * 2
    assert (status(api)["maintenance"], status(api)["safe_to_stop"]) == (None, False)


def test_a_drained_machine_begins_nothing_until_its_worker_is_started_again(start: Start, tmp_path: Path) -> None:
    """The command returns once nothing is at work there."""
    api, go_on = start(settings=UNBOXED), tmp_path / "go-on"
    working = at_work(api, go_on)
    arguments = [sys.executable, "-m", "service", "worker", "--drain", "--data-dir", str(api.service.data_dir)]
    draining = Popen(arguments, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True, env=os.environ)
    assert draining.stderr is not None
    assert draining.stderr.readline() == f"{socket.gethostname()}: 1 turn still at work\n"
    waiting = api.start("Look at it.")
    assert draining.poll() is None

    go_on.touch()
    said = draining.communicate(timeout=60)[0]

    assert (draining.returncode, api.ended(working)["status"]) == (0, "completed")
    assert said == f"{socket.gethostname()}: nothing is at work; its workers can be stopped\n"
    assert reason(api, waiting) == "every worker is drained"
    api.service.stop()
    api.service.restart()
    assert api.ended(waiting)["status"] == "completed"


def at_work(api: Api, go_on: Path) -> str:
    """Return a run whose agent waits for a file."""
    run_id = api.start(f"wait {go_on}")
    eventually(lambda: "scribe at work" in api.log(run_id), "the agent has started")
    return run_id


def status(api: Api) -> dict[str, Any]:
    return api.service.admin("status")


def reason(api: Api, run_id: str) -> str:
    return str(api.turns(run_id)[-1]["reason"])
