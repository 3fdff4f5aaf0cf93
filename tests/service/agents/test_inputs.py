"""Inputs for a named agent, and the prompt that they fill in (docs/run/agents.md)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Api

PROMPT = "Review with a focus on {inputs.focus}, {inputs.depth} levels deep. Answer {like: this}."
FOCUS = {"choices": ["security", "speed"], "required": True, "description": "what to look for"}
DECLARED = {"focus": FOCUS, "depth": {"type": "integer", "default": 2}}
UNASKED = "free: Do what you are configured for."
FOCUSED = "Review with a focus on security, 2 levels deep. Answer {like: this}."


def apply(service: Any, folder: Path, *agents: dict[str, Any]) -> Any:
    file = folder / "agents.json"
    file.write_text(json.dumps({"agents": [{"argv": ["true", "{instructions}"]} | one for one in agents]}))
    return service.admin("apply", str(file))


def test_inputs_match_their_declaration_or_are_refused(idle: Api, tmp_path: Path) -> None:
    """The prompt is filled in once, followed by the caller's words and unused inputs, and the run names its agent.

    Inputs that do not match their declaration are a 400 without a run. An organization also sees the agents for all.
    """
    apply(
        idle.service,
        tmp_path,
        {"name": "free"},
        {"name": "declared", "prompt": PROMPT, "inputs": DECLARED},
        {"name": "worded", "prompt": "As {inputs.role}: {inputs.instructions}", "inputs": {"role": {"default": "us"}}},
    )
    for agent, given, instructions in (
        ("free", {"focus": "a\nb", "n": [1, None]}, f"{UNASKED}\n\nInputs:\n- focus: a\n  b\n- n: [1, null]"),
        ("free", {"instructions": "Fix it", "n": 1.5}, "Fix it\n\nInputs:\n- n: 1.5"),
        ("declared", {"focus": "security", "instructions": "Be kind."}, f"{FOCUSED}\n\nBe kind."),
        ("worded", {"instructions": "{inputs.role} wins"}, "As us: {inputs.role} wins"),
    ):
        run = idle.get(f"/external/runs/{idle.begin(agent, **given)}").json()

        assert (run["agent"], run["turns"][0]["instructions"]) == (agent, instructions)

    for wrong, said in (
        ({"focus": "speed", "detph": 1}, "inputs.detph: the agent 'declared' takes no such input; it takes"),
        ({}, "inputs.focus: the agent 'declared' needs it: what to look for"),
        ({"focus": "taste"}, 'inputs.focus: one of "security", "speed" is expected, not "taste"'),
        ({"focus": "speed", "depth": "2"}, 'inputs.depth: a whole number is expected, not "2"'),
    ):
        answer = idle.post("/external/agents/declared/runs", {"repository": "acme/api", "inputs": wrong})

        assert (answer.status_code, answer.json()["error_code"]) == (400, "invalid_input")
        assert answer.json()["message"].startswith(said)

    unknown = idle.post("/external/agents/declarde/runs", {"repository": "acme/api"})
    listed = {one["name"]: one for one in idle.get("/external/agents").json()["agents"]}
    assert (unknown.status_code, unknown.json()["error_code"]) == (404, "agent_not_found")
    assert listed["declared"]["inputs"]["focus"] == FOCUS | {"type": "text", "default": None}


GEMINI = {"provider": "gemini", "key_env": "K"}


def test_an_impossible_configuration_is_refused_with_its_fix(idle: Api, tmp_path: Path) -> None:
    for agent, said in (
        ({"prompt": "On {inputs.fokus}", "inputs": {"focus": {}}}, "prompt: {inputs.fokus} is not known"),
        ({"inputs": {"n": {"type": "integer", "default": "x"}}}, "default: a whole number is expected, not"),
        ({"argv": ["no-such-agent"]}, "the program 'no-such-agent' is not there on the service's PATH"),
        ({"model": {"provider": "openai", "key_env": "NO_KEY"}}, "the variable NO_KEY is not set"),
        ({"readable": ["/"]}, "would show the agent the service's own data"),
        ({"network": True, "egress": ["a.example"]}, "network = true lets it reach everything"),
        ({"model": GEMINI | {"base_url": "http://a.example"}}, "use https"),
        ({"model": GEMINI | {"name": "g-x", "budget": {"run_usd": 1}}}, "g-x has no known price"),
        ({"model": GEMINI | {"headers": {"Authorization": "Bearer x"}}}, "Authorization is the service's own"),
    ):
        with pytest.raises(AssertionError, match=re.escape(said)):
            apply(idle.service, tmp_path, {"name": "wrong"} | agent)
