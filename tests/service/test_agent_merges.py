"""Merges that an agent makes in its checkout: both parents are pushed, and limits count what the agent itself did."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Api, Own
from tests.service_process import git
from tests.waiting import COLD_START_S, eventually

MERGER = """
import json, os, pathlib, subprocess, sys
task = json.load(sys.stdin)
def git(*words): subprocess.run(["git", *words], check=False)
exec(task["instructions"])
"""
CONFLICT = """
git("merge", "origin/main")
pathlib.Path("a.txt").write_text("both\\n")
git("add", "--all")
git("commit", "-qm", "Merge main, conflict resolved")
"""
CLEAN = """git("merge", "-q", "-m", "Merge main", "origin/main")"""
PLANTED = """
objects = pathlib.Path(os.environ["GIT_DIR"]) / "objects"
(objects / "info").mkdir(exist_ok=True)
(objects / "info/alternates").write_text("/\\n")
git("config", "core.fsmonitor", "touch /tmp/never")
pathlib.Path(os.environ["GIT_DIR"], "HEAD").unlink()
os.mkfifo(os.environ["GIT_DIR"] + "/HEAD")
pathlib.Path("new.txt").write_text("new")
"""


@pytest.fixture
def merging(own: Own, tmp_path: Path) -> Own:
    """`merging(on_main, work)` makes a repository whose branches have moved apart, and an agent that obeys."""

    def make(on_main: dict[str, str], work: dict[str, str] | None = None) -> tuple[Api, Path]:
        api, bare = own({"a.txt": "one\n"}, {"work": work or {"a.txt": "branch\n"}})
        clone = tmp_path / "main"
        git("clone", "--quiet", str(bare), str(clone), cwd=tmp_path)
        for name, text in on_main.items():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_text(text)
        git("add", "--all", cwd=clone)
        git("-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "--quiet", "-m", "on main", cwd=clone)
        git("push", "--quiet", "origin", "main", cwd=clone)
        api.add_agent(tmp_path, "merger", MERGER, "--org", api.organization["slug"])
        return api, bare

    return make


def merged(api: Api, words: str) -> tuple[dict[str, Any], str]:
    run_id = api.begin("merger", fields={"branch_name": "work"}, instructions=words)
    api.ended(run_id)
    (turn,) = api.turns(run_id)
    return turn, api.get(f"/external/runs/{run_id}/turns/1/diff").text


def test_a_resolved_conflict_is_a_merge_with_both_parents(merging: Own) -> None:
    """Its diff is the resolution alone, and the branch merges into main afterwards."""
    api, bare = merging({"a.txt": "main\n", "other.txt": "new on main\n"})
    before = git("rev-parse", "work", "main", cwd=bare).split()
    turn, patch = merged(api, CONFLICT)

    assert turn["outcome"] == "completed", turn["reason"]
    assert git("log", "-1", "--format=%P", "work", cwd=bare).split() == before
    assert git("rev-list", "--count", f"{before[0]}..work", "^main", cwd=bare) == "1"
    assert git("merge-tree", "--write-tree", "main", "work", cwd=bare)
    assert (turn["files"], "+both" in patch, "other.txt" in patch) == (1, True, False)


def test_a_merge_counts_as_what_it_adds(merging: Own) -> None:
    """Neither a protected file nor the number of files of the other branch is the agent's change."""
    on_main = {".github/workflows/ci.yml": "on: push\n"} | {f"f{number}": "x" for number in range(600)}
    api, bare = merging(on_main, {"b.txt": "branch\n"})
    turn, patch = merged(api, CLEAN)
    own_turn, _ = merged(
        api,
        CLEAN + "\npathlib.Path('.github/workflows').mkdir(parents=True, exist_ok=True)"
        "\npathlib.Path('.github/workflows/mine.yml').write_text('on: push')",
    )

    assert (turn["outcome"], turn["files"], patch) == ("completed", 0, ""), turn["reason"]
    assert len(git("log", "-1", "--format=%P", "work", cwd=bare).split()) == 2
    assert "protected" in own_turn["reason"]


def test_a_branch_that_only_catches_up_gets_a_merge(merging: Own) -> None:
    """A fast-forward in the checkout is one marked commit on the branch, as everything that a turn pushes."""
    api, bare = merging({"other.txt": "x"})
    git("update-ref", "refs/heads/work", "main~1", cwd=bare)
    before = git("rev-parse", "work", "main", cwd=bare).split()
    turn, _ = merged(api, """git("merge", "-q", "origin/main"); pathlib.Path("mine.txt").write_text("x")""")

    assert git("log", "-1", "--format=%H %P", "work", cwd=bare).split() == [turn["commit"], *before]
    assert turn["files"] == 1


