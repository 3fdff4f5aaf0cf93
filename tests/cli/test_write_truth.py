"""A write's exit code and document never contradict the ledger, whatever else fails, streams included."""

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL
from unittest.mock import patch

import pytest

from storage import database
from tests.cli.conftest import CREATE, CommandLine
from tests.lab import ORGANIZATION, RUN, Drop, Hang, Received, Respond, Server
from tests.program import MAX_S, Program
from tests.waiting import eventually

START = ("runs", "start", "-R", "acme/api", "--json", "Review")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for locks for a moment only."""
    monkeypatch.setattr(database, "BUSY_WAIT_S", 0.05)
    monkeypatch.setattr("app.actions.actions.RETRY_S", 0.0)


@pytest.fixture
def locked(faulty: CommandLine, server: Server, name: str) -> Iterator[sqlite3.Connection]:
    """Locks the ledger from the moment the POST arrives."""
    faulty("runs", "list", "--cached")
    (path,) = (faulty.home / "data").rglob(name)
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as connection:

        def lock(_: Received) -> Respond:
            connection.execute("BEGIN EXCLUSIVE")
            return Respond(201, RUN)

        server.otherwise = lock
        yield connection


@pytest.mark.parametrize(
    ("name", "command", "turns", "code"),
    [
        ("cache.sqlite3", START, ["completed"], 0),
        ("cache.sqlite3", ("runs", "continue", "run_1", "Go on", "--json"), ["completed", "working", "failed"], 1),
    ],
)
def test_a_run_that_was_not_cached_is_waited_for(
    faulty: CommandLine, server: Server, locked: sqlite3.Connection, command: tuple[str, ...], turns: list[str],
    code: int,
) -> None:  # fmt: skip
    """The write is confirmed with a warning. Waiting asks the service, and ignores the turn before."""
    lock, turns, last = server.otherwise, [*turns], turns[-1]

    def answer(received: Received) -> Respond:
        if received.method == "POST":
            return lock(received)
        if locked.in_transaction:
            locked.execute("ROLLBACK")
        run = {**RUN, "status": turns[0], "updated_at": f"2026-05-01T12:0{9 - len(turns)}:00Z"}
        turns[:] = turns[1:] or turns
        return Respond(200, {"runs": [run], "next_token": None, "total_count": 1, "page_size": 100})

    server.otherwise = answer
    if "continue" in command:
        faulty("runs", "list", "--limit", "1")
    result = faulty(*command, "--wait")

    document = result.json()
    assert (result.code, document["state"], document["run"]["status"]) == (code, "confirmed", last)
    assert document["action_id"]
    assert ["cache.sqlite3" in warning for warning in document["warnings"]] == [True]
    assert "warning: The run is not in the cache" in result.err


@pytest.mark.parametrize("name", ["ledger.sqlite3"])
def test_a_write_is_unknown_if_its_outcome_was_not_recorded(faulty: CommandLine, locked: sqlite3.Connection) -> None:
    """Exit code 6 with the action's id and the service's answer.

    Once the process is dead, the ledger says unknown too.
    """
    result = faulty("--profile", "environment", *START)
    locked.execute("ROLLBACK")
    locked.execute("UPDATE actions SET owner_json = json_set(owner_json, '$[0]', ?)", (2**22 + 1,))

    document = result.json()
    shown = faulty("actions", "show", document["action_id"], "--json").json()["action"]
    assert (result.code, document["state"], document["run"]) == (6, "unknown", None)
    assert (document["error"]["kind"], "confirmed run_1" in document["error"]["message"]) == ("not_recorded", True)
    assert (
        f"runwarden --profile environment actions resolve {document['action_id']} --created run_1"
        in document["error"]["message"]
    )
    assert shown["state"] == "unknown"


def test_a_second_signal_ends_a_write_at_once(faulty: CommandLine, server: Server) -> None:
    """The ledger may be unable to record the outcome; the next command then finds it unknown."""
    faulty("actions", "list")
    (path,) = (faulty.home / "data").rglob("ledger.sqlite3")
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as connection:

        def lock(_: Received) -> Hang:
            connection.execute("BEGIN EXCLUSIVE")
            return Hang()

        server.otherwise = lock
        process = faulty.begin(*START)
        server.wait_for(1)
        eventually(lambda: connection.in_transaction, "the server locks the ledger")

        def ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.returncode is not None

        eventually(ended, "a second signal ends the command", pause_s=0.2)
        connection.execute("ROLLBACK")
    out, _ = process.communicate()

    assert (process.returncode, out) == (-signal.SIGINT, "")
    assert [action["state"] for action in faulty("actions", "list", "--json").json()["actions"]] == ["unknown"]


def test_a_failure_after_a_write_does_not_report_it_unsent(faulty: CommandLine, server: Server) -> None:
    """A failing close is a warning. If interrupted before the document is printed, the error includes the outcome."""
    server.otherwise = lambda _: Respond(201, ORGANIZATION)
    known = ("confirmed", "not_sent", "interrupted", "the disk is gone")
    for place, error, code, words in (
        ("app.actions.command_writes.print_write", KeyboardInterrupt(), 130, ["confirmed", "interrupted"]),
        ("app.cli.output.Output.record", KeyboardInterrupt(), 130, []),
        ("storage.cache.cache.Cache.close", OSError("the disk is gone"), 0, ["confirmed", "the disk is gone"]),
    ):
        with patch(place, side_effect=error):
            result = faulty("orgs", "create", f"{len(server.posts)}@example.com", "--json")
        assert (result.code, [word for word in known if word in result.out]) == (code, words), place


def test_the_ledger_is_readable_without_a_cache(faulty: CommandLine, server: Server) -> None:
    """The ledger can be listed on a full disk. A cache of another version is replaced, with one note on stderr."""
    server.script(Drop())
    action_id = faulty(*CREATE).json()["action_id"]
    (cache,) = (faulty.home / "data").rglob("cache.sqlite3")
    cache.unlink()
    cache.mkdir()

    found = [faulty(*command, "--json") for command in (("actions", "list"), ("actions", "export"), ("orgs", "list"))]
    assert [(each.code, action_id in each.out) for each in found] == [(0, True)] * 3
    cache.rmdir()
    with closing(sqlite3.connect(cache)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    first, again = (faulty("runs", "list", "--cached", "--json", RUNWARDEN_TOKEN="") for _ in range(2))
    assert (first.code, again.code, first.json()["runs"], again.err) == (0, 0, [], "")
    assert "made by another version" in first.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("stdout", "stderr", "step", "code"),
    [
        ("gone", "", Respond(201, ORGANIZATION), 0),
        ("", "full", Respond(201, ORGANIZATION), 0),
        ("full", "full", Respond(201, ORGANIZATION), 74),
        ("full", "gone", Drop(), 6),
    ],
)
def test_an_unwritable_stream_does_not_change_a_writes_exit_code(
    faulty: CommandLine, server: Server, stdout: str, stderr: str, step: Respond | Drop, code: int
) -> None:
    """A closed pipe or a full disk neither prevents the write nor hides its outcome."""
    server.script(step)
    gone, writing = os.pipe()
    os.close(gone)
    with os.fdopen(writing, "wb") as unread, Path("/dev/full").open("wb") as full:
        ends = {"gone": unread.fileno(), "full": full.fileno(), "": DEVNULL}
        streams = (DEVNULL, ends[stdout], ends[stderr])
        ended = Program(CREATE[:-1], faulty.environment, cwd=faulty.home, streams=streams).wait(MAX_S)

    assert (ended, len(server.posts)) == (code, 1)


@pytest.mark.parametrize("content", [b"no database " * 500, None])
def test_an_unusable_ledger_reports_not_sent(faulty: CommandLine, server: Server, content: bytes | None) -> None:
    """With a corrupt or newer ledger the document says `not_sent`; readable rows are listed with a warning."""
    server.script(Respond(201, ORGANIZATION))
    faulty(*CREATE)
    (ledger,) = (faulty.home / "data").rglob("ledger.sqlite3")
    if content is None:
        with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
            connection.execute("INSERT INTO _sqlite_migrations VALUES (99, 'ledger', '0099_future', '')")
    else:
        Path(ledger).write_bytes(content)

    result, listed = faulty(*CREATE), faulty("actions", "list", "--json")

    document = result.json()
    assert (result.code, document["state"]) == (2, "not_sent")
    assert document["action_id"] is document["organization"] is None
    assert document["error"]["kind"] == ("database_newer" if content is None else "database_damaged")
    assert listed.code == (0 if content is None else 2)
    assert ("The ledger can only be read" in listed.err) == (content is None)
    assert len(server.posts) == 1


def redirected(line: CommandLine, redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "app", *arguments])
    words = ["bash", "-c", f"{command} {redirection}"]
    return subprocess.run(words, env=line.environment, cwd=line.home, capture_output=True, text=True, check=False)


def test_a_process_without_streams_works(lone: CommandLine) -> None:
    """Without stdin, stdout and stderr the exit code is the work's, and no output ends up in another file."""
    done = redirected(lone, "<&- >&- 2>&-", "runs", "list", "--cached", "--json")

    assert (done.returncode, done.stdout) == (0, "")
    files = [path for path in (lone.home / "data").rglob("*.sqlite3") if path.stat().st_size]
    assert files
    assert all(path.read_bytes().startswith(b"SQLite format 3\0") for path in files)
    assert lone("runs", "list", "--cached", "--json").json()["count"] == 0
