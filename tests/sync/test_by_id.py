"""A run that is not here is looked for at the service: newest first, and nothing is asked for twice."""

import signal
from datetime import timedelta

from tests.cli.conftest import CommandLine
from tests.sync.conftest import Desk, habits
from tests.sync.peer import SECOND, Answer, Archive

HOUR = timedelta(hours=1)


def _with_history(desk: Desk, count: int = 400) -> str:
    """A run older than what a first poll reads; its id."""
    desk.peer.put("run_ancient", created=desk.peer.now - 20 * HOUR, updated=desk.peer.now - 19 * HOUR)
    desk.peer.fill(count, until=desk.peer.now - HOUR, every=10 * SECOND)
    desk.poll(first_runs=200)
    assert "run_ancient" in desk.missing()
    return "run_ancient"


@habits(
    "as the spec says",
    "filter on updated",
    "local time without an offset",
    "filter ignored",
    "times that cannot be read",
)
def test_a_run_that_is_not_here_is_fetched(desk: Desk) -> None:
    """By its id or the beginning of it, from any service."""
    _with_history(desk)
    shown = desk.facts("runs", "show", "run_anc")

    assert (shown["run"]["run_id"], shown["source"]) == ("run_ancient", "live")


def test_the_cache_alone_asks_nothing(desk: Desk) -> None:
    """`--cached` says that the run is not here, and how to ask."""
    run_id = _with_history(desk)
    desk.peer.asked()
    result = desk.run("runs", "show", run_id, "--cached", "--json")

    assert (result.code, desk.peer.asked()) == (7, 0)
    assert "Leave out --cached" in result.json()["error"]["message"]


def test_what_was_searched_once_is_not_searched_again(desk: Desk) -> None:
    """An id that the service does not have costs the history once; then it is here."""
    _with_history(desk)
    first = desk.run("runs", "wait", "run_of_nowhere", "--json")
    desk.peer.asked()
    second = desk.run("runs", "wait", "run_of_nowhere", "--json")

    assert (first.code, second.code) == (7, 7)
    assert "The service has no run run_of_nowhere" in second.json()["error"]["message"]
    assert desk.peer.asked() <= 2
    assert not desk.missing()


def test_a_failure_on_the_way_keeps_what_came(desk: Desk) -> None:
    """The next one goes on from there."""
    run_id = _with_history(desk, 1_500)
    before = desk.missing()
    desk.peer.before(12, lambda: Answer(500, {"message": "Out of order."}))
    result = desk.run("runs", "show", run_id, "--json")
    kept = desk.missing()

    assert result.code == 8
    assert kept < before
    assert desk.facts("runs", "show", run_id)["run"]["run_id"] == run_id


def test_ctrl_c_keeps_what_came(desk: Desk) -> None:
    """Exit code 130; what was fetched until then is here."""
    run_id = _with_history(desk, 1_500)
    before = desk.missing()
    command = CommandLine(desk.folder, desk.peer.base_url, "test-token")
    desk.peer.before(12, lambda: process.send_signal(signal.SIGINT))
    process = command.begin("runs", "show", run_id, "--json")
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert desk.missing() < before


def test_a_run_that_the_service_does_not_show_just_now_is_dated(desk: Desk) -> None:
    """What no answer confirmed is not passed off as live."""
    desk.peer.archive = Archive(range(1_500), newest=desk.peer.now - 2 * HOUR)
    desk.peer.put("run_old", "working", created=desk.peer.now - 5 * HOUR, created_at="yesterday")
    desk.run("runs", "list", "--all")
    del desk.peer.runs["run_old"]
    shown = desk.facts("runs", "show", "run_old")
    told = desk.run("runs", "show", "run_old").err

    assert (shown["run"]["observed"]["state"], shown["source"]) != ("current", "live")
    assert shown["as_of"] == shown["run"]["observed"]["last_seen_at"]
    assert shown["source"] == "live" or "as it was last seen" in told
