import json
import logging
import os
import sys
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from app.__main__ import main
from app.cli.running import OURS
from tests.lab import Lab, Server
from tests.program import ROOT, Program

CREATE = ("orgs", "create", "New.Admin@example.com", "--json")
"""A command that sends a write."""


@dataclass(frozen=True)
class Result:
    """A command's exit code and output."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def outcomes(result: Result) -> dict[str, str]:
    """The outcome in each run's row."""
    return {row["run_id"]: row["outcome"] for row in result.json()["rows"]}


@dataclass(frozen=True)
class CommandLine:
    """`runwarden` with a home folder for this test only, called in the test's process or started as another."""

    home: Path
    base_url: str = "http://127.0.0.1:9/v1"
    token: str = "token-for-tests"
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(ROOT)}
        own |= {"RUNWARDEN_BASE_URL": self.base_url, "RUNWARDEN_TOKEN": self.token}
        return own | {"RUNWARDEN_DATA_DIR": str(self.home / "data")} | self.more

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Result:
        """Run the command until it exits; an empty value unsets a variable."""
        variables = {name: value for name, value in {**self.environment, **environment}.items() if value}
        with (
            patch.dict(os.environ, variables, clear=True),
            # Waits are short in tests, so a command polls often.
            patch("app.runs.command_wait.FIRST_PAUSE_S", 0.05),
            patch("app.runs.command_wait.MAX_PAUSE_S", 0.2),
            patch("app.results.command_results.PAUSE_S", 0.05),
            chdir(self.home),
            CliRunner().isolation(stdin) as (out, err, _),
        ):
            try:
                code = main(arguments)
            except SystemExit as ended:
                # The service's own program replaces this process, and exits like any program.
                code = int(ended.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
        for name in OURS:
            # A real process's signal handlers disappear with it.
            logging.getLogger(name).handlers.clear()
            logging.getLogger(name).setLevel(logging.NOTSET)
        return Result(code, out.getvalue().decode(), err.getvalue().decode())

    def begin(self, *arguments: str, stdin: int = DEVNULL) -> Program:
        return Program(arguments, self.environment, cwd=self.home, streams=(stdin, PIPE, PIPE))


@pytest.fixture
def lone(tmp_path: Path) -> CommandLine:
    """A command line whose service does not run."""
    return CommandLine(tmp_path)


@pytest.fixture
def faulty(tmp_path: Path, server: Server) -> CommandLine:
    """A command line against a server that misbehaves as scripted."""
    return CommandLine(tmp_path, server.base_url)


@pytest.fixture
def boarded(tmp_path: Path, lab: Lab) -> CommandLine:
    """A command line for a service whose runs the test controls."""
    return CommandLine(tmp_path, lab.base_url)
