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


def test_both_sources_tell_the_same_change(real: CommandLine, with_git: CommandLine) -> None:
    """From git and from the service: patch, files and commit agree."""
    start = ("runs", "start", "-R", "acme/api", "--branch", "agent/both", "--wait", "--json", "Note it")
    run_id = real(*start).json()["run"]["run_id"]
    told = [each("runs", "diff", run_id, "--patch", "--json").json() for each in (real, with_git)]
    refused = real("runs", "checkout", run_id, "--json")

    assert [document.pop("source") for document in told] == ["service", "git"]
    assert [document["patch"] for document in told] == [told[0]["patch"]] * 2 != [""] * 2
    assert [told[0][name] for name in ("head", "files")] == [told[1][name] for name in ("head", "files")]
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
    done = real("runs", "continue", run_id, "--from-patch", "--wait", "--json", "Finish it").json()
    sent = real("actions", "show", done["action_id"], "--json").json()["action"]
    viewed = real("runs", "view", run_id, "--json").json()

    assert [(one["pushed"], one["source"], one["files"][0]["path"]) for one in documents] == [
        (False, "service", "half.txt")
    ] * 2
    assert (tmp_path / "checkout" / "half.txt").read_text() == "half\n"
    assert "Not pushed: turn 1 left it as a patch." in applied.err
    assert done["run"]["status"] == "completed"
    assert sent["path"] == "/external/runs?start_from=patch"
    assert [turn["from_turn"] for turn in viewed["turns"]] == [None, 1]
