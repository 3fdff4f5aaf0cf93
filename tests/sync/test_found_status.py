"""A status that is shown as live is the service's own."""

from datetime import timedelta
from typing import Any

import pytest

from tests.sync.conftest import Desk
from tests.sync.peer import SECOND

HOUR = timedelta(hours=1)


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
