"""The demo's service: set up with its command line, and run as a process. What fails raises `DemoError`."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from app.engine.text import safe_block
from storage import RunwardenError

GRACE_S: Final = 15.0
"""How long the service may take to stop before it is killed."""
LOG_LINES: Final = 10
"""How many lines of the service's log an error shows."""
_PROBE_S: Final = 10.0
_UNSANDBOXED: Final = """\
# Written by the demo: bubblewrap does not work on this machine. The demo's agents are scripts that ship with it.
# Remove this before you add any other agent: it would have all your rights.
[execution]
sandbox = "none"
"""

NO_ACCOUNT: Final = {"ANTHROPIC_AUTH_TOKEN": "the-demo-has-no-account"}
"""A worthless placeholder for the fixer's key, which the fixer holds if there is no sandbox."""


class DemoError(RunwardenError):
    """The demo could not be set up; the message says what to do."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = safe_block("\n".join(log.splitlines()[-LOG_LINES:])) if log else ()
        """The last lines of the service's log, which show why it exited."""


class ServiceProcess(Struct, frozen=True):
    """The demo's service, running as a child process."""

    process: subprocess.Popen[str]
    base_url: str
    lab_token: str = ""
    """The token for the service's lab; empty without a lab."""

    def stop(self) -> None:
        self.process.terminate()
        wait_or_kill(self.process)


def wait_or_kill(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def apply(data_dir: Path, file: Path, order: object) -> dict[str, Any]:
    """Write an order into a file, have the service carry it out, and return the service's JSON document."""
    file.write_text(json.dumps(order, indent=2), "utf-8")
    done = subprocess.run(
        # -P: ignore a folder called `service` in the current directory.
        [sys.executable, "-P", "-m", "service", "apply", str(file), "--data-dir", str(data_dir), "--json"],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | NO_ACCOUNT,
    )
    if done.returncode != 0:
        raise DemoError("The demo's service could not be set up.", done.stderr or done.stdout)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def has_sandbox(data_dir: Path) -> bool:
    """Whether the demo's agents have a sandbox; the demo disables it if bubblewrap does not work."""
    file = data_dir / "service.toml"
    return not file.exists() or _UNSANDBOXED not in file.read_text("utf-8")


@cache
def bubblewrap_works() -> bool:
    """Whether agents can have a sandbox on this machine."""
    isolation = ("--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/")
    try:
        probe = subprocess.run(
            ["bwrap", *isolation, "true"], check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return probe.returncode == 0


def start(data_dir: Path, log: Path, *options: str) -> ServiceProcess:
    """Start the service on loopback and wait until it accepts connections."""
    settings = data_dir / "service.toml"
    if not settings.exists() and not bubblewrap_works():
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.write_text(_UNSANDBOXED, "utf-8")
    arguments = ["serve", "--data-dir", str(data_dir), "--stop-with-stdin", *options]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service", *arguments],
            # The service exits when its stdin closes, even if the demo is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | NO_ACCOUNT,
            # Ctrl-C in the terminal is for the console; the demo stops the service itself.
            start_new_session=True,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        status = process.wait()
        raise DemoError(
            f"The demo's service exited with status {status} before it was ready.", log.read_text(errors="replace")
        )
    started = json.loads(line)
    return ServiceProcess(process, str(started["base_url"]), str(started.get("lab_token", "")))
