"""A status that is shown as live is the service's own."""

from datetime import timedelta
from typing import Any

import pytest

from app.engine import Engine
from tests.sync.conftest import Desk
from tests.sync.peer import SECOND

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


def test_all_the_others_stay_current(desk: Desk) -> None:
    """Reading again while new runs arrive calls nothing lost that lives."""
    desk.peer.fill(300)
    desk.poll()
    for page in range(2, 6):
        desk.peer.before(page, lambda: desk.peer.put(f"new_{len(desk.peer.runs)}", "queued"))
    desk.within(read_again)

    assert {run["observed"]["state"] for run in desk.held().values()} == {"current"}
