"""The real service: both sources tell the same of a run, and either does without the other."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.results.repository import git
from tests.service_process import RunningService


@pytest.fixture
def with_git(real: CommandLine, service: RunningService) -> CommandLine:
    """A command line with the repository configured; `real` asks the service only."""
    config = real.home / "config.toml"
    config.write_text(f'[repositories]\n"acme/api" = "{service.repositories["acme/api"]}"\n')
    return replace(real, more={"RUNWARDEN_CONFIG": str(config)})


def test_both_sources_tell_the_same_change(
    service: RunningService, real: CommandLine, with_git: CommandLine, tmp_path: Path
) -> None:
    """Two turns, each from git and from the service: patch and commits agree, and the service's applies as well."""
    start = ("runs", "start", "-R", "acme/api", "--branch", "agent/both", "--wait", "--json", "Note it")
    run_id = real(*start).json()["run"]["run_id"]
    assert real("runs", "continue", run_id, "--wait", "--json", "And again").code == 0

    for turn in (("--turn", "2"), ()):
        told = [each("runs", "diff", run_id, *turn) for each in (real, with_git)]
        documents = [each("runs", "diff", run_id, *turn, "--json").json() for each in (real, with_git)]
        assert told[0].out == told[1].out != ""
        assert [document["source"] for document in documents] == ["service", "git"]
        assert documents[0]["head"] == documents[1]["head"]
        assert documents[0]["files"] == documents[1]["files"]
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--branch", "main", str(service.repositories["acme/api"]), "checkout")
    applied = real("runs", "apply", run_id, "-C", str(checkout), "--json").json()
    refused = real("runs", "checkout", run_id, "--json")

    assert (applied["files"], applied["source"]) == (len(documents[0]["files"]), "service")
    assert (refused.code, "add it under [repositories]" in refused.json()["error"]["message"]) == (7, True)


def test_a_change_that_was_not_pushed_is_shown_applied_and_gone_on_with(
    service: RunningService, real: CommandLine, with_git: CommandLine, tmp_path: Path
) -> None:
    """Each says that no branch has it; with git configured as well, which does not know of it."""
    (tmp_path / "half").write_text("[ -e half.txt ] && exit 0\necho half > half.txt\nexit 7\n")
    service.admin("agent", "add", "half", "--argv", f"/bin/sh {tmp_path / 'half'}")
    begun = real("agents", "start", "half", "-R", "acme/api", "--wait", "--json").json()
    run_id = begun["execution"]["execution_id"]
    documents = [each("runs", "diff", run_id, "--json").json() for each in (real, with_git)]
    git(tmp_path, "clone", "--quiet", "--branch", "main", str(service.repositories["acme/api"]), "checkout")
    applied = real("runs", "apply", run_id, "-C", str(tmp_path / "checkout"))
    viewed = real("runs", "view", run_id)
    refused = real("runs", "continue", run_id, "--from-branch", "--wait", "--json", "Finish it")
    done = real("runs", "continue", run_id, "--from-patch", "--wait", "--json", "Finish it").json()
    sent = real("actions", "show", done["action_id"], "--json").json()["action"]
    turns = real("runs", "view", run_id, "--json").json()["turns"]

    assert [(one["pushed"], one["source"], one["files"][0]["path"]) for one in documents] == [
        (False, "service", "half.txt")
    ] * 2
    assert (tmp_path / "checkout" / "half.txt").read_text() == "half\n"
    assert "Not pushed: turn 1 left it as a patch." in applied.err
    assert "1 file +1 -0  not pushed" in viewed.out
    assert (refused.code, done["run"]["status"]) == (1, "completed")
    assert sent["path"] == "/external/runs?start_from=patch"
    assert [turn["from_turn"] for turn in turns] == [None, None, 2]
