"""A message to an active run reaches the working agent, or starts the next turn, exactly once."""

from pathlib import Path
from typing import Any

import pytest

from tests.service.agents.test_acp import PROGRAM
from tests.service.conftest import UNBOXED, Api, Make, Own
from tests.waiting import COLD_START_S, eventually

WAITS = "DO:\nopen('begun.txt', 'w')\nawait self.cancelled.wait()\nreturn 'cancelled'"
TOLD = "DO:\nopen('told.txt', 'w')\nawait self.say('As you say.')"


def say(api: Api, run_id: str, text: Any, when: str = "now") -> Any:
    return api.post(f"/external/runs/{run_id}/messages", {"text": text, "when": when})


def states(turn: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["text"], one["when"], one["state"]) for one in turn["messages"]]


def add_program(api: Api, folder: Path, *options: str) -> None:
    """Add an ACP agent that executes the Python at the end of its instructions."""
    (folder / "program.py").write_text(PROGRAM, "utf-8")
    given = ("--preset", "acp", "--argv", f"{{python}} {folder / 'program.py'}", "--env", "ANTHROPIC_API_KEY")
    api.service.admin("agent", "add", "program", *given, *options)


def at_work(api: Api, run_id: str, file: str = "begun.txt") -> None:
    """Wait until the agent of a run has created a file in its checkout."""
    pattern = f"work/*.{run_id}-*/tree/{file}"
    eventually(lambda: [*api.service.data_dir.glob(pattern)], f"the agent made {file}", COLD_START_S)


def worked(api: Api, run_id: str, number: int) -> dict[str, Any]:
    """Wait until a run has a turn with this number and has ended."""
    eventually(lambda: len(api.turns(run_id)) == number, f"turn {number} begins", COLD_START_S)
    return api.worked(run_id)


def test_a_message_reaches_the_working_agent(own: Own, tmp_path: Path) -> None:
    """The turn continues, the conversation has the message, and the log shows where the agent received it."""
    api, _ = own()
    add_program(api, tmp_path, "--org", api.organization["slug"])
    talks = WAITS.replace("open", "await self.say('Let me ')\nopen").replace("return", "await self.say('see.')\nreturn")
    run_id = api.begin("program", instructions=talks)
    at_work(api, run_id)
    answer = say(api, run_id, TOLD)
    turn = api.worked(run_id)

    assert (answer.status_code, answer.json()["when"], answer.json()["state"]) == (202, "now", "waiting")
    assert (turn["outcome"], turn["summary"], turn["files"]) == ("completed", "As you say.", 2), turn["log"]
    assert (states(turn), turn["messages"][0]["caller"]) == ([(TOLD, "now", "delivered")], "tests")
    steps = api.get(f"/external/runs/{run_id}/turns/1/log", params={"form": "steps"}).json()["steps"]
    conversation = [one["text"] for one in steps if one["kind"] == "said" or "says" in one["text"]]
    assert conversation[1].startswith("tests says: DO: open('told.txt', 'w')")
    assert [conversation[0], *conversation[2:]] == ["Let me see.", "As you say."]
    assert len(api.turns(run_id)) == 1


def test_a_new_attempt_gets_the_message(start: Make, tmp_path: Path) -> None:
    """The new attempt gets it once, although the dead worker's agent had received it."""
    api = start(settings=f"{UNBOXED}drain_s = 0.1\n", environment={"ANTHROPIC_API_KEY": "k"})
    add_program(api, tmp_path)
    counts = "DO:\nsaid = prompt.count(chr(35))\nif said: await self.say(f'heard {said}'); return"
    run_id = api.begin("program", instructions=WAITS.replace("DO:", counts))
    at_work(api, run_id)
    say(api, run_id, "DO:\nopen('told.txt', 'w')\nawait asyncio.sleep(600) # the new API")
    at_work(api, run_id, "told.txt")
    api.service.kill()
    api.service.restart()
    turn = api.worked(run_id)

    assert (turn["number"], turn["outcome"], turn["summary"]) == (1, "completed", "heard 1"), turn["log"]
    assert [state for _, _, state in states(turn)] == ["delivered"]


def test_an_undeliverable_message_starts_the_next_turn(own: Own) -> None:
    """The next turn gets all messages sent meanwhile, and the turn's change."""
    api, _ = own()
    waits = "open('half.txt', 'w'); time.sleep(0 if pathlib.Path('go').exists() else 600)"
    run_id = api.begin("worker", instructions=f"{waits}; sys.exit(3)")
    at_work(api, run_id, "half.txt")
    first = say(api, run_id, "open('one.txt', 'w')")
    say(api, run_id, "open('two.txt', 'w')", "end")
    say(api, run_id, "open('three.txt', 'w')", "stop")
    turn = worked(api, run_id, 2)
    before = api.turns(run_id)[0]

    assert first.json()["when"] == "end", "it says that it waits"
    assert [state for _, _, state in states(before)] == ["continued"] * 3
    assert (before["outcome"], before["reason"]) == ("cancelled", "cancelled for a message from tests")
    assert (turn["number"], turn["outcome"], turn["from_turn"], turn["files"]) == (2, "completed", 1, 4), turn["log"]
    assert turn["instructions"].count("open(") == 3


def test_a_cancelled_run_drops_waiting_messages(own: Own) -> None:
    api, _ = own()
    run_id = api.begin("worker", instructions="open('half.txt', 'w'); time.sleep(600)")
    at_work(api, run_id, "half.txt")
    say(api, run_id, "more", "end")
    api.post(f"/external/runs/{run_id}/cancel", {})
    (turn,) = api.turns(run_id)
    late = say(api, run_id, "more")

    assert (turn["outcome"], states(turn)) == ("cancelled", [("more", "end", "dropped")])
    assert (late.status_code, late.json()["error_code"]) == (409, "run_not_active")


@pytest.mark.parametrize(
    ("text", "when"), [("", "now"), (" \n", "now"), ("x" * 20_001, "now"), (5, "now"), ("a\0b", "now"), ("a", "soon")]
)
def test_an_invalid_message_is_refused(idle: Api, text: Any, when: str) -> None:
    run_id = idle.start("go")
    refused = say(idle, run_id, text, when)

    assert (refused.status_code, idle.turns(run_id)[0]["messages"]) == (400, []), refused.text


def test_messages_to_a_waiting_turn_are_limited(idle: Api) -> None:
    """A waiting turn is stopped at once; at most twenty messages wait, except one that stops the turn.

    Blank ones are refused.
    """
    run_id = idle.start("go")
    for text, when in ((" \n", "now"), ("x" * 20_001, "now"), (5, "now"), ("a\0b", "now"), ("a", "soon")):
        assert say(idle, run_id, text, when).status_code == 400, text
    assert idle.turns(run_id)[0]["messages"] == []
    answer = say(idle, run_id, "do this instead", "stop")
    first, second = idle.turns(run_id)
    said = [say(idle, run_id, str(number), "end").status_code for number in range(21)]
    way_out = say(idle, run_id, "enough", "stop")

    assert (answer.json()["state"], first["outcome"]) == ("continued", "cancelled")
    assert (second["instructions"], second["caller"]) == ("do this instead", "tests")
    assert said == [202] * 20 + [409]
    assert (way_out.json()["state"], idle.turns(run_id)[2]["instructions"][-10:]) == ("continued", "19\n\nenough")
    assert say(idle, "run_x", "hello").json()["error_code"] == "run_not_found"
