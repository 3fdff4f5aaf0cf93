"""Agents that a test writes itself: added to a service that runs, and started there."""

from pathlib import Path
from typing import Any


def add_agent(api: Any, folder: Path, name: str, source: str, *options: str) -> None:
    """Write an agent's script and add it to a service that runs; `options` are those of `agent add`."""
    script = folder / f"{name}.py"
    script.write_text(source, "utf-8")
    api.service.admin("agent", "add", name, "--argv", f"{{python}} {script}", *options)


def begin(api: Any, agent: str, **inputs: Any) -> str:
    answer = api.post(f"/external/agents/{agent}/runs", {"repository": "acme/api", "inputs": inputs})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["execution_id"])
