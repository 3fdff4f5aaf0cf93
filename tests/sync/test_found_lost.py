"""A run that lives is never declared lost, however the service shows, stores and filters its times."""

from datetime import timedelta

from tests.sync.conftest import Desk, habits
from tests.sync.peer import SECOND, TICK, Peer


def _with_an_old_working_run(peer: Peer) -> None:
    """300 runs; the oldest one is still at work."""
    peer.put("run_old", "working", created=peer.now - timedelta(hours=8) + 123_456 * TICK)
    peer.fill(300)


@habits()
def test_a_run_that_ended_out_of_sight_is_found(desk: Desk) -> None:
    """No sweep shows it any more; the look-up finds how it ended."""
    _with_an_old_working_run(desk.peer)
    desk.poll()
    desk.peer.move("run_old", "completed")
    desk.poll(2)
    run = desk.held()["run_old"]

    assert (run["status"], run["observed"]["state"]) == ("completed", "current")


@habits()
def test_a_run_that_is_gone_is_lost(desk: Desk) -> None:
    """It is not shown by any request that shows its neighbours; what it was last stays."""
    _with_an_old_working_run(desk.peer)
    desk.poll()
    del desk.peer.runs["run_old"]
    desk.poll(2)
    run = desk.held()["run_old"]

    assert (run["status"], run["observed"]["state"]) == ("working", "lost")


@habits()
def test_waiting_for_a_run_ends_when_it_ends(desk: Desk) -> None:
    """`runs wait` sees it at work, and then completed."""
    _with_an_old_working_run(desk.peer)
    desk.poll()
    ends(desk.peer, "run_old", after=3)

    assert desk.run("runs", "wait", "run_old", "--timeout", "60s", "--json").code == 0


@habits()
def test_a_started_run_is_waited_for(desk: Desk) -> None:
    """`runs start --wait` follows the run that it has just started."""
    desk.peer.fill(5)
    ends(desk.peer, "run_00005", after=3)
    result = desk.run("runs", "start", "-R", "acme/api", "--wait", "--timeout", "60s", "--json", "Do it.")

    assert result.code == 0


def ends(peer: Peer, run_id: str, *, after: int) -> None:
    """The run completes just before a later list request is answered."""
    peer.before(after, lambda: peer.move(run_id, "completed", updated=peer.now + 2 * SECOND))
