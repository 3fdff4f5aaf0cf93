"""What a command keeps to: the service's clock, and the wait that any process was told."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import RUN, Received, Respond, Server


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (timedelta(hours=2), "2h00m ahead of"),
        (timedelta(hours=-3), "3h00m behind"),
        (timedelta(seconds=20), ""),
    ],
)
def test_a_clock_that_disagrees_is_reported_and_moves_no_run(
    faulty: CommandLine, server: Server, ahead: timedelta, said: str
) -> None:
    """By `health`, even of what is cached; seconds are noise. A run is as old as its service says."""

    def answer(request: Received) -> Respond:
        now = datetime.now(UTC) + ahead
        dated = {"Date": format_datetime(now, usegmt=True)}
        if "health" in request.path:
            return Respond(200, {"code_hosting": {"github": {"status": "ok"}}}, dated)
        made = (now - timedelta(minutes=5.5)).isoformat()
        run = {**RUN, "status": "working", "created_at": made, "updated_at": made}
        return Respond(200, {"runs": [run], "page_size": 10, "next_token": None, "total_count": 1}, dated)

    server.otherwise = answer
    out = faulty("health").out
    faulty("runs", "list")
    listed, shown = faulty("runs", "list", "--cached").out, faulty("runs", "show", "run_1", "--cached").out

    assert ("clock" in out) == bool(said)
    assert not said or f"The service's clock is {said} this machine's." in out
    for more in ((), ("--cached",)):
        found = faulty("health", "--json", *more).json()["clock_ahead_s"]
        assert found == pytest.approx(ahead.total_seconds() if said else 0, abs=30)
    assert "5m ago" in listed
    assert any("last seen" in line and "s ago" in line for line in shown.splitlines())


def test_a_second_command_sends_nothing_until_the_wait_is_over(faulty: CommandLine, server: Server) -> None:
    """It exits with the code of a rate limit and says until when; a second or two it waits out."""
    page = Respond(200, {"runs": [], "page_size": 10, "next_token": None, "total_count": 0})
    waits = [Respond(429, {"message": "slow down"}, {"Retry-After": after}) for after in ("1", "60")]
    server.script(waits[0], page, page, waits[1])
    short = [faulty("runs", "list").code for _ in range(2)]
    first, second, health = faulty("runs", "list"), faulty("runs", "list", "--json"), faulty("health")
    error = second.json()["error"]

    assert short == [0, 0]
    assert (first.code, second.code, health.code) == (5, 5, 3)
    assert len(server.requests) == 4
    assert error["kind"] == "rate_limited"
    assert 30 < error["retry_after_s"] <= 60
    assert re.search(r"asked to wait until \d\d:\d\d:\d\d", error["message"])
