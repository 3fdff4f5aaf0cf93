"""Streams that are closed, or full: what was asked is done all the same, and reported truthfully."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import Lab


def redirected(process: CommandLine, redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = " ".join(f"'{word}'" for word in process.argv(*arguments))
    return subprocess.run(
        ["bash", "-c", f"{command} {redirection}"],
        env=process.environment,
        cwd=process.home,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_without_streams_does_what_it_is_asked_for(lone: CommandLine) -> None:
    """A job started with its streams closed has the exit code of its work; what is meant for stdout is in no file."""
    done = redirected(lone, "<&- >&- 2>&-", "runs", "list", "--cached", "--json")

    assert (done.returncode, done.stdout) == (0, "")
    files = [path for path in (lone.home / "data").rglob("*.sqlite3") if path.stat().st_size]
    assert files
    assert all(path.read_bytes().startswith(b"SQLite format 3\0") for path in files)
    assert lone("runs", "list", "--cached", "--json").json()["count"] == 0


def test_a_reader_that_has_seen_enough_ends_a_long_output(boarded: CommandLine, board: Lab) -> None:
    """More than a pipe holds: 141, as of any program that SIGPIPE ends, and nothing on stderr."""
    for number in range(300):
        board.put(f"run_{number}", "completed", created=number)

    done = redirected(boarded, "| head -c 1 > /dev/null; echo ${PIPESTATUS[0]}", "runs", "list", "--all", "--json")

    assert (done.stdout.strip(), done.stderr) == ("141", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_has_no_room_is_a_failure_of_its_own(lone: CommandLine) -> None:
    """Neither success nor any other code of the contract: 74, with the reason, and no traceback."""
    done = redirected(lone, ">/dev/full", "config", "check")

    assert (done.returncode, "Traceback" in done.stderr) == (74, False)
    assert "No space left on device" in done.stderr
