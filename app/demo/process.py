"""The demo's service: a process of its own, which ends when the demo does, however that ends."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GRACE_S: Final = 15.0
"""How long the service may take to end in order before it is killed."""


class DemoError(Exception):
    """The demo could not be set up; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A running service."""

    process: subprocess.Popen[str]
    base_url: str

    def stop(self) -> None:
        """Ends it in order, or by force when that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def administer(arguments: list[str]) -> dict[str, object]:
    """Runs one of the service's administration commands and returns the JSON document it prints.

    Raises:
        DemoError: The command failed.
    """
    done = subprocess.run(
        # -P: a folder called `service` where the person happens to stand is not ours.
        [sys.executable, "-P", "-m", "service", *arguments],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise DemoError(f"The demo's service could not be set up: {done.stderr.strip() or done.stdout.strip()}")
    document: dict[str, object] = json.loads(done.stdout)
    return document


def last_lines(log: Path) -> str:
    """The end of the service's log, which says why it ended."""
    return " / ".join(log.read_text(errors="replace").splitlines()[-3:])


def start(data_dir: Path, log: Path) -> ServiceProcess:
    """Starts the service on a free loopback port and returns once it accepts connections.

    Raises:
        DemoError: It ended before it was ready.
    """
    arguments = ["serve", "--data-dir", str(data_dir), "--port", "0", "--stop-with-stdin"]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service", *arguments],
            # The service holds the other end of stdin: should the demo be killed, the service notices and ends.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # A Ctrl-C at the terminal is the console's to handle; the service is ended by the demo.
            start_new_session=True,
        )
    assert process.stdout is not None  # noqa: S101 — Popen was given a pipe
    line = process.stdout.readline()
    if not line:
        status = process.wait()
        raise DemoError(
            f"The demo's service ended with status {status} before it was ready. Its log ends: {last_lines(log)}"
        )
    return ServiceProcess(process, str(json.loads(line)["base_url"]))
