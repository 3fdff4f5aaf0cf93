"""A turn that pushes nothing, or asks a question, keeps its work as a patch for the next turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.findings.question import offer, read_question
from tests.service.conftest import OBEYS, Api, Make, Own, placed
from tests.service.git_hosts import push
from tests.service_process import git, put_hook
from tests.waiting import COLD_START_S, eventually, present

WORKER = """
import json, pathlib, sys, time
task = json.load(sys.stdin)
report = {"begun": task.get("starting_point"), "files": sorted(path.name for path in pathlib.Path(".").glob("*.txt"))}
print(json.dumps(report), flush=True)
for step in task["instructions"].split("; "):
    word, *rest = step.split(" ")
    if word == "write": pathlib.Path(rest[0]).write_text(" ".join(rest[1:]) + "\\n")
    if word == "delete": pathlib.Path(rest[0]).unlink()
    if word == "fail": sys.exit(3)
    if word == "wait":
        print("at work", flush=True)
        time.sleep(10_000)
"""


@pytest.fixture
def at_work(own: Own, tmp_path: Path) -> tuple[Api, Path]:
    """An organization with its own repository, and an agent that does what its instructions say."""
    api, bare = own({"keys.txt": "one\ns3cr3t\n"})
    api.add_agent(tmp_path, "worker", WORKER, "--org", api.organization["slug"], "--env", "SECRET")
    return api, bare


def told(turn: dict[str, Any]) -> dict[str, Any]:
    """Return the task and the files that the agent found at its start."""
    found = dict(json.loads(next(line for line in turn["log"].splitlines() if line.startswith("{"))))
    return found | {"files": [name for name in found["files"] if name != "keys.txt"]}


def patch_of(api: Api, run_id: str, turn: int = 1) -> str:
    return api.get(f"/external/runs/{run_id}/turns/{turn}/diff").text


def test_a_failed_turns_change_is_continued_by_the_next(
    at_work: tuple[Api, Path],
) -> None:
    """The change is the turn's diff, is not pushed, and the next turn starts with it by default."""
    api, bare = at_work
    first = api.work("write half.txt half; fail")
    run_id = first["run_id"]
    patch = api.get(f"/external/runs/{run_id}/turns/1/diff")
    branches = git("branch", "--format=%(refname:short)", cwd=bare).split()
    second = api.go_on(run_id, "write done.txt ok")
    third = api.go_on(run_id, "write late.txt late; delete done.txt; fail")
    last = api.go_on(run_id, "write more.txt more", "branch")
    pushed = git("ls-tree", "--name-only", last["branch"], cwd=bare).split()

    assert branches == ["main"], "nothing of it was pushed"
    assert (first["outcome"], first["commit"], first["files"], first["from_turn"]) == ("failed", None, 1, None)
    assert "+half" in patch.text
    assert patch.headers["Runwarden-Base"] == git("rev-parse", "main", cwd=bare)
    assert "Runwarden-Head" not in patch.headers
    assert (second["outcome"], second["from_turn"], second["files"]) == ("completed", 1, 2)
    assert told(second)["begun"]["text"].startswith("Turn 1 was not finished: what it changed is in the checkout")
    assert (third["files"], told(last)["files"], last["from_turn"]) == (2, ["done.txt", "half.txt"], None)
    dropped = "Turn 3 was not finished, and its changes were dropped: the checkout is as the branch is."
    assert told(last)["begun"]["text"] == dropped
    assert pushed == ["done.txt", "half.txt", "keys.txt", "more.txt"]


