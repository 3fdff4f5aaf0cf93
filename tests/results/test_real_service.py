"""The real service: both sources tell the same of a run, and either does without the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.results.repository import git
from tests.service_process import RunningService, start_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    running = start_service(tmp_path_factory.mktemp("service"))
    yield running
    running.stop()


def test_both_sources_tell_the_same_change(service: RunningService, tmp_path: Path) -> None:
    """Two turns, each from git and from the service: patch and commits agree, and the service's applies as well."""
    home = Inside(tmp_path, service.base_url, service.admin_token)
    start = ("runs", "start", "-R", "acme/api", "--branch", "agent/both", "--wait", "--json", "Note it")
    run_id = home(*start).json()["run"]["run_id"]
    assert home("runs", "continue", run_id, "--wait", "--json", "And again").code == 0
    (tmp_path / "config.toml").write_text(f'[repositories]\n"acme/api" = "{service.repositories["acme/api"]}"\n')
    with_git = Inside(
        tmp_path, service.base_url, service.admin_token, {"RUNWARDEN_CONFIG": str(tmp_path / "config.toml")}
    )

    for turn in (("--turn", "1"), ("--turn", "2"), ()):
        told = [each("runs", "diff", run_id, *turn) for each in (home, with_git)]
        documents = [each("runs", "diff", run_id, *turn, "--json").json() for each in (home, with_git)]
        assert told[0].out == told[1].out != ""
        assert [document["source"] for document in documents] == ["service", "git"]
        assert documents[0]["head"] == documents[1]["head"]
        assert documents[0]["files"] == documents[1]["files"]
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--branch", "main", str(service.repositories["acme/api"]), "checkout")
    applied = home("runs", "apply", run_id, "-C", str(checkout), "--json").json()
    refused = home("runs", "checkout", run_id, "--json")

    assert (applied["files"], applied["source"]) == (len(documents[0]["files"]), "service")
    assert (refused.code, "add it under [repositories]" in refused.json()["error"]["message"]) == (7, True)
