"""Fetching history from the real service, killed, limited and told to fail on the way."""

import contextlib
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import CommandLine, Inside
from tests.service_process import RunningService, start_service
from tests.waiting import eventually

RUNS = 1_200


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a history of forty days, most of it dense."""
    running = start_service(
        tmp_path_factory.mktemp("service"),
        settings="[limits]\nrequests_per_minute = 1000000\n",
        arguments=["--lab", "--no-worker"],
    )
    for seed, span in ((1, "40d"), (2, "3h")):
        in_lab(running, "POST", "/runs", {"organization": "acme", "runs": RUNS // 2, "seed": seed, "span": span})
    yield running
    running.stop()


def in_lab(service: RunningService, method: str, path: str, document: Any = None) -> None:
    url = service.base_url.removesuffix("/v1") + "/_lab" + path
    headers = {"Authorization": f"Bearer {service.lab_token}"}
    httpx.request(method, url, headers=headers, json=document, timeout=120, trust_env=False).raise_for_status()


@pytest.fixture
def line(tmp_path: Path, service: RunningService) -> CommandLine:
    return Inside(tmp_path, service.base_url, service.admin_token)


def ids(line: CommandLine, *options: str) -> set[str]:
    return {run["run_id"] for run in line("runs", "list", "--all", "--json", *options).json()["runs"]}


def stored(line: CommandLine) -> int:
    """How many runs the cache holds, asked while another process fills it."""
    for file in line.home.glob("data/*/cache.sqlite3"):
        with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(file)) as connection:
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    return 0


def test_a_command_killed_in_the_middle_goes_on_where_it_was(line: CommandLine) -> None:
    """Killed with -9, again and again: in the end every run of the service is held, and few were fetched twice."""
    fetched = [0]
    for _ in range(2):
        process = line.begin("runs", "sync", "--days", "100", "--json")
        eventually(lambda: stored(line) > fetched[-1], "more runs are held")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        fetched.append(len(ids(line, "--cached")))
    last = line("runs", "sync", "--days", "100", "--json").json()

    assert last["held"] == RUNS
    assert last["fetched"] <= RUNS - fetched[-1]
    assert ids(line, "--cached") == ids(line)


def test_faults_on_the_way_are_told_and_cost_nothing_that_came_before(
    line: CommandLine, service: RunningService
) -> None:
    """The command ends with the failure's exit code; the next one goes on, and waits out a limit."""
    after = {"kind": "delay", "delay_s": 0.01, "times": 12}
    for fault in (after, {"kind": "reset"}, after, {"kind": "status", "status": 429, "retry_after": "3"}):
        in_lab(service, "POST", "/faults", {"operation": "list_runs", **fault})

    assert line("runs", "sync", "--days", "100", "--json").code == 8
    assert 500 < len(ids(line, "--cached")) < RUNS
    assert line("runs", "sync", "--days", "100", "--json").code == 0
    assert ids(line, "--cached") == ids(line)
