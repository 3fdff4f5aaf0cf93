"""Agents that a test writes itself: their entries in a set-up, and how they are started."""

from pathlib import Path
from typing import Any

from tests.service_process import demo_setup


def agent_of(folder: Path, name: str, source: str, **fields: Any) -> dict[str, Any]:
    """Write an agent's script and return its entry in a set-up."""
    script = folder / f"{name}.py"
    script.write_text(source, "utf-8")
    return {"name": name, "argv": ["{python}", str(script)], **fields}


def with_agents(folder: Path, *agents: dict[str, Any]) -> dict[str, Any]:
    setup = demo_setup(folder)
    setup["agents"] += agents
    return setup


def begin(api: Any, agent: str, **inputs: Any) -> str:
    answer = api.post(f"/external/agents/{agent}/runs", {"repository": "acme/api", "inputs": inputs})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["execution_id"])