def test_a_patch_is_merged_with_a_moved_branch(at_work: tuple[Api, Path]) -> None:
    """The patch is merged, and conflicts are marked and named.

    A patch whose base is gone is dropped and reported. A missing branch is reported too, since the agent may remember
    what it pushed there.
    """
    api, bare = at_work
    first = api.work("write done.txt one")
    run_id, branch = first["run_id"], first["branch"]
    api.go_on(run_id, "write done.txt two; write half.txt half; fail")
    push(bare, branch, {"done.txt": "three\n", "other.txt": "three\n"})
    merged = told(api.go_on(run_id, "write more.txt more; fail"))
    conflict = patch_of(api, run_id, 3)
    git("update-ref", f"refs/heads/{branch}", git("commit-tree", "main^{tree}", "-m", "moved", cwd=bare), cwd=bare)
    dropped = told(api.go_on(run_id, "write last.txt last; fail"))
    git("branch", "-D", branch, cwd=bare)
    last = api.go_on(run_id, "write end.txt end", "patch")
    gone = told(last)

    assert (merged["begun"]["from"], merged["files"]) == ("patch", ["done.txt", "half.txt", "other.txt"])
    assert "resolve the conflicts marked in done.txt" in merged["begun"]["text"]
    assert "<<<<<<<" in conflict
    assert dropped["begun"]["text"].startswith("What turn 3 changed does not fit the branch any longer, and its")
    assert (dropped["begun"]["from"], dropped["files"]) == ("branch", [])
    text = f"The branch {branch} was deleted, so it was created again from main: what "
    assert gone["begun"]["text"].startswith(f"{text}earlier turns pushed is there only if it was merged. ")
    assert (gone["begun"]["from"], gone["files"]) == ("patch", ["last.txt"])
    assert text in last["log"]


def test_a_patch_with_a_secret_is_dropped_with_a_reason(at_work: tuple[Api, Path]) -> None:
    """A removed line may be a secret, which is never stored, so the reason is not the branch."""
    api, _ = at_work
    first = api.work("write keys.txt one; fail")
    patch = patch_of(api, first["run_id"])
    begun = told(api.go_on(first["run_id"], "write more.txt more", "patch"))["begun"]

    assert (first["files"], "-[masked]" in patch, "s3cr3t" in patch) == (1, True, False)
    assert begun["text"].startswith("What turn 1 changed takes out a secret, which its patch masks, and")


def test_an_unpushed_change_is_kept_over_further_failures(at_work: tuple[Api, Path]) -> None:
    """Turns that started with the change may fail too, whether their agents ran or not."""
    api, bare = at_work
    hook = put_hook(bare, "pre-receive", "echo no; exit 1")
    first = api.work("write half.txt half")
    hook.unlink()
    away = bare.with_name("away")
    bare.rename(away)
    second = api.go_on(first["run_id"], "write more.txt more", "patch")
    away.rename(bare)
    third = api.go_on(first["run_id"], "write last.txt last; fail")
    fourth = api.go_on(first["run_id"], "write end.txt end")

    assert ("the push was refused" in first["reason"], first["files"]) == (True, 1)
    assert (second["outcome"], second["files"], second["from_turn"]) == ("failed", None, 1)
    assert (third["outcome"], third["from_turn"]) == ("failed", 1)
    assert (fourth["outcome"], fourth["from_turn"], told(fourth)["files"]) == ("completed", 3, ["half.txt", "last.txt"])


def test_a_cancelled_turns_change_is_kept(at_work: tuple[Api, Path]) -> None:
    """The next turn starts with it only on request; a turn that never began leaves the earlier patch."""
    api, _ = at_work
    run_id = api.begin("worker", instructions="write half.txt half; wait")
    eventually(lambda: "at work" in api.log(run_id), "the agent is at work", COLD_START_S)
    api.post(f"/external/runs/{run_id}/cancel", {})
    eventually(lambda: api.turns(run_id)[0]["files"] == 1, "the change is kept")
    # Turns of one branch wait for each other.
    other = api.begin("worker", fields={"branch_name": api.run(run_id)["branch_name"]}, instructions="wait")
    eventually(lambda: "at work" in api.log(other), "the branch is in use", COLD_START_S)
    api.follow(run_id, "never", start_from="patch")
    for one in (run_id, other):
        api.post(f"/external/runs/{one}/cancel", {})
    last = api.go_on(run_id, "write more.txt more", "patch")
    first, never, _ = api.turns(run_id)

    assert (first["outcome"], "+half" in patch_of(api, run_id)) == ("cancelled", True)
    assert (never["outcome"], never["started_at"]) == ("cancelled", None)
    assert (told(last)["files"], last["from_turn"]) == (["half.txt"], 1)
    assert told(last)["begun"]["text"].startswith("Turn 1 was not finished")


