"""The work of a turn that pushed nothing: it is kept as a patch, and the next turn can begin with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Api, Own
from tests.service_process import git, put_hook
from tests.waiting import COLD_START_S, eventually

WORKER = """
import json, os, pathlib, sys, time
task = json.load(sys.stdin)
report = {"begun": task.get("starting_point"), "files": sorted(path.name for path in pathlib.Path(".").glob("*.txt"))}
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps({"summary": json.dumps(report)}))
for step in task["instructions"].split("; "):
    word, *rest = step.split(" ")
    if word == "write": pathlib.Path(rest[0]).write_text(" ".join(rest[1:]) + "\\n")
    if word == "delete": pathlib.Path(rest[0]).unlink()
    if word == "fail": sys.exit(3)
    if word == "wait":
        print("at work", flush=True)
        time.sleep(10_000)
"""
HANGING = """#!/bin/sh
[ -e late.txt ] && exit 0
echo late > late.txt
sleep 10000
"""


@pytest.fixture
def at_work(own: Own, tmp_path: Path) -> tuple[Api, Path]:
    """An organization with a repository of its own, and an agent that does as it is told."""
    api, bare = own()
    api.add_agent(tmp_path, "worker", WORKER, "--org", api.organization["slug"])
    return api, bare


def told(turn: dict[str, Any]) -> dict[str, Any]:
    """What the worker found when it began: what it was told, and the files."""
    return dict(json.loads(turn["summary"]))


def continued(api: Api, run_id: str, words: str, start_from: str = "") -> dict[str, Any]:
    """Give a run another turn, and return the run when it has ended."""
    api.follow(run_id, words, start_from=start_from)
    return api.ended(run_id)


def ran(api: Api, words: str, agent: str = "worker") -> str:
    """Start a run and return its id when it has ended."""
    run_id = api.begin(agent, instructions=words)
    api.ended(run_id)
    return run_id


def test_a_turn_that_ran_out_of_time_is_finished_by_the_next(own: Own, tmp_path: Path) -> None:
    """Its change is the turn's diff, is not pushed, and is what the next turn begins with by itself."""
    api, bare = own()
    script = tmp_path / "hanging.sh"
    script.write_text(HANGING, "utf-8")
    owner = api.organization["slug"]
    api.service.admin("agent", "add", "hanging", "--argv", f"/bin/sh {script}", "--timeout-s", "3", "--org", owner)
    run_id = api.begin("hanging", instructions="go")
    failed = api.ended(run_id)
    patch = api.get(f"/external/runs/{run_id}/turns/1/diff")
    branches = git("branch", "--format=%(refname:short)", cwd=bare).split()
    again = api.follow(run_id, "go on")
    done = api.ended(run_id)
    first, second = api.turns(run_id)

    assert (failed["status"], again.status_code, done["status"]) == ("failed", 201, "completed"), api.log(run_id, 2)
    assert branches == ["main"], "nothing of it was pushed"
    assert (first["failure_kind"], first["commit"]) == ("timed_out", None)
    assert (first["files"], first["additions"], first["from_turn"]) == (1, 1, None)
    assert "+late" in patch.text
    assert patch.headers["Runwarden-Base"] == git("rev-parse", "main", cwd=bare)
    assert "Runwarden-Head" not in patch.headers
    assert (second["from_turn"], second["files"]) == (1, 1)
    assert git("show", f"{done['branch_name']}:late.txt", cwd=bare) == "late"
    assert "Turn 1 was not finished: what it changed is in the checkout" in api.log(run_id, 2)


@pytest.mark.parametrize("start_from", ["branch", ""])
def test_a_caller_says_what_a_turn_begins_with(at_work: tuple[Api, Path], start_from: str) -> None:
    """By default with what was kept, whatever the failure was; either way the agent is told what stands."""
    api, bare = at_work
    run_id = ran(api, "write done.txt ok")
    continued(api, run_id, "write half.txt half; delete done.txt; fail")
    done = continued(api, run_id, "write more.txt more", start_from)
    _, failed, last = api.turns(run_id)
    pushed = git("ls-tree", "--name-only", done["branch_name"], cwd=bare).split()
    report = told(last)

    assert (failed["failure_kind"], failed["commit"], failed["files"]) == (None, None, 2)
    if start_from != "branch":
        assert (report["files"], last["from_turn"]) == (["half.txt"], 2)
        assert report["begun"]["from"] == "patch"
        assert pushed == ["README.md", "half.txt", "more.txt"]
    else:
        assert (report["files"], last["from_turn"]) == (["done.txt"], None)
        assert report["begun"]["text"] == (
            "Turn 2 was not finished, and its changes were dropped: the checkout is as the branch is."
        )
        assert pushed == ["README.md", "done.txt", "more.txt"]


