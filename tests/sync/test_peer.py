"""The scripted peer itself: what the other tests lean on."""

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.sync.conftest import Desk
from tests.sync.peer import MINUTE, SECOND, Archive, Peer


def listed(peer: Peer, **query: str) -> dict[str, Any]:
    target = "/v1/external/runs?" + "&".join(f"{name}={value}" for name, value in query.items())
    answer, _ = peer.answer("GET", target.replace("+", "%2B"), "token", b"")
    return dict(answer.body)


def walked(peer: Peer, **query: str) -> list[str]:
    found, token = [], ""
    while True:
        page = listed(peer, page_token=token, **query)
        found += [run["run_id"] for run in page["runs"]]
        token = page["next_token"]
        if token is None:
            return found


@pytest.mark.parametrize("paging", ["key", "offset"])
def test_following_the_cursor_shows_every_run_once(paging: Any) -> None:
    """Stored and computed runs come in one order, newest first, with either kind of page token."""
    peer = Peer(paging=paging, archive=Archive(range(40), newest=Peer().now - 5 * MINUTE))
    peer.fill(15)

    found = walked(peer, page_size="7")

    assert len(found) == len(set(found)) == 55
    assert found[:6] == ["run_00014", "run_00013", "run_00012", "run_00011", "run_00010", "run_00009"]
    assert sorted(found[6:15]) != found[6:15]


def test_a_million_runs_cost_nothing() -> None:
    """A status and a window of time are found in the computed history without looking through it."""
    peer = Peer(archive=Archive(range(1_000_000)))
    window = {"date_from": peer.shown(peer.now - 90_000 * SECOND), "date_to": peer.shown(peer.now - 60_000 * SECOND)}

    assert listed(peer)["total_count"] == 1_000_000
    assert listed(peer, status="cancelled", **window)["total_count"] == 10_000
    assert len(walked(peer, status="failed", page_size="100", **window)) == 10_000


def test_what_is_shown_is_not_what_is_stored() -> None:
    """Whole seconds and local times hide the instant that the filter compares with."""
    peer = Peer(shown_unit=SECOND, local_offset=timedelta(hours=2))
    peer.put("run", created=peer.now + SECOND / 2)

    assert listed(peer)["runs"][0]["created_at"] == "2026-05-01T14:00:00"
    assert not listed(peer, date_to="2026-05-01T12:00:00.001Z")["runs"]
    assert listed(peer, date_to="2026-05-01T12:00:00.5Z")["runs"]


def test_the_script_and_the_limit_over_the_socket(desk: Desk) -> None:
    """What is scripted happens before its request, and too many requests are refused with a wait."""
    desk.peer.before(1, lambda: desk.peer.put("late", "queued"))
    desk.peer.before(2, lambda: "truncated")
    desk.peer.before(3, lambda: "reset")
    codes = [desk.run("runs", "list", "--json").code for _ in range(3)]
    desk.peer.limit = (2, 60.0)
    refused = json.loads(desk.run("runs", "list", "--json").out)

    assert codes == [0, 8, 8]
    assert desk.held().keys() == {"late"}
    assert 0 < refused["error"]["retry_after_s"] <= 61
