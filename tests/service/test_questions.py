"""An agent that asks instead of finishing: its work is kept, and the answer goes on from there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.findings.question import in_words
from tests.service.conftest import Api
from tests.service_process import git
from tests.waiting import eventually

ASKER = """
import json, os, pathlib, sys, time
task = json.load(sys.stdin)
inputs = task["inputs"]
report = {"conversation": task["conversation"], "files": sorted(path.name for path in pathlib.Path(".").glob("*.txt"))}
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps({"summary": json.dumps(report)}))
pathlib.Path(f"{task['turn']}.txt").write_text("x\\n")
folder = pathlib.Path(".runwarden")
if task["turn"] == 1:
    folder.mkdir()
    if inputs["how"] == "link": (folder / "question.json").symlink_to("/etc/hostname")
    elif inputs["how"] == "folder": (folder / "question.json").mkdir()
    elif inputs["how"] == "large": (folder / "question.json").write_text(json.dumps({"question": "x" * 10_000_000}))
    else: (folder / "question.json").write_text(inputs["how"])
if inputs.get("leaks"): pathlib.Path("leaked.txt").write_text(os.environ["SECRET"])
if inputs.get("ends") == "late":
    print("asked", flush=True)
    time.sleep(10_000)
sys.exit(inputs.get("ends", 0))
"""


@pytest.fixture(scope="module")
def asker(tenant: Callable[..., Api], api: Api, tmp_path_factory: pytest.TempPathFactory) -> Api:
    """The shared service with an agent that asks in its first turn."""
    api.add_agent(tmp_path_factory.mktemp("asker"), "asker", ASKER, "--env", "SECRET")
    api.add_agent(tmp_path_factory.mktemp("hasty"), "hasty", ASKER, "--timeout-s", "3")
    return api


def turns_of(api: Api, run_id: str) -> list[dict[str, Any]]:
    return list(api.get(f"/external/runs/{run_id}").json()["turns"])


def open_questions(api: Api) -> list[dict[str, Any]]:
    return list(api.get("/external/questions").json()["questions"])


def test_an_agent_asks_and_goes_on_with_the_answer(asker: Api) -> None:
    """The run is failed, as the specification knows no other state; its work is there when the answer comes."""
    text = json.dumps({"question": "Which database?\nSay \x1b[31m one.", "choices": ["SQLite", "PostgreSQL"]})
    run_id = asker.begin("asker", how=text)
    run = asker.ended(run_id)
    asked = turns_of(asker, run_id)[0]
    waiting = next(one for one in open_questions(asker) if one["run_id"] == run_id)
    asker.follow(run_id, "SQLite")
    done = asker.ended(run_id)
    first, second = turns_of(asker, run_id)
    report = json.loads(second["summary"])
    pushed = git("ls-tree", "--name-only", done["branch_name"], cwd=asker.service.repositories["acme/api"]).split()

    assert (run["status"], set(run)) == ("failed", set(done)), "the list is the specification's"
    assert (asked["state"], asked["outcome"], asked["failure_kind"]) == ("failed", "needs_answer", "needs_answer")
    assert (asked["question"], asked["choices"]) == ("Which database?\nSay ␛[31m one.", ["SQLite", "PostgreSQL"])
    assert asked["reason"].startswith("the agent asks: Which database?")
    assert asked["reason"].endswith("(SQLite / PostgreSQL)")
    assert (waiting["turn"], waiting["asked_at"]) == (1, first["ended_at"])
    assert (waiting["question"], waiting["choices"]) == (asked["question"], asked["choices"])
    assert [(past["question"], past["choices"]) for past in report["conversation"]] == [
        (asked["question"], asked["choices"])
    ]
    assert (second["outcome"], second["from_turn"], report["files"]) == ("completed", 1, ["1.txt"])
    assert {"1.txt", "2.txt"} < set(pushed)
    assert run_id not in {one["run_id"] for one in open_questions(asker)}


ODD = {
    "large": "question.json is not read: larger than 1048576 bytes",
    "link": "question.json is not read: a link is not followed",
    "folder": "question.json is not read: ",
    "no json": "question.json is not used: it is not JSON in UTF-8",
    "[1]": 'question.json is not used: it must be an object such as {"question"',
    '{"question": 7}': 'question.json is not used: it must be an object such as {"question"',
    '{"question": "Which?", "choices": [1]}': "the choices are left out: they must be a list of texts",
    '{"question": "' + "w" * 3000 + '?"}': "the first 2000 characters of the question are kept, of 3,001",
    '{"question": "Which?", "choices": ["a"' + ', "b"' * 10 + "]}": "the first 9 choices are kept, of 11",
}
"""What an agent leaves as its question, and what the log remarks on it."""


def test_an_odd_question_loses_nothing(asker: Api) -> None:
    """The log says what is wrong with it; the turn is not taken for done, and its work is kept."""
    runs = {asker.begin("asker", how=how): remark for how, remark in ODD.items()}
    for run_id, remark in runs.items():
        asker.ended(run_id)
        turn = turns_of(asker, run_id)[0]

        assert remark in asker.log(run_id)
        assert (turn["outcome"], turn["files"]) == ("needs_answer", 1)
        assert len(turn["question"]) <= 2000
        assert len(turn["choices"]) <= 9
        assert turn["question"].startswith(("something that cannot be read", "Which?", "www"))


@pytest.mark.parametrize(
    ("agent", "given", "why", "files"),
    [
        ("asker", {"ends": 3}, "; after that, the agent exited with status 3; its last lines are in the log", 1),
        ("hasty", {"ends": "late"}, "; after that, the agent passed its time limit of 3 s and was stopped", 1),
        ("asker", {"leaks": True}, "", None),
    ],
)
def test_a_question_is_asked_whatever_else_went_wrong(
    asker: Api, agent: str, given: dict[str, Any], why: str, files: int | None
) -> None:
    """The reason tells both, and what may be kept of its work is kept."""
    run_id = asker.begin(agent, how='{"question": "Which?", "choices": ["a", "b"]}', **given)
    asker.ended(run_id)
    turn = turns_of(asker, run_id)[0]

    assert (turn["outcome"], turn["failure_kind"], turn["question"]) == ("needs_answer", "needs_answer", "Which?")
    assert (turn["reason"], turn["files"]) == (f"the agent asks: Which? (a / b){why}", files)
    assert run_id in {one["run_id"] for one in open_questions(asker)}
    assert ("holds the value of SECRET" in asker.log(run_id)) == (files is None)


def test_a_cancelled_turn_asks_nothing(asker: Api) -> None:
    """Who cancelled it knows better."""
    run_id = asker.begin("asker", how='{"question": "Which?"}', ends="late")
    eventually(lambda: "asked" in asker.log(run_id), "the question is written")
    asker.post(f"/external/runs/{run_id}/cancel", {})
    eventually(lambda: turns_of(asker, run_id)[0]["files"] == 1, "the change is kept")

    assert turns_of(asker, run_id)[0]["outcome"] == "cancelled"
    assert run_id not in {one["run_id"] for one in open_questions(asker)}


def test_last_words_are_a_question_by_their_mark() -> None:
    """Nothing else is guessed from them."""
    assert in_words("I looked.\n\nWhich one? \n", str) is not None
    for words in ("Done.", None, "Which one? I took the first."):
        assert in_words(words, str) is None


def test_the_newest_cancelled_runs_are_told_beside_the_questions(asker: Api, tmp_path: Path) -> None:
    """Their status is `failed` like that of others; one that was continued is cancelled no more."""
    asker.add_agent(tmp_path, "sleeper", "import time; time.sleep(600)")
    run_id = asker.begin("sleeper")
    asker.post(f"/external/runs/{run_id}/cancel", {})
    ended = asker.ended(run_id)
    told = asker.get("/external/questions").json()["cancelled"]
    asker.follow(run_id, "Go on.")
    later = asker.get("/external/questions").json()["cancelled"]
    asker.post(f"/external/runs/{run_id}/cancel", {})

    assert ended["status"] == "failed"
    assert (told[0], run_id in later) == (run_id, False)