@pytest.mark.parametrize("moved", ["in the same place", "rewritten"])
def test_a_patch_meets_a_branch_that_moved(at_work: tuple[Api, Path], tmp_path: Path, moved: str) -> None:
    """It is merged; conflicts are marked and named; only where its base is gone it is dropped, and that is said."""
    api, bare = at_work
    run_id = api.begin("worker", instructions="write done.txt one")
    run = api.ended(run_id)
    continued(api, run_id, "write done.txt two; write half.txt half; fail")
    clone, identity = tmp_path / "clone", ("-c", "user.name=t", "-c", "user.email=t@t.example")
    git("clone", "--quiet", "--branch", run["branch_name"], str(bare), str(clone), cwd=tmp_path)
    if moved == "rewritten":
        git("checkout", "--quiet", "--orphan", "other", cwd=clone)
        (clone / "done.txt").unlink()
    (clone / "other.txt").write_text("three\n")
    if moved == "in the same place":
        (clone / "done.txt").write_text("three\n")
    git("add", "--all", cwd=clone)
    git(*identity, "commit", "--quiet", "-m", "moved", cwd=clone)
    git("push", "--quiet", "--force", "origin", f"HEAD:{run['branch_name']}", cwd=clone)
    done = continued(api, run_id, "write more.txt more")
    report = told(api.turns(run_id)[2])
    text = git("show", f"{done['branch_name']}:done.txt", cwd=bare) if moved != "rewritten" else ""

    if moved == "rewritten":
        assert report["begun"]["text"].startswith("What turn 2 changed does not fit the branch any longer, and its")
        assert (report["begun"]["from"], report["files"]) == ("branch", ["other.txt"])
    else:
        assert report["begun"]["from"] == "patch"
        assert {"half.txt", "other.txt"} <= set(report["files"])
        assert "resolve the conflicts marked in done.txt" in report["begun"]["text"]
        assert "<<<<<<<" in text


def test_a_branch_that_is_gone_is_said_to_be_gone(at_work: tuple[Api, Path]) -> None:
    """The agent may remember what it pushed there."""
    api, bare = at_work
    run_id = api.begin("worker", instructions="write done.txt ok")
    branch = api.ended(run_id)["branch_name"]
    continued(api, run_id, "write half.txt half; fail")
    git("branch", "-D", branch, cwd=bare)
    continued(api, run_id, "write more.txt more", "patch")
    report, text = told(api.turns(run_id)[2]), f"The branch {branch} is gone, and was made again from main: what "

    assert report["begun"]["text"].startswith(f"{text}earlier turns pushed is there only if it was merged. ")
    assert (report["begun"]["from"], report["files"]) == ("patch", ["half.txt"])
    assert text in api.log(run_id, 3)


def test_a_patch_without_its_secret_is_dropped_and_said(own: Own, tmp_path: Path) -> None:
    """What a change takes out may be a secret, which is stored nowhere: not for want of a branch that fits."""
    api, _ = own({"keys.txt": "one\ns3cr3t\n"})
    api.add_agent(tmp_path, "worker", WORKER, "--org", api.organization["slug"], "--env", "SECRET")
    run_id = ran(api, "write keys.txt one; fail")
    patch = api.get(f"/external/runs/{run_id}/turns/1/diff").text
    continued(api, run_id, "write more.txt more", "patch")
    first, second = api.turns(run_id)

    assert (first["files"], "-[masked]" in patch, "s3cr3t" in patch) == (1, True, False)
    assert told(second)["begun"]["text"].startswith(
        "What turn 1 changed takes out a secret, which its patch masks, and"
    )


def test_what_a_cancelled_turn_changed_is_kept(at_work: tuple[Api, Path]) -> None:
    """And not begun with, unless somebody wants it."""
    api, _ = at_work
    run_id = api.begin("worker", instructions="write half.txt half; wait")
    eventually(lambda: "at work" in api.log(run_id), "the agent is at work", COLD_START_S)
    api.post(f"/external/runs/{run_id}/cancel", {})
    eventually(lambda: api.turns(run_id)[0]["files"] == 1, "the change is kept")
    patch = api.get(f"/external/runs/{run_id}/turns/1/diff").text
    continued(api, run_id, "write more.txt more", "patch")
    first, second = api.turns(run_id)

    assert (first["outcome"], "+half" in patch) == ("cancelled", True)
    assert told(second)["files"] == ["half.txt"]


