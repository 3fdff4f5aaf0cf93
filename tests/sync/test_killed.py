"""The poller's process killed with -9 in the middle of a walk: what it leaves is true, and the next one goes on."""

from datetime import timedelta

import pytest

from tests.cli.conftest import CommandLine
from tests.sync.conftest import Desk

RUNS = 700
KILLS = (1, 3, 7)
"""The request at which each process dies."""


@pytest.mark.parametrize(
    ("command", "peer"),
    [
        (("sync", "--days", "1000"), {}),
        (("sync", "--days", "1000"), {"date_filter": "ignored"}),
        (("sync", "--days", "1000"), {"has_readable_times": False, "paging": "offset"}),
        (("list", "--all"), {}),
    ],
    indirect=["peer"],
)
def test_killed_at_any_request(desk: Desk, command: tuple[str, ...]) -> None:
    """Nothing is called complete that is not, nothing lost that lives; what came stays, and the rest is fetched."""
    desk.peer.fill(RUNS, until=desk.peer.now - timedelta(hours=1))
    line = CommandLine(desk.folder, desk.peer.base_url, "test-token")
    held: set[str] = set()
    for request in KILLS:
        desk.peer.fill(3, "working")
        process = line.begin("runs", *command, "--json")
        desk.peer.before(request, process.kill)
        process.communicate(timeout=300)

        assert process.returncode == -9
        document = desk.facts("runs", "list", "--cached", "--all")
        assert not desk.false_claims(document)
        assert {run["observed"]["state"] for run in document["runs"]} <= {"current", "unconfirmed"}
        assert held <= (held := {run["run_id"] for run in document["runs"]})

    assert desk.run("runs", *command, "--json").code == 0
    assert not desk.missing()
