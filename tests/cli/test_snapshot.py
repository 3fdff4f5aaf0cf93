from tests.cli.conftest import CommandLine
from tests.lab import Lab


def test_without_a_terminal_the_console_is_a_snapshot_of_the_newest_runs(boarded: CommandLine, board: Lab) -> None:
    """After the first sync, with exit code 0, under both of its names: counts first, then a table."""
    for number, status in enumerate(["completed", "working", "queued", "working"] * 10):
        board.put(f"run_{number:02}", status, created=number)
    board.health = {"github": {"status": "degraded"}}

    named, result = boarded("console"), boarded()
    lines = result.out.splitlines()

    for each in (named, result):
        assert (each.code, each.err, boarded.base_url in each.out, "live" in each.out) == (0, "", True, True)
    assert "20 working  10 queued  0 failed/24h" in lines
    assert any(line.startswith("github degraded since") for line in lines)
    shown = [line.split()[-1] for line in lines if "run_" in line]
    assert shown == [f"run_{number}" for number in range(39, 19, -1)]
    assert "… and 20 more: runwarden runs list" in lines


def test_a_snapshot_of_a_service_that_is_down_shows_what_was_seen(
    boarded: CommandLine, board: Lab, lone: CommandLine
) -> None:
    """Old rows stay, marked stale, and the exit code says why. Without one answer nothing is said to be missing."""
    never = lone(RUNWARDEN_DATA_DIR=str(lone.home / "empty")).out
    board.put("run_1", "working", created=0)
    boarded()
    board.fail_from = 0

    result = boarded()

    assert result.code == 5
    assert "run_1" in result.out
    assert "stale since" in result.out
    assert "slow down" in result.err
    for words in ("never seen", "code hosts: not seen yet", "No runs yet."):
        assert words in never
