"""Fetching history from the real service, limited and told to fail on the way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import CommandLine, Inside
from tests.service_process import RunningService, start_service

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
