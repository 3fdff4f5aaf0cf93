"""Commands follow the service's clock, and the wait that it asked any process to keep."""

from datetime import timedelta

import pytest

from storage.values import utc_now
from tests.cli.conftest import CommandLine
from tests.lab import Lab


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (timedelta(hours=2), "2h00m ahead of"),
        (timedelta(seconds=20), ""),
    ],
)
def test_a_clock_that_disagrees_is_reported_and_moves_no_run(
    boarded: CommandLine, lab: Lab, ahead: timedelta, said: str
) -> None:
    """`health` reports a clock difference, even with --cached, but not mere seconds.

    Ages of runs use the service's clock.
    """
    lab.clock, lab.clock_offset, lab.health = utc_now, ahead, {"github": {"status": "ok"}}
    lab.put("run_1", "working", created=utc_now() - timedelta(minutes=5.5))
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
