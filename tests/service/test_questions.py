"""An agent that asks instead of finishing: its work is kept, and the answer goes on from there."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.findings.question import asked, offer
from tests.service.conftest import UNBOXED, Api, Make
from tests.service_process import demo_setup, git
from tests.waiting import eventually, present

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
    (folder / "question.json").write_text(inputs["how"])
if inputs.get("leaks"): pathlib.Path("leaked.txt").write_text(os.environ["SECRET"])
if inputs.get("ends") == "late":
    print("asked", flush=True)
    time.sleep(10_000)
sys.exit(inputs.get("ends", 0))
"""


@pytest.fixture(scope="module")
def asker(tenant: Make, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Api:
    """The shared service with an agent that asks in its first turn."""
    api.add_agent(tmp_path_factory.mktemp("asker"), "asker", ASKER, "--env", "SECRET")
    api.add_agent(tmp_path_factory.mktemp("hasty"), "hasty", ASKER, "--timeout-s", "3")
    return api


def open_questions(api: Api) -> list[dict[str, Any]]:
    return list(api.get("/external/questions").json()["questions"])


def test_an_agent_asks_and_goes_on_with_the_answer(asker: Api) -> None:
    """The run is failed, as the specification knows no other state; its work is there when the answer comes."""
    text = json.dumps({"question": "Which database?\nSay \x1b[31m one.", "choices": ["SQLite", "PostgreSQL"]})
    run_id = asker.begin("asker", how=text)
    run = asker.ended(run_id)
    told = asker.turns(run_id)[0]
    waiting = next(one for one in open_questions(asker) if one["run_id"] == run_id)
    asker.follow(run_id, "SQLite")
    done = asker.ended(run_id)
    first, second = asker.turns(run_id)
    report = json.loads(second["summary"])
    pushed = git("ls-tree", "--name-only", done["branch_name"], cwd=asker.service.repositories["acme/api"]).split()

    assert (run["status"], set(run)) == ("failed", set(done)), "the list is the specification's"
    assert (told["state"], told["outcome"], told["failure_kind"]) == ("failed", "needs_answer", "needs_answer")
    assert (told["question"], told["choices"]) == ("Which database?\nSay ␛[31m one.", ["SQLite", "PostgreSQL"])
    assert told["reason"].startswith("the agent asks: Which database?")
    assert told["reason"].endswith("(SQLite / PostgreSQL)")
    assert (waiting["turn"], waiting["asked_at"]) == (1, first["ended_at"])
    assert (waiting["question"], waiting["choices"]) == (told["question"], told["choices"])
    assert [(past["question"], past["choices"]) for past in report["conversation"]] == [
        (told["question"], told["choices"])
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


def test_an_odd_question_is_a_question_all_the_same(tmp_path: Path) -> None:
    """The log says what is wrong with it."""
    for number, (how, remark) in enumerate(ODD.items()):
        file = tmp_path / str(number) / ".runwarden" / "question.json"
        file.parent.mkdir(parents=True)
        if how == "link":
            file.symlink_to("/etc/hostname")
        elif how == "folder":
            file.mkdir()
        else:
            file.write_text(json.dumps({"question": "x" * 10_000_000}) if how == "large" else how)
        remarks: list[str] = []
        found = present(asked(tmp_path / str(number), str, remarks))

        assert remark in remarks[0]
        assert (len(found.question) <= 2000, len(found.choices) <= 9) == (True, True)
        assert found.question.startswith(("something that cannot be read", "Which?", "www"))


def test_a_turn_whose_question_cannot_be_read_loses_nothing(asker: Api) -> None:
    """It is not taken for done, and its work is kept."""
    run_id = asker.begin("asker", how="no json")
    asker.ended(run_id)
    turn = asker.turns(run_id)[0]

    assert "question.json is not used: it is not JSON in UTF-8" in asker.log(run_id)
    assert (turn["outcome"], turn["files"]) == ("needs_answer", 1)


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
    turn = asker.turns(run_id)[0]

    assert (turn["outcome"], turn["failure_kind"], turn["question"]) == ("needs_answer", "needs_answer", "Which?")
    assert (turn["reason"], turn["files"]) == (f"the agent asks: Which? (a / b){why}", files)
    assert run_id in {one["run_id"] for one in open_questions(asker)}
    assert ("holds the value of SECRET" in asker.log(run_id)) == (files is None)


def test_a_cancelled_turn_asks_nothing(asker: Api) -> None:
    """Who cancelled it knows better."""
    run_id = asker.begin("asker", how='{"question": "Which?"}', ends="late")
    eventually(lambda: "asked" in asker.log(run_id), "the question is written")
    asker.post(f"/external/runs/{run_id}/cancel", {})
    eventually(lambda: asker.turns(run_id)[0]["files"] == 1, "the change is kept")

    assert asker.turns(run_id)[0]["outcome"] == "cancelled"
    assert run_id not in {one["run_id"] for one in open_questions(asker)}


ASKING = (
    "No problems found in the change. Shall I look at the tests too?",
    "I cannot decide between SQLite and PostgreSQL. Please confirm the schema before I go on.",
    "Which database shall I use? I will wait for your answer.",
    "Which one should I use?\n\n1. SQLite\n2. PostgreSQL",
    'Before I go on: "Which database shall I use?"',
    "どのデータベースを使いますか\uff1f",
    "أي قاعدة بيانات أستخدم؟",
    "Two ways are possible. Which do you prefer?\n\n- Rename the field\n- Keep both",
    "Should I also delete the old endpoint? (yes/no)",
    "The migration is ready. Let me know if I should run it on staging as well.",
    "Done. If you'd like, I can add tests for the parser.",
    "Please choose:\n\nA) keep\nB) remove",
    "Soll ich auch die Tests anpassen?",
    "¿Quieres que también actualice la documentación?",
    "要不要我也更新文档\uff1f",
    "I stopped here. I need a decision on the licence.",
    "Awaiting your go-ahead before the force push.",
    "*Shall I proceed?*",
    "That is your call.",
    "I will continue if you confirm the plan.",
    "### Open question\n\nDo we support Python 3.9?",
)
"""Ends of last messages that ask or offer something."""
TELLING = (
    "There is nothing to change.",
    "Which one? I took the first.",
    "Everything is in order. Why was it written twice? Because of history, so there is nothing to do here.",
    "I renamed `is_ok?` to `ok`.",
    'Fixed the FAQ section "How do I install it?" in the README.',
    'The function now answers the question "who called?" correctly.',
    "",
    "- added a test\n- fixed the bug",
    "Summary:\n\n| a | b |\n|---|---|\n| 1 | 2 |",
    "See https://example.com/search?q=x for details.",
    "No changes were needed; the API already returns 404.",
    "問題はありませんでした。",
    "لا توجد مشاكل.",
    "You asked: is it safe? Yes, it is.",
    'Removed the TODO "do we need this?" because we do not.',
    "Updated the docs. Nothing else to do.",
    "The user is asked for a name, then greeted.",
    'The button text is now "Delete?" instead of "Remove?".',
    "The change lets callers confirm an order.",
    "I chose PostgreSQL because the tests need it.",
)
"""Ends that only report."""


@pytest.mark.parametrize(("words", "asks"), [*((one, True) for one in ASKING), *((one, False) for one in TELLING)])
def test_a_last_message_that_asks_is_an_offer(words: str, *, asks: bool) -> None:
    """In any script, before its choices, or in words; a question that was answered at once is none."""
    assert (offer(words) is not None) == asks
    assert offer(None) is None


OFFERING = """#!/bin/sh
cat >/dev/null
[ -e src ] && echo x > changed.txt
echo '{"type":"result","subtype":"success","result":"No problems found. Shall I look at the tests too?"}'
"""


def test_an_offer_fails_no_turn(start: Make, tmp_path: Path) -> None:
    """Whether anything changed or not, the run is completed with the offer beside it; nobody has to answer."""
    program = tmp_path / "claude"
    program.write_text(OFFERING)
    program.chmod(0o755)
    setup = demo_setup(tmp_path)
    entry = {"name": "offering", "preset": "claude-code", "argv": [str(program)], "environment": ["ANTHROPIC_API_KEY"]}
    api = start(settings=UNBOXED, setup=setup | {"agents": [entry]}, environment={"ANTHROPIC_API_KEY": "sk-x"})
    for path, is_changed in (("acme/web", False), ("acme/api", True)):
        run_id = api.begin("offering", path, instructions="Review it.")
        run = api.ended(run_id)
        (turn,) = api.turns(run_id)

        assert (run["status"], turn["outcome"], turn["question"]) == ("completed", "completed", None), turn["reason"]
        assert (turn["offer"], turn["commit"] is not None) == ("Shall I look at the tests too?", is_changed)
    assert open_questions(api) == []


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
