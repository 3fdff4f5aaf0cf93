"""The demo's world: repositories, a service process set up for them, and a configuration that points at it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.api.requests import Json
from app.config import Profile, Settings, load
from app.demo.repositories import REPOSITORIES, make
from app.text import safe_block

GRACE_S: Final = 15.0
"""Seconds before the service is killed."""
LOG_LINES: Final = 10
"""Lines of the service's log that an error shows."""


class DemoError(Exception):
    """The demo could not be set up; the message says what to do."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = safe_block("\n".join(log.splitlines()[-LOG_LINES:]))
        """The end of what the service said, which tells why it ended."""


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A running service."""

    process: subprocess.Popen[str]
    base_url: str

    def stop(self) -> None:
        """Stop it, by force if it takes too long."""
        self.process.terminate()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def administer(arguments: list[str]) -> dict[str, object]:
    """Run an administration command of the service and return its JSON document.

    Raises:
        DemoError: The command failed.
    """
    done = subprocess.run(
        # -P: a folder called `service` in the current directory is not ours.
        [sys.executable, "-P", "-m", "service", *arguments],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise DemoError("The demo's service could not be set up.", done.stderr or done.stdout)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def start(data_dir: Path, log: Path) -> ServiceProcess:
    """Start the service on a free loopback port and wait until it accepts connections.

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
            f"The demo's service ended with status {status} before it was ready.", log.read_text(errors="replace")
        )
    return ServiceProcess(process, str(json.loads(line)["base_url"]))


REVIEWER: Final = ("{python}", "-P", "-m", "service.reviewer")
AGENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "reviewer": REVIEWER,
    "security-review": (*REVIEWER, "--input", "focus=security"),
    "housekeeping": (*REVIEWER, "--input", "focus=style"),
}
"""Name to command: the reviewer that ships, as it is and with a narrower eye."""
OFFER: Final = "PARTNER-DEMO"


@dataclass(frozen=True, slots=True)
class World:
    """A running demo."""

    folder: Path
    service: ServiceProcess
    token: str
    repositories: Mapping[str, Path]
    """Name to bare repository."""

    @property
    def service_dir(self) -> Path:
        """The service's data folder."""
        return _service_dir(self.folder)

    @property
    def log(self) -> Path:
        """The service's log."""
        return _log(self.folder)

    def announcement(self) -> str:
        """The line that scripts read first (DESIGN section 5)."""
        return json.dumps(
            {
                "base_url": self.service.base_url,
                "token": self.token,
                "data_dir": str(self.service_dir),
                "repositories": [{"name": name, "path": str(path)} for name, path in self.repositories.items()],
                "agents": list(AGENTS),
                "outbox": str(self.service_dir / "outbox"),
            }
        )

    def configuration(self) -> tuple[Settings, Profile]:
        """The settings of a console that looks at this world."""
        settings = load(self.folder / "config.toml", {})
        return settings, settings.profile()


def build(folder: Path) -> World:
    """Create the repositories, then set up and start the service.

    Raises:
        DemoError: The service could not be set up or started.
        subprocess.CalledProcessError: git failed.
    """
    repositories = {repository.name: make(repository, folder / "repositories") for repository in REPOSITORIES}
    setup = folder / "service-setup.json"
    setup.write_text(json.dumps(_setup(folder / "repositories"), indent=2), encoding="utf-8")
    token = _token(administer(["apply", str(setup), "--data-dir", str(_service_dir(folder)), "--json"]))
    service = start(_service_dir(folder), _log(folder))
    _configure(folder, service.base_url, token)
    return World(folder, service, token, repositories)


def _service_dir(folder: Path) -> Path:
    return folder / "service"


def _log(folder: Path) -> Path:
    return folder / "service.log"


def _setup(repositories: Path) -> dict[str, Json]:
    """The input of `runwarden service apply`."""
    organization: dict[str, Json] = {
        "name": "Acme Demo",
        "slug": "acme",
        "entitlements": ["ServiceAPI", "CreateOrganizations"],
        "tokens": [{"alias": "demo", "scopes": ["admin"]}],
        "hosts": [
            {"platform": "github", "probe": "git", "clone_url": f"{repositories}/github/{{path}}.git"},
            {
                "platform": "gitlab",
                "probe": "git",
                "clone_url": f"{repositories}/gitlab/{{path}}.git",
                "host": "gitlab.acme.example",
                "group": "platform",
            },
        ],
        "repositories": [{"name": each.name, "platform": each.platform, "path": each.name} for each in REPOSITORIES],
    }
    return {
        "organizations": [organization],
        "offers": [{"code": OFFER, "kind": "partner"}],
        "agents": [{"name": name, "argv": list(argv)} for name, argv in AGENTS.items()],
    }


def _token(applied: dict[str, Any]) -> str:
    return str(applied["organizations"][0]["tokens"][0]["value"])


def _configure(folder: Path, base_url: str, token: str) -> None:
    secret = folder / "token"
    with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token)
    (folder / "config.toml").write_text(
        f"data_dir = {json.dumps(str(folder / 'client'))}\n\n"
        "[poll]\nruns_s = 2\nhealth_s = 5\n\n"
        "[repositories]\n"
        f'"*" = {json.dumps(f"{folder}/repositories/github/{{path}}.git")}\n'
        f'"gitlab:*" = {json.dumps(f"{folder}/repositories/gitlab/{{path}}.git")}\n\n'
        f"[profiles.demo]\nbase_url = {json.dumps(base_url)}\ntoken_file = {json.dumps(str(secret))}\n",
        encoding="utf-8",
    )