def test_a_refused_change_is_shown_and_cannot_be_continued(at_work: tuple[Api, Path]) -> None:
    """A request that cannot be met is refused before the run is queued."""
    api, _ = at_work
    first, other = api.work("write Jenkinsfile x"), api.work("fail")
    refused = api.follow(other["run_id"], "go", start_from="patch")

    assert ("change.protected" in first["reason"], first["files"]) == (True, 1)
    assert "b/Jenkinsfile" in patch_of(api, first["run_id"])
    assert (refused.status_code, refused.json()["error_code"]) == (409, "nothing_kept")
    assert other["files"] == 0


ASKER = """
inputs = task["inputs"]
report = {"conversation": task["conversation"], "files": sorted(path.name for path in pathlib.Path(".").glob("*.txt"))}
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps({"summary": json.dumps(report)}))
pathlib.Path(f"{task['turn']}.txt").write_text("x\\n")
if task["turn"] == 1:
    pathlib.Path(".runwarden").mkdir()
    pathlib.Path(".runwarden/question.json").write_text(inputs["how"])
if inputs.get("leaks"): pathlib.Path("leaked.txt").write_text(os.environ["SECRET"])
if inputs.get("ends") == "late":
    print("asked", flush=True)
    time.sleep(10_000)
sys.exit(inputs.get("ends", 0))
"""


