"""Telling a bot of new rules: only what is certainly a bot gets the signal."""

import subprocess
import sys

import pytest

from app.automations.by_hand import hand_over, process_of

LISTENS = "import signal; print(end='.', flush=True); signal.sigwait([signal.SIGHUP]); print('heard')"
BLOCKS = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP]); {LISTENS}"


@pytest.mark.parametrize(
    ("argv", "is_told"),
    [
        (["app", "watch"], True),
        (["/usr/bin/runwarden", "--profile", "acme", "watch"], True),
        (["app", "watch", "--once"], False),
        (["/usr/bin/watch", "ls"], False),
        (["app", "console"], False),
    ],
)
def test_only_a_bot_is_told(argv: list[str], is_told: bool) -> None:  # noqa: FBT001 — a parameter of the test
    """Another process of that number would end of the signal, as would a bot that works once."""
    with subprocess.Popen([sys.executable, "-c", BLOCKS, *argv], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "."
        assert hand_over(process.pid) is is_told
        if not is_told:
            process.kill()
        assert process.stdout.read() == ("heard\n" if is_told else "")

    assert not hand_over(process.pid)


@pytest.mark.parametrize(("owner", "expected"), [("4711-abc", 4711), (None, None), ("host-1", None)])
def test_the_lease_names_its_process(owner: str | None, expected: int | None) -> None:
    """As the bot that took it calls itself."""
    assert process_of(owner) == expected
