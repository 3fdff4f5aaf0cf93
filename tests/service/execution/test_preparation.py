"""A repository's set-up runs before the agent within its own limits, with folders that persist between turns."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pydantic import ValidationError

from service.agents.options import RepositorySetup
from service.execution.agent import give_back, set_up
from service.execution.command import AgentCommand
from service.execution.workspace import Workspace
from service.store.turns import NOTHING_CHANGED
from tests.service.conftest import NEEDS_SANDBOX, Api, Make, Own, placed
from tests.service.git_hosts import push
from tests.service_process import git, make_repository

LOOKS: Final = "cat > /dev/null; { echo $COLOUR $HOME; ls deps/of/it; cat ~/.tools/list; } > seen.txt"


@pytest.fixture
def prepared(tenant: Make, equipped: Any, tmp_path: Path) -> Own:
    """`prepared(setup)` makes an organization with one repository that has this set-up."""
    repository = make_repository(tmp_path / "git" / "api", {"README.md": "# api\n"})

    def begin(setup: dict[str, Any]) -> tuple[Api, Path]:
        agent = {"name": "scribe", "argv": ["sh", "-c", LOOKS]}
        return tenant(on=equipped, repositories=[placed(repository, setup=setup)], agents=[agent]), repository

    return begin


@NEEDS_SANDBOX
def test_a_repository_is_set_up_before_the_agent(prepared: Own) -> None:
    """The set-up gets its variables and is in the log.

    Cached folders persist for the next run, and are never committed.
    """
    steps = ['n=$(ls deps/of/it | wc -l); touch "deps/of/it/$n"', 'echo "$COLOUR $n" >> ~/.tools/list', "touch built"]
    setup = {"run": steps, "cache": ["deps/of/it", "~/.tools"], "variables": {"COLOUR": "blue", "HOME": "/nowhere"}}
    api, repository = prepared(setup)
    turns = [api.work("go", "scribe") for _ in range(2)]
    assert [one["outcome"] for one in turns] == ["completed"] * 2, turns
    seen = [git("show", f"{one['commit']}:seen.txt", cwd=repository) for one in turns]
    committed = git("ls-tree", "-r", "--name-only", turns[1]["commit"], cwd=repository).split()

    assert seen == ["blue /home/agent\n0\nblue 0", "blue /home/agent\n0\n1\nblue 0\nblue 1"]
    assert committed == ["README.md", "seen.txt"]
    assert "set-up: touch built\n" in turns[0]["log"]


def test_a_failed_set_up_is_the_turns_reason(own: Own) -> None:
    """The turn fails with that reason; the agent is not started, and nothing is pushed."""
    setup = {"run": ["echo first", "echo broken; exit 3", "touch never"]}
    api, repository = own(setup=setup | {"mcp_servers": {"docs": {"command": ["docs-mcp"]}}})
    told = api.work("go", "scribe")

    assert (told["outcome"], told["failure_kind"], told["commit"]) == ("failed", "setup_failed", None)
    assert told["reason"].startswith("the repository's set-up failed: it exited with status 3")
    assert "never" not in told["log"].replace("touch never", "")
    assert "the repository's MCP servers are left out: only agents with the preset" in told["log"]
    assert git("branch", "--list", "agent/*", cwd=repository) == ""


SEES: Final = """
seen = {file.name: file.read_text() for file in pathlib.Path(".").glob("*") if file.is_file()}
open(os.environ["RUNWARDEN_RESULT"], "w").write(json.dumps({"summary": json.dumps(seen)}))
"""


def shell(words: str) -> str:
    """Instructions that run a command and fail as it does."""
    return f"subprocess.run({words!r}, shell=True, check=True)"


SET_UP: Final = [
    "echo more >> both",
    "echo more >> prepared",
    "echo made > ü; echo made > made; ln -s made link; mkdir -p folder; echo made > folder/made",
    "chmod +x executed kept",
    "rm gone",
    """mkdir .runwarden; echo '{"question": "Which?"}' > .runwarden/question.json""",
]


def test_changes_of_a_set_up_are_not_committed(own: Own) -> None:
    """The agent sees it, but it is not committed, stored, or taken for a question, so it is not applied twice.

    A file that the agent changes further counts as a whole; undoing and redoing a change does not.
    """
    files = {name: f"{name}\n" for name in ("README.md", "both", "prepared", "executed", "kept", "gone", "edited")}
    api, bare = own(files, setup={"run": SET_UP})
    first = api.work(shell("git stash --all --quiet; git stash pop --quiet"))
    change = "echo mine >> both; echo mine > new; echo mine >> made; chmod -x kept; rm edited; false"
    second = api.go_on(first["run_id"], shell(change))
    kept = api.get(f"/external/runs/{first['run_id']}/turns/2/diff").text
    third = api.go_on(first["run_id"], SEES + shell("rm link"), "patch")
    seen = json.loads(third["summary"])
    pushed = git("diff", "--name-status", "main", third["branch"], cwd=bare).split()

    assert (first["commit"], first["reason"]) == (None, NOTHING_CHANGED)
    assert sorted(re.findall("^diff --git a/(\\S+)", kept, re.MULTILINE)) == ["both", "edited", "made", "new"]
    assert second["files"] == 4
    assert (seen["prepared"], seen["both"]) == ("prepared\nmore\n", "both\nmore\nmine\nmore\n")
    assert pushed == ["M", "both", "D", "edited", "A", "made", "A", "new"]


def test_changes_of_a_failed_set_up_are_not_kept(own: Own) -> None:
    """The change that the turn was to begin with is still kept."""
    api, _ = own(setup={"run": ["echo made > made", "test ! -e new"]})
    first = api.work(shell("echo mine > new; false"))
    turns = [first, *(api.go_on(first["run_id"], "go on", "patch") for _ in range(2))]

    assert [(one["failure_kind"], one["files"], one["from_turn"]) for one in turns] == [
        (None, 1, None),
        ("setup_failed", None, 1),
        ("setup_failed", None, 1),
    ]


@NEEDS_SANDBOX
def test_a_cached_folder_is_never_a_link(prepared: Own) -> None:
    """The repository could have a link in its place that leads anywhere."""
    api, repository = prepared({"run": ["true"], "cache": ["deps"]})
    link = "M 120000 inline deps\ndata 11\n/home/agent\n"
    push(repository, "odd", {}, onto="refs/heads/main", more=link)
    told = api.work("go", "scribe", branch_name="odd")

    assert told["reason"] == "the repository's set-up failed: the cached folder deps is a file or a link here"


def test_a_cached_folder_belongs_to_one_turn_at_a_time(tmp_path: Path) -> None:
    """A simultaneous turn begins with an empty one, and the last to finish keeps its folder."""
    setup, place = RepositorySetup(cache=("deps",)), tmp_path / "caches"

    def turn(name: str, cache: Path | None = place) -> tuple[AgentCommand, Path]:
        agent: Any = SimpleNamespace(options=None)
        nothing: Any = None
        command = AgentCommand(agent, Workspace(tmp_path / name), tmp_path, nothing, nothing, setup=setup)
        set_up(command, cache, nothing, nothing, nothing)
        (folder,) = command.cached_folders
        return command, folder

    def held(folder: Path) -> list[str]:
        return sorted(one.name for one in folder.iterdir())

    first, in_first = turn("first")
    (in_first / "a").touch()
    give_back(first, place)
    second, in_second = turn("second")
    third, in_third = turn("third")
    seen = [held(in_second), held(in_third)]
    (in_third / "b").touch()
    give_back(second, place)
    stranger, in_strangers = turn("stranger", None)
    seen.append(held(in_strangers))
    (in_strangers / "evil").touch()
    give_back(stranger, None)
    give_back(third, place)

    assert seen == [["a"], [], []]
    assert held(turn("last")[1]) == ["b"]


def test_a_set_up_that_cannot_be_is_refused() -> None:
    """A cached folder must be in the checkout or the home; a server must be a command or an https address."""
    for name in ("/etc", "../x", "a/../b", ".git", ".runwarden/x", "", "~/../x"):
        with pytest.raises(ValidationError):
            RepositorySetup(cache=(name,))
    with pytest.raises(ValidationError, match="write paths in the repository"):
        RepositorySetup.model_validate({"sparse": ["../x"]})
    both, clear = {"command": ["x"], "url": "https://a.test"}, {"url": "http://a.test"}
    for server in ({}, both, clear, {"command": ["x"], "env": {"A": "b"}}):
        with pytest.raises(ValidationError):
            RepositorySetup.model_validate({"mcp_servers": {"docs": server}})