@pytest.fixture(scope="module")
def asker(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Api:
    """The shared service with an agent that asks in its first turn."""
    source = OBEYS.replace('exec(task["instructions"])', ASKER)
    api.add_agent(tmp_path_factory.mktemp("asker"), "asker", source, "--env", "SECRET")
    return api


def open_questions(api: Api) -> list[dict[str, Any]]:
    return list(api.get("/external/questions").json()["questions"])


def test_an_agent_asks_and_continues_with_the_answer(asker: Api) -> None:
    """The run is failed, since the specification has no other status; its work is there when the answer comes."""
    text = json.dumps({"question": "Which database?\nSay \x1b[31m one.", "choices": ["SQLite", "PostgreSQL"]})
    first = asker.worked(asker.begin("asker", how=text))
    run_id = first["run_id"]
    run, waiting = asker.run(run_id), next(one for one in open_questions(asker) if one["run_id"] == run_id)
    second = asker.go_on(run_id, "SQLite")
    report, question = json.loads(second["summary"]), (first["question"], first["choices"])
    pushed = git("ls-tree", "--name-only", second["branch"], cwd=asker.service.repositories["acme/api"]).split()

    assert (run["status"], set(run)) == ("failed", set(asker.run(run_id))), "the list is the specification's"
    assert (first["state"], first["outcome"], first["failure_kind"]) == ("failed", "needs_answer", "needs_answer")
    assert question == ("Which database?\nSay ␛[31m one.", ["SQLite", "PostgreSQL"])
    assert first["reason"].startswith("the agent asks: Which database?")
    assert first["reason"].endswith("(SQLite / PostgreSQL)")
    assert (waiting["turn"], waiting["asked_at"]) == (1, first["ended_at"])
    assert (waiting["question"], waiting["choices"]) == question
    assert [(past["question"], past["choices"]) for past in report["conversation"]] == [question]
    assert (second["outcome"], second["from_turn"], report["files"]) == ("completed", 1, ["1.txt"])
    assert {"1.txt", "2.txt"} < set(pushed)
    assert run_id not in {one["run_id"] for one in open_questions(asker)}


def test_an_odd_question_is_still_a_question(tmp_path: Path) -> None:
    """Nothing outside the checkout is read, and the log says what is wrong."""
    file, remarks = tmp_path / ".runwarden" / "question.json", list[str]()
    file.parent.mkdir()
    file.write_text(json.dumps({"question": "w" * 3000}))
    assert len(present(read_question(tmp_path, str, remarks)).question) == 2000
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert present(read_question(tmp_path, str, remarks)).question.startswith("something that cannot be read")
    file.unlink()
    file.write_text(json.dumps({"question": "w" * (1 << 20)}))
    assert present(read_question(tmp_path, str, remarks)).question.startswith("something that cannot be read")
    why = ("the first 2000 characters", "a link is not followed", "is not read: larger than 1048576 bytes")
    assert [words in remark for words, remark in zip(why, remarks, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("given", "why", "files"),
    [
        ({"ends": 3}, "; after that, the agent exited with status 3; its last lines are in the log", 1),
        ({"leaks": True}, "", None),
    ],
)
def test_a_question_is_asked_whatever_else_went_wrong(
    asker: Api, given: dict[str, Any], why: str, files: int | None
) -> None:
    """The reason has both, and as much of the work as allowed is kept."""
    turn = asker.worked(asker.begin("asker", how='{"question": "Which?", "choices": ["a", "b"]}', **given))

    assert (turn["outcome"], turn["failure_kind"]) == ("needs_answer", "needs_answer")
    assert (turn["reason"], turn["files"]) == (f"the agent asks: Which? (a / b){why}", files)
    assert turn["run_id"] in {one["run_id"] for one in open_questions(asker)}
    assert ("holds the value of SECRET" in turn["log"]) == (files is None)


def test_a_cancelled_turn_asks_nothing(asker: Api) -> None:
    """The cancellation outweighs the question, although the run's status is `failed` like those of others."""
    run_id = asker.begin("asker", how='{"question": "Which?"}', ends="late")
    eventually(lambda: "asked" in asker.log(run_id), "the question is written")
    asker.post(f"/external/runs/{run_id}/cancel", {})
    eventually(lambda: asker.turns(run_id)[0]["files"] == 1, "the change is kept")
    told = asker.get("/external/questions").json()

    assert (asker.turns(run_id)[0]["outcome"], asker.run(run_id)["status"]) == ("cancelled", "failed")
    assert (told["cancelled"][0], run_id in {one["run_id"] for one in told["questions"]}) == (run_id, False)


def test_a_final_question_is_an_offer() -> None:
    """The question may be in any script, before its choices or in words.

    One that the agent answered itself does not count.
    """
    for words in (
        "Which one should I use?\n\n1. SQLite\n2. PostgreSQL",
        'Before I go on: "Which database shall I use?"',
        "どのデータベースを使いますか\uff1f",
        "Done. If you'd like, I can add tests for the parser.",
    ):
        assert offer(words) is not None, words
    for telling in (
        "Which one? I took the first.",
        "問題はありませんでした。",
        "The change lets callers confirm an order.",
        None,
    ):
        assert offer(telling) is None, telling


OFFERING = """#!/bin/sh
read -r line
echo x > changed.txt
echo '{"type":"result","subtype":"success","result":"No problems found. Shall I look at the tests too?"}'
"""


def test_an_offer_does_not_fail_the_turn(tenant: Make, api: Api, tmp_path: Path) -> None:
    """The run completes with the offer, and nobody has to answer."""
    program = tmp_path / "claude"
    program.write_text(OFFERING)
    program.chmod(0o755)
    agent = {"name": "offering", "preset": "claude-code", "argv": [str(program)], "environment": ["ANTHROPIC_API_KEY"]}
    api = tenant(repositories=[placed(api.service.repositories["acme/api"])], agents=[agent])
    turn = api.work("Review it.", "offering")

    assert (turn["outcome"], turn["question"]) == ("completed", None), turn["reason"]
    assert (turn["offer"], turn["commit"] is not None) == ("Shall I look at the tests too?", True)
    assert open_questions(api) == []