def test_a_change_whose_push_failed_is_kept_over_further_failures(at_work: tuple[Api, Path]) -> None:
    """Those of turns that began with it, whether their agents began or not."""
    api, bare = at_work
    hook = put_hook(bare, "pre-receive", "echo no; exit 1")
    run_id = ran(api, "write half.txt half")
    hook.unlink()
    away = bare.with_name("away")
    bare.rename(away)
    continued(api, run_id, "write more.txt more", "patch")
    away.rename(bare)
    continued(api, run_id, "write last.txt last; fail")
    continued(api, run_id, "write end.txt end")
    first, second, third, fourth = api.turns(run_id)

    assert ("the push was refused" in first["reason"], first["files"]) == (True, 1)
    assert (second["outcome"], second["files"], second["from_turn"]) == ("failed", None, 1)
    assert (third["outcome"], third["from_turn"]) == ("failed", 1)
    assert (fourth["outcome"], fourth["from_turn"], told(fourth)["files"]) == ("completed", 3, ["half.txt", "last.txt"])


def test_a_turn_that_never_began_leaves_what_was_kept_before_it(at_work: tuple[Api, Path]) -> None:
    """The next turn begins as it would have without that one, and is told so."""
    api, _ = at_work
    run_id = api.begin("worker", instructions="write half.txt half; fail")
    branch = api.ended(run_id)["branch_name"]
    # Turns of one branch wait for each other.
    other = api.begin("worker", fields={"branch_name": branch}, instructions="wait")
    eventually(lambda: "at work" in api.log(other), "the branch is in use", COLD_START_S)
    api.follow(run_id, "never", start_from="patch")
    for one in (run_id, other):
        api.post(f"/external/runs/{one}/cancel", {})
    answer = api.follow(run_id, "write more.txt more", start_from="patch")
    api.ended(run_id)
    _, never, last = api.turns(run_id)
    report = told(last)

    assert (never["outcome"], never["started_at"], answer.status_code) == ("cancelled", None, 201)
    assert (report["files"], last["from_turn"]) == (["half.txt"], 1)
    assert report["begun"]["text"].startswith("Turn 1 was not finished")


def test_a_refused_change_is_shown_and_nothing_is_begun_with_that_was_not_kept(at_work: tuple[Api, Path]) -> None:
    """A wish that cannot be met is refused before the run is queued."""
    api, _ = at_work
    run_id = ran(api, "write Jenkinsfile x")
    first = api.turns(run_id)[0]
    patch = api.get(f"/external/runs/{run_id}/turns/1/diff").text
    other = ran(api, "fail")
    refused = api.follow(other, "go", start_from="patch")
    odd = api.follow(other, "go", start_from="elsewhere")
    reference = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
    new = api.post("/external/runs?start_from=patch", {"instructions": "go", "repository": reference})

    assert ("change.protected" in first["reason"], first["files"], "b/Jenkinsfile" in patch) == (True, 1, True)
    assert (refused.status_code, refused.json()["error_code"]) == (409, "nothing_kept")
    assert [(one.status_code, one.json()["error_code"]) for one in (odd, new)] == [(400, "invalid_query")] * 2
    assert api.turns(other)[0]["files"] == 0


def test_an_agent_without_the_document_is_told_in_its_instructions(own: Own, tmp_path: Path) -> None:
    """One sentence in front of them; they are stored as they were given."""
    api, bare = own()
    script = tmp_path / "echoing.sh"
    script.write_text('echo "$1" > told.txt; case "$1" in fail*) exit 3;; esac\n', "utf-8")
    owner = api.organization["slug"]
    api.service.admin("agent", "add", "echoing", "--argv", f"/bin/sh {script} {{instructions}}", "--org", owner)
    run_id = ran(api, "fail", "echoing")
    done = continued(api, run_id, "go on")
    told = git("show", f"{done['branch_name']}:told.txt", cwd=bare)

    assert told == ("Turn 1 was not finished: what it changed is in the checkout, and not committed yet.\n\ngo on")
    assert api.turns(run_id)[1]["instructions"] == "go on"
