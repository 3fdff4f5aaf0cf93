"""What a command keeps to: the service's clock, and the wait that any process was told."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import Received, Respond, Server

SECONDS = timedelta(seconds=20)


def by_its_clock(server: Server, ahead: timedelta) -> None:
    """The server answers, each time dated by that clock; its one run was made five minutes ago."""

    def answer(request: Received) -> Respond:
        now = datetime.now(UTC) + ahead
        dated = {"Date": format_datetime(now, usegmt=True)}
        if "health" in request.path:
            return Respond(200, {"code_hosting": {"github": {"status": "ok"}}}, dated)
        made = (now - timedelta(minutes=5)).isoformat()
        run = {"run_id": "run_1", "status": "working", "branch_name": "main", "created_at": made, "updated_at": made}
        run["repository"] = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
        return Respond(200, {"runs": [run], "page_size": 10, "next_token": None, "total_count": 1}, dated)

    server.otherwise = answer


@pytest.mark.parametrize(
    ("ahead", "said"), [(timedelta(hours=2), "2h00m ahead of"), (timedelta(hours=-3), "3h00m behind"), (SECONDS, "")]
)
def test_health_says_that_the_clocks_disagree(faulty: CommandLine, server: Server, ahead: timedelta, said: str) -> None:
    """On a separate line and in JSON, even of what is cached; seconds are noise."""
    by_its_clock(server, ahead)

    out = faulty("health").out
    assert ("clock" in out) == bool(said)
    assert not said or f"The service's clock is {said} this machine's." in out
    for more in ((), ("--cached",)):
        found = faulty("health", "--json", *more).json()["clock_ahead_s"]
        assert found == pytest.approx(ahead.total_seconds() if said else 0, abs=30)


def test_a_run_is_as_old_as_its_service_says(faulty: CommandLine, server: Server) -> None:
    """Five minutes, although our clock is two hours behind; when it was seen is said by our own."""
    by_its_clock(server, timedelta(hours=2))
    faulty("runs", "list")
    listed, shown = faulty("runs", "list", "--cached").out, faulty("runs", "show", "run_1", "--cached").out

    assert "5m ago" in listed
    assert any("last seen" in line and "s ago" in line for line in shown.splitlines())


PAGE = Respond(200, {"runs": [], "page_size": 10, "next_token": None, "total_count": 0})


def test_a_second_command_sends_nothing_until_the_wait_is_over(faulty: CommandLine, server: Server) -> None:
    """It exits with the code of a rate limit and says until when; a second or two it waits out."""
    server.script(Respond(429, {"message": "slow down"}, {"Retry-After": "1"}), PAGE, PAGE)
    server.script(Respond(429, {"message": "slow down"}, {"Retry-After": "60"}))
    short = [faulty("runs", "list").code for _ in range(2)]
    first, second, health = faulty("runs", "list"), faulty("runs", "list", "--json"), faulty("health")
    error = second.json()["error"]

    assert short == [0, 0]
    assert (first.code, second.code, health.code) == (5, 5, 3)
    assert len(server.requests) == 4
    assert error["kind"] == "rate_limited"
    assert 30 < error["retry_after_s"] <= 60
    assert re.search(r"asked to wait until \d\d:\d\d:\d\d", error["message"])
