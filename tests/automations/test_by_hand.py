"""Telling a bot of new rules: only what is certainly a bot gets the signal."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from app.automations.bot import hand_over, process_of
from storage.records.decision import Occurrence
from tests.automations.test_acting import Service, automation, configured, service
from tests.cli.conftest import CommandLine, Inside, lone

__all__ = ["lone", "service"]

# Not `sigwait`: while it waits, the kernel shows the signal as one that is not held.
HOLDS = """
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
print(end=".", flush=True)
while not signal.sigpending():
    time.sleep(0.01)
print("heard")
"""
DIES = "import sys; print(end='.', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("argv", "is_told"),
    [
        (["app", "watch"], True),
        (["/usr/bin/runwarden", "--profile", "acme", "watch"], True),
        (["-m", "app.demo.live", "/tmp/demo"], True),
        (["app", "watch", "--once"], False),
        (["/usr/bin/watch", "ls"], False),
        (["app", "console"], False),
    ],
)
def test_only_a_bot_is_told(argv: list[str], is_told: bool) -> None:
    """Another process of that number would end of the signal, as would a bot that works once."""
    with subprocess.Popen([sys.executable, "-c", HOLDS, *argv], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "."
        was_told = hand_over(process.pid)
        if not was_told:
            process.kill()
        heard = process.stdout.read()

    assert (was_told, heard) == (is_told, "heard\n" if is_told else "")
    assert not hand_over(process.pid)


def test_a_bot_that_does_not_listen_yet_is_not_ended() -> None:
    """It has not come to handle the signal: its default would end it."""
    argv, pipe = [sys.executable, "-c", DIES, "-m", "app.demo.live", "/tmp/demo"], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "."
        assert not hand_over(process.pid)
        process.communicate("")

    assert process.returncode == 0


@pytest.mark.parametrize(("owner", "expected"), [("4711-abc", 4711), (None, None), ("host-1", None)])
def test_the_lease_names_its_process(owner: str | None, expected: int | None) -> None:
    """As the bot that took it calls itself."""
    assert process_of(owner) == expected


def test_what_is_set_off_twice_at_one_moment_acts_once_and_says_so(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second command ends with a message, and without a traceback."""
    configured(service, tmp_path, automation('{ command = ["true"] }'))
    cli = Inside(tmp_path, "", "", {"RUNWARDEN_CONFIG": str(tmp_path / "config.toml")})
    at_once = Occurrence("asked:now", datetime.now(UTC))
    monkeypatch.setattr("app.automations.bot.occurrence_asked_for", AsyncMock(return_value=at_once))
    first, second = (cli("automations", "run", "r", "--run", "run_1") for _ in range(2))

    assert (first.code, second.code) == (0, 2)
    assert "set off at this very moment" in second.err


def test_an_approval_that_another_person_was_faster_with_is_not_claimed(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejected between the look and the answer: the command says that it no longer waits."""
    configured(service, tmp_path, automation('{ command = ["true"] }', "approval = true"))
    cli = Inside(tmp_path, "", "", {"RUNWARDEN_CONFIG": str(tmp_path / "config.toml")})
    at_once = Occurrence("asked:now", datetime.now(UTC))
    monkeypatch.setattr("app.automations.bot.occurrence_asked_for", AsyncMock(return_value=at_once))
    assert '"waiting"' in cli("automations", "run", "r", "--run", "run_1", "--json").out
    monkeypatch.setattr("storage.state.State.take", AsyncMock(return_value=False))
    late = cli("automations", "approve", "1")

    assert (late.code, "no longer waits" in late.err) == (7, True)


@pytest.mark.parametrize("command", ["automations approve", "automations log --limit", "notify ack"])
def test_a_number_that_no_row_can_have_is_a_mistake_of_usage(lone: CommandLine, command: str) -> None:
    """It ends with its range, and without a traceback."""
    found = lone(*command.split(), str(2**63))

    assert (found.code, "is not in the range" in found.err) == (2, True)
