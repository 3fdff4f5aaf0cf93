"""A run that lives is never declared lost, however the service shows, stores and filters its times."""

from datetime import timedelta

from tests.sync.conftest import Desk, habits
from tests.sync.peer import SECOND, TICK, Peer

EXACT = ("as the spec says", "whole seconds shown", "milliseconds shown", "clock two hours behind", "order of updates")
"""Habits of a service whose dates filter by creation, and whose times name their offset."""


def _with_old_working_runs(peer: Peer, *run_ids: str) -> None:
    """300 runs and these, which are the oldest ones and still at work, an hour between them."""
    for n, run_id in enumerate(run_ids):
        peer.put(run_id, "working", created=peer.now - timedelta(hours=8 + n) + 123_456 * TICK)
    peer.fill(300)


@habits(*EXACT)
def test_a_run_that_ended_out_of_sight_is_found_and_one_that_is_gone_is_lost(desk: Desk) -> None:
    """No sweep shows them any more; the look-up finds how one ended, and of the other only its neighbours."""
    _with_old_working_runs(desk.peer, "run_ended", "run_gone")
    desk.poll()
    desk.peer.move("run_ended", "completed")
    del desk.peer.runs["run_gone"]
    desk.poll(2)
    held = desk.held()
    ended, gone = held["run_ended"], held["run_gone"]

    assert (ended["status"], ended["observed"]["state"]) == ("completed", "current")
    assert (gone["status"], gone["observed"]["state"]) == ("working", "lost")


@habits()
def test_where_nothing_proves_it_a_run_is_unconfirmed(desk: Desk) -> None:
    """Whatever the service compares dates with: a run that lives is not called lost, nor its old status current."""
    _with_old_working_runs(desk.peer, "run_ended", "run_gone")
    desk.poll()
    desk.peer.move("run_ended", "completed")
    del desk.peer.runs["run_gone"]
    desk.poll(2)
    ended, gone = (desk.held()[run_id] for run_id in ("run_ended", "run_gone"))

    assert (ended["status"], ended["observed"]["state"]) in {("completed", "current"), ("working", "unconfirmed")}
    assert gone["observed"]["state"] in {"unconfirmed", "lost"}


@habits(*EXACT)
def test_waiting_for_a_run_ends_when_it_ends(desk: Desk) -> None:
    """`runs wait` sees it at work, and then completed."""
    _with_old_working_runs(desk.peer, "run_old")
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
