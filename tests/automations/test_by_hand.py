"""Telling a bot of new rules: only what is certainly a bot gets the signal."""

import subprocess
import sys

import pytest

from app.automations.bot import hand_over
from tests.automations.test_acting import service
from tests.cli.conftest import lone

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
