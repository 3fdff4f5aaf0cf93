"""What the real service did although its answer was lost is found, started or continued, and linked by a person."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from tests.service.conftest import Laboratory
from tests.service_process import start_service

IN_API = ("-R", "acme/api")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Laboratory]:
    """A service with its lab open, that works."""
    service = start_service(tmp_path / "service", arguments=["--lab"])
    yield Laboratory(service)
    service.stop()


def test_lost_writes_are_found_again_and_linked(lab: Laboratory, tmp_path: Path) -> None:
    """The start by its branch, the continuation by its conversation; neither is certain."""
    runwarden = Inside(tmp_path, lab.service.base_url, lab.service.admin_token)

    def lost(*arguments: str) -> Any:
        lab.script("start_run", "lose_answer")
        written = runwarden("runs", *arguments, "--json")
        assert written.code == 6
        action_id = written.json()["action_id"]
        return runwarden("actions", "show", action_id, "--candidates", "--json").json()

    started = lost("start", *IN_API, "--branch", "fix/x", "nothing")
    [run] = started["candidates"]
    resolve = ("actions", "resolve", started["action"]["action_id"], "--json")
    doubted = runwarden(*resolve, "--created", run["run_id"][:-1])
    linked = runwarden(*resolve, "--created", run["run_id"])
    ended = runwarden("runs", "wait", run["run_id"], "--json")
    continued = lost("continue", run["run_id"], "nothing")

    assert (run["branch_name"], started["certain"]) == ("fix/x", False)
    assert doubted.json()["error"]["kind"] == "doubtful_id"
    assert (linked.code, linked.json()["run"]) == (0, {"run_id": run["run_id"]})
    assert ended.code in {0, 1}
    assert [each["run_id"] for each in continued["candidates"]] == [run["run_id"]]
