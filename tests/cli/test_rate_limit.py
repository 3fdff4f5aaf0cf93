"""Commands keep to what any process was told to wait: each of them is a fresh one."""

import re

from tests.cli.conftest import CommandLine
from tests.fault_server import FaultServer, Respond

PAGE = Respond(200, {"runs": [], "page_size": 10, "next_token": None, "total_count": 0})


def test_a_second_command_sends_nothing_until_the_wait_is_over(faulty: CommandLine, server: FaultServer) -> None:
    """It ends with the exit code of a rate limit and says until when."""
    server.script(Respond(429, {"message": "slow down"}, {"Retry-After": "60"}))
    first, second, health = faulty("runs", "list"), faulty("runs", "list", "--json"), faulty("health")
    error = second.json()["error"]

    assert (first.code, second.code, health.code) == (5, 5, 3)
    assert len(server.requests) == 1
    assert error["kind"] == "rate_limited"
    assert 30 < error["retry_after_s"] <= 60
    assert re.search(r"asked to wait until \d\d:\d\d:\d\d", error["message"])


def test_a_short_wait_is_waited_out(faulty: CommandLine, server: FaultServer) -> None:
    """A second or two end no script."""
    server.script(Respond(429, {"message": "slow down"}, {"Retry-After": "1"}), PAGE, PAGE)

    assert faulty("runs", "list").code == 0
    assert faulty("runs", "list").code == 0
