"""What a caller gives a named agent: inputs as declared, and the prompt that places them (docs/run/agents.md)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Api

PROMPT = "Review with a focus on {inputs.focus}, {inputs.depth} levels deep. Answer {like: this}."
DECLARED = {
    "focus": {"choices": ["security", "speed"], "required": True, "description": "what to look for"},
    "depth": {"type": "integer", "default": 2},
}
UNASKED = "free: Do what you are configured for."
FOCUSED = "Review with a focus on security, 2 levels deep. Answer {like: this}."


@pytest.fixture(scope="module")
def told(idle: Api, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Applies three agents that read no document, and returns a client."""
    apply(
        idle.service,
        tmp_path_factory.mktemp("agents"),
        {"name": "free"},
        {"name": "declared", "description": "Looks at one thing.", "prompt": PROMPT, "inputs": DECLARED},
        {"name": "worded", "prompt": "As {inputs.role}: {inputs.instructions}", "inputs": {"role": {"default": "us"}}},
    )
    return idle


def apply(service: Any, folder: Path, *agents: dict[str, Any]) -> Any:
    file = folder / "agents.json"
    file.write_text(json.dumps({"agents": [{"argv": ["true", "{instructions}"]} | one for one in agents]}))
    return service.admin("apply", str(file))


def test_inputs_reach_an_agent_that_is_only_told_words(told: Api) -> None:
    """The prompt is filled in once; the caller's words and what it does not place follow; the run names its agent."""
    for agent, given, instructions in (
        ("free", {"focus": "a\nb", "n": [1, None]}, f"{UNASKED}\n\nInputs:\n- focus: a\n  b\n- n: [1, null]"),
        ("free", {"instructions": "Fix it", "n": 1.5}, "Fix it\n\nInputs:\n- n: 1.5"),
        ("declared", {"focus": "security"}, FOCUSED),
        ("declared", {"focus": "security", "instructions": "Be kind."}, f"{FOCUSED}\n\nBe kind."),
        ("worded", {"instructions": "{inputs.role} wins"}, "As us: {inputs.role} wins"),
    ):
        run = told.get(f"/external/runs/{told.begin(agent, **given)}").json()

        assert (run["agent"], run["turns"][0]["instructions"]) == (agent, instructions)


def test_an_input_that_is_not_as_declared_is_named(told: Api) -> None:
    """400, and no run."""
    for given, said in (
        ({"focus": "speed", "detph": 1}, "inputs.detph: the agent 'declared' takes no such input; it takes"),
        ({}, "inputs.focus: the agent 'declared' needs it: what to look for"),
        ({"focus": "taste"}, 'inputs.focus: one of "security", "speed" is expected, not "taste"'),
        ({"focus": "speed", "depth": "2"}, 'inputs.depth: a whole number is expected, not "2"'),
    ):
        answer = told.post("/external/agents/declared/runs", {"repository": "acme/api", "inputs": given})

        assert (answer.status_code, answer.json()["error_code"]) == (400, "invalid_input")
        assert answer.json()["message"].startswith(said)


def test_a_prompt_that_no_turn_could_fill_in_is_refused(idle: Api, tmp_path: Path) -> None:
    for agent, said in (
        ({"prompt": "On {inputs.fokus}", "inputs": {"focus": {}}}, "prompt: {inputs.fokus} is not known"),
        ({"prompt": "On {inputs.focus}", "inputs": {"focus": {}}}, "give inputs.focus a default, or required = true"),
        ({"inputs": {"n": {"type": "integer", "default": "x"}}}, "default: a whole number is expected, not"),
    ):
        with pytest.raises(AssertionError, match=re.escape(said)):
            apply(idle.service, tmp_path, {"name": "wrong"} | agent)


def test_agents_are_listed_with_their_inputs(told: Api) -> None:
    """An organization sees those for all and its own."""
    listed = {one["name"]: one for one in told.get("/external/agents").json()["agents"]}
    unknown = told.post("/external/agents/declarde/runs", {"repository": "acme/api"})

    assert {"declared", "free"} <= {*listed}
    told_of = {"type": "text", "description": "what to look for", "required": True}
    assert listed["declared"]["inputs"]["focus"] == told_of | {"default": None, "choices": ["security", "speed"]}
    assert (unknown.status_code, unknown.json()["error_code"]) == (404, "agent_not_found")
