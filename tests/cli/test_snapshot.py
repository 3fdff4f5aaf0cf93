from tests.cli.conftest import CommandLine
from tests.lab import Lab


def test_without_a_terminal_the_console_is_a_snapshot_of_the_newest_runs(boarded: CommandLine, board: Lab) -> None:
    """After the first sync, counts first, then a table. Old rows stay, marked stale, and the exit code says why."""
    never = boarded(RUNWARDEN_DATA_DIR=str(boarded.home / "empty"), RUNWARDEN_BASE_URL="http://127.0.0.1:9/v1").out
    for number, status in enumerate(["completed", "working", "queued", "working"] * 10):
        board.put(f"run_{number:02}", status, created=number)
    board.health = {"github": {"status": "degraded"}}
    named, result = boarded("console"), boarded()
    board.fail_from = 0
    stale = boarded()
    lines = result.out.splitlines()

    for each in (named, result):
        assert (each.code, each.err, boarded.base_url in each.out, "live" in each.out) == (0, "", True, True)
    assert "20 working  10 queued  0 failed/24h" in lines
    assert any(line.startswith("github degraded since") for line in lines)
    shown = [line.split()[-1] for line in lines if "run_" in line]
    assert shown == [f"run_{number}" for number in range(39, 19, -1)]
    assert "… and 20 more: runwarden runs list" in lines
    assert (stale.code, "run_39" in stale.out, "stale since" in stale.out, "slow down" in stale.err) == (5, *[True] * 3)
    for words in ("never seen", "code hosts: not seen yet", "No runs yet."):
        assert words in never
