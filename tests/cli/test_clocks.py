"""What a command keeps to: the service's clock, and the wait that any process was told."""

import re
from datetime import timedelta

import pytest

from storage.values import utc_now
from tests.cli.conftest import CommandLine
from tests.lab import Lab, Respond


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (timedelta(hours=2), "2h00m ahead of"),
        (timedelta(hours=-3), "3h00m behind"),
        (timedelta(seconds=20), ""),
    ],
)
def test_a_clock_that_disagrees_is_reported_and_moves_no_run(
    boarded: CommandLine, board: Lab, ahead: timedelta, said: str
) -> None:
    """By `health`, even of what is cached; seconds are noise. A run is as old as its service says."""
    board.clock, board.clock_offset, board.health = utc_now, ahead, {"github": {"status": "ok"}}
    board.put("run_1", "working", created=utc_now() - timedelta(minutes=5.5))
    out = boarded("health").out
    boarded("runs", "list")
    listed, shown = boarded("runs", "list", "--cached").out, boarded("runs", "show", "run_1", "--cached").out

    assert ("clock" in out) == bool(said)
    assert not said or f"The service's clock is {said} this machine's." in out
    for more in ((), ("--cached",)):
        found = boarded("health", "--json", *more).json()["clock_ahead_s"]
        assert found == pytest.approx(ahead.total_seconds() if said else 0, abs=30)
    assert "5m ago" in listed
    assert any("last seen" in line and "s ago" in line for line in shown.splitlines())


def test_a_second_command_sends_nothing_until_the_wait_is_over(boarded: CommandLine, board: Lab) -> None:
    """It exits with the code of a rate limit and says until when; a second or two it waits out."""
    board.put("run_1", "completed")
    board.script(Respond(429, {"message": "slow down"}, {"Retry-After": "1"}))
    short = [boarded("runs", "list").code for _ in range(2)]
    board.script(Respond(429, {"message": "slow down"}, {"Retry-After": "60"}))
    first, second, health = boarded("runs", "list"), boarded("runs", "list", "--json"), boarded("health")
    error = second.json()["error"]

    assert short == [0, 0]
    assert (first.code, second.code, health.code) == (5, 5, 3)
    assert len(board.requests) == 4
    assert error["kind"] == "rate_limited"
    assert 30 < error["retry_after_s"] <= 60
    assert re.search(r"asked to wait until \d\d:\d\d:\d\d", error["message"])
