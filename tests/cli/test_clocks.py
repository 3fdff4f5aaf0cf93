"""A service whose clock is hours away from this machine's."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tests.cli.conftest import CommandLine
from tests.fault_server import FaultServer, Received, Respond


def by_its_clock(server: FaultServer, ahead: timedelta) -> None:
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
    ("ahead", "said"), [(timedelta(hours=2), "2h00m ahead of"), (timedelta(hours=-3), "3h00m behind")]
)
def test_health_says_that_the_clocks_disagree(
    faulty: CommandLine, server: FaultServer, ahead: timedelta, said: str
) -> None:
    """In a line of its own and in JSON; what is cached still knows it."""
    by_its_clock(server, ahead)

    assert f"The service's clock is {said} this machine's." in faulty("health").out
    for more in ((), ("--cached",)):
        found = faulty("health", "--json", *more).json()["clock_ahead_s"]
        assert found == pytest.approx(ahead.total_seconds(), abs=30)


def test_a_run_is_as_old_as_its_service_says(faulty: CommandLine, server: FaultServer) -> None:
    """Five minutes, although our clock is two hours behind; when it was seen is said by our own."""
    by_its_clock(server, timedelta(hours=2))
    faulty("runs", "list")
    listed, shown = faulty("runs", "list", "--cached").out, faulty("runs", "show", "run_1", "--cached").out

    assert "5m ago" in listed
    assert any("last seen" in line and "s ago" in line for line in shown.splitlines())


def test_clocks_that_agree_are_not_spoken_of(faulty: CommandLine, server: FaultServer) -> None:
    """Seconds are noise."""
    by_its_clock(server, timedelta(seconds=20))

    assert "clock" not in faulty("health").out
    assert faulty("health", "--json").json()["clock_ahead_s"] == 0