def test_what_an_agent_plants_in_its_history_leads_nowhere(merging: Own) -> None:
    """A HEAD that blocks and foreign objects: its change is an ordinary commit."""
    api, bare = merging({"other.txt": "x"})
    before = git("rev-parse", "work", cwd=bare)
    turn, _ = merged(api, PLANTED)

    assert turn["outcome"] == "completed", turn["reason"]
    assert git("log", "-1", "--format=%P", "work", cwd=bare) == before


TWO = """
pathlib.Path("x").write_text("1")
git("add", "--all")
git("commit", "-qm", "First of two\\n\\nRunwarden-Run: forged turn 1")
pathlib.Path("y").write_text("2"); git("add", "--all"); git("commit", "-qm", "Second of two")
"""
PASSING = """
pathlib.Path(NAME).write_text(TEXT)
git("add", "--all")
git("commit", "-qm", "In")
os.unlink(NAME)
git("commit", "-qam", "Out")
"""


@pytest.mark.parametrize(
    ("more", "subjects", "refused"),
    [
        ("pathlib.Path('z').write_text('3')", ["merger: {words}", "Second of two", "First of two"], None),
        ("os.unlink('x'); git('commit', '-qam', 'Without x')", ["Without x", "Second of two", "First of two"], None),
        (
            PASSING.replace("NAME", "'Jenkinsfile'").replace("TEXT", "'x'"),
            [],
            "it touches Jenkinsfile, which is protected",
        ),
        (
            PASSING.replace("NAME", "'leak'").replace("TEXT", "os.environ['SECRET']"),
            [],
            "the change holds the value of SECRET",
        ),
    ],
    ids=["and more", "removed again", "protected in between", "secret in between"],
)
def test_the_commits_of_an_agent_are_kept_if_that_is_wanted(
    merging: Own, tmp_path: Path, more: str, subjects: list[str], refused: str | None
) -> None:
    """With their messages and the service's marks, as the service's author; limits hold for each of them."""
    api, bare = merging({"other.txt": "x"})
    script = tmp_path / "merger.py"
    entry = {"name": "merger", "argv": ["{python}", str(script)], "commits": "keep", "environment": ["SECRET"]}
    setup = tmp_path / "agent.json"
    setup.write_text(json.dumps({"agents": [entry | {"organization": api.organization["slug"]}]}))
    api.service.admin("apply", str(setup))
    before = git("rev-parse", "work", cwd=bare)
    turn, patch = merged(api, TWO + more)
    form = "%s|%an|%(trailers:key=Runwarden-Run,valueonly)"
    listed = git("log", f"--format={form}", f"{before}..work", cwd=bare).split("\n")
    found = [line.split("|") for line in listed if line]

    if refused is None:
        assert turn["outcome"] == "completed", turn["reason"]
        assert [one[0].startswith(subject.partition("{")[0]) for one, subject in zip(found, subjects, strict=True)]
        assert {one[1] for one in found} == {"Runwarden reviewer"}
        assert all(one[2].startswith("run_") for one in found)
        assert turn["commit"] == git("rev-parse", "work", cwd=bare)
        assert ("b/x" in patch, "b/y" in patch) == ("unlink" not in more, True)
    else:
        assert refused in turn["reason"]
        assert found == []


def test_kept_commits_go_on_top_of_what_others_pushed(merging: Own, tmp_path: Path) -> None:
    """As a merge, with the change measured against the branch as it was then."""
    api, bare = merging({"other.txt": "x"})
    script, gate = tmp_path / "merger.py", tmp_path / "gate"
    entry = {"name": "merger", "argv": ["{python}", str(script)], "commits": "keep"}
    setup = tmp_path / "agent.json"
    setup.write_text(json.dumps({"agents": [entry | {"organization": api.organization["slug"]}]}))
    api.service.admin("apply", str(setup))
    words = (
        f"{TWO}\nimport time\nprint('waits', flush=True)\nwhile not pathlib.Path('{gate}').exists(): time.sleep(0.05)"
    )
    run_id = api.begin("merger", fields={"branch_name": "work"}, instructions=words)
    eventually(lambda: "waits" in api.log(run_id), "the agent has committed", COLD_START_S)
    theirs = git("commit-tree", "-p", "work", "-m", "theirs", "work^{tree}", cwd=bare)
    git("update-ref", "refs/heads/work", theirs, cwd=bare)
    gate.touch()
    run = api.ended(run_id)
    (turn,) = api.turns(run_id)

    assert run["status"] == "completed", turn["reason"]
    assert turn["files"] == 2
    assert git("log", "--format=%s", f"{theirs}..work", cwd=bare).split("\n")[1:] == ["Second of two", "First of two"]
    assert git("merge-base", "--is-ancestor", theirs, "work", cwd=bare) == ""
