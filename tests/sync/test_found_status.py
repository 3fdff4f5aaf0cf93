"""A status that is shown as live is the service's own."""

from datetime import timedelta
from typing import Any

import pytest

from app.engine import Engine
from tests.sync.conftest import Desk
from tests.sync.peer import MINUTE, SECOND

HOUR = timedelta(hours=1)


async def read_again(engine: Engine) -> None:
    """Poll, and read the recent past once again."""
    await engine.runs.refresh()
    await engine.reread.whole_pass()


def status_and_state(desk: Desk, run_id: str) -> tuple[str, str]:
    run: dict[str, Any] = desk.held()[run_id]
    return run["status"], run["observed"]["state"]


@pytest.mark.parametrize(
    "backwards",
    [timedelta(0), SECOND / 2, 2 * HOUR],
)
def test_a_change_whose_time_goes_backwards(desk: Desk, backwards: timedelta) -> None:
    """The newest answer has the status, whatever its updated_at."""
    desk.peer.fill(5, until=desk.peer.now - HOUR)
    desk.peer.put("run", "working", created=desk.peer.now - HOUR)
    desk.poll()
    desk.peer.move("run", "failed", updated=desk.peer.now - HOUR - backwards)
    desk.poll()

    assert status_and_state(desk, "run") == ("failed", "current")


def test_the_list_and_the_cache_agree(desk: Desk) -> None:
    """What `runs list` prints is what it keeps."""
    desk.peer.put("run", "working")
    desk.poll()
    desk.peer.move("run", "failed", updated=desk.peer.now - HOUR)
    live = desk.facts("runs", "list")["runs"]
    cached = desk.facts("runs", "list", "--cached")["runs"]

    assert [run["status"] for run in live] == [run["status"] for run in cached] == ["failed"]


def test_a_final_run_that_changed_out_of_sight(desk: Desk) -> None:
    """Continued elsewhere and failed between two polls, far below page 1: reading the past again finds it."""
    desk.peer.fill(300)
    desk.poll()
    desk.peer.move("run_00010", "failed")
    desk.within(read_again)

    assert status_and_state(desk, "run_00010") == ("failed", "current")


def test_final_runs_that_were_deleted(desk: Desk) -> None:
    """On page 1 and far below it: reading the past again finds that they are gone."""
    desk.peer.fill(300)
    desk.poll()
    for run_id in ("run_00010", "run_00011", "run_00298"):
        del desk.peer.runs[run_id]
    desk.within(read_again)

    states = {run_id: run["observed"]["state"] for run_id, run in desk.held().items()}
    assert {run_id for run_id, state in states.items() if state != "current"} == {
        "run_00010",
        "run_00011",
        "run_00298",
    }


def test_all_the_others_stay_current(desk: Desk) -> None:
    """Reading again while new runs arrive calls nothing lost that lives."""
    desk.peer.fill(300)
    desk.poll()
    for page in range(2, 6):
        desk.peer.before(page, lambda: desk.peer.put(f"new_{len(desk.peer.runs)}", "queued"))
    desk.within(read_again)

    assert {run["observed"]["state"] for run in desk.held().values()} == {"current"}


def test_a_run_continued_elsewhere(desk: Desk) -> None:
    """While it is at work again, the sweep shows it, however old it is."""
    desk.peer.fill(300, every=10 * MINUTE)
    desk.poll()
    desk.peer.move("run_00010", "working")
    desk.poll()

    assert status_and_state(desk, "run_00010") == ("working", "current")
