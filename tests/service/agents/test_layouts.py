"""An installed program is found on PATH and works in the sandbox, however it is laid out; what is missing is said."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.agents.options import AgentOptions
from service.store.agents import Agent
from tests.service_process import command

Make = Callable[..., Any]


def executable(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    file.chmod(0o755)
    return file


def single_file(place: Path) -> Path:
    return executable(place / "bin" / "tool", "#!/bin/sh\necho works\n").parent


def npm(place: Path) -> Path:
    """Lay out as npm does: a link to a package, which needs another and Node, which is in no system folder."""
    packages = place / "lib" / "node_modules"
    executable(packages / "@made" / "tool" / "cli.js", "#!/usr/bin/env node\nconsole.log(require('helper'))\n")
    executable(packages / "helper" / "index.js", "module.exports = 'works'\n")
    (place / "bin").mkdir()
    (place / "bin" / "tool").symlink_to("../lib/node_modules/@made/tool/cli.js")
    # Node version managers keep it in a home folder.
    shutil.copy2(Path(str(shutil.which("node"))).resolve(), place / "bin" / "node")
    return place / "bin"


def pipx(place: Path) -> Path:
    """Lay out as pipx does: a link to a script in a virtual environment, which has the tool's module."""
    venv = place / "venvs" / "tool"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    executable(next(venv.glob("lib/python*/site-packages")) / "made_tool.py", "print('works')\n")
    executable(venv / "bin" / "tool", f"#!{venv}/bin/python\nimport made_tool\n")
    (place / "bin").mkdir()
    (place / "bin" / "tool").symlink_to(venv / "bin" / "tool")
    return place / "bin"


@pytest.mark.parametrize("layout", [single_file, npm, pipx])
def test_an_installed_program_works_in_the_sandbox(
    rehearse: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Callable[[Path], Path]
) -> None:
    """Nothing of its folders is named in the configuration, and nothing beside them is shown."""
    if layout is npm and shutil.which("node") is None:
        pytest.skip("Node is not installed")
    place = tmp_path / "installed"
    place.mkdir()
    (place / "private").write_text("secret", "utf-8")
    monkeypatch.setenv("PATH", f"{layout(place)}{os.pathsep}{os.environ['PATH']}")
    stage = rehearse()
    done = stage.turn(Agent("made", ("tool", "{instructions}")), "go")

    assert (done.failure, done.log) == (None, "works\n")


KEYED = {"provider": "openai", "key_env": "NO_KEY"}
GEMINI = {"provider": "gemini", "key_env": "K"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"argv": ["no-such-agent"]}, "the program 'no-such-agent' is not there on the service's PATH"),
    ({"argv": None}, "it needs argv, the command, or preset"),
    ({"argv": ["sh", "-c", "echo {instructions}"]}, "has to be a whole argument"),
    ({"preset": "opencode", "argv": ["opencode", "--agent=plan"]}, "runs `opencode acp`, which has no --agent: leave"),
    ({"model": KEYED}, "the variable NO_KEY is not set"),
    ({"readable": ["/"]}, "would show the agent the service's own data"),
    ({"network": True, "egress": ["a.example"]}, "network = true lets it reach everything"),
    ({"egress": ["10.0.0.1"]}, "write a host such as"),
    ({"model": GEMINI | {"base_url": "http://a.example"}}, "use https"),
    ({"model": GEMINI | {"name": "g-x", "budget": {"run_usd": 1}}}, "g-x has no known price"),
    ({"model": GEMINI | {"headers": {"Authorization": "Bearer x"}}}, "Authorization is the service's own"),
    ({"model": {"provider": "gemini"}}, "it needs key_env, the variable with its key, or key_command"),
    ({"model": GEMINI | {"key_command": ["sh"]}}, "and not both"),
    ({"model": GEMINI | {"provider": "vertex"}}, "vertex needs base_url, such as https://us-east5-"),
]


def test_a_configuration_that_cannot_work_is_refused_with_its_cure(tmp_path: Path) -> None:
    file = tmp_path / "setup.json"
    for options, words in REFUSED:
        entry = {name: one for name, one in ({"name": "made", "argv": ["sh"]} | options).items() if one is not None}
        file.write_text(json.dumps({"agents": [entry]}), "utf-8")
        with pytest.raises(AssertionError, match=re.escape(words)):
            command(tmp_path / "data", "apply", str(file))


def test_what_other_machines_have_is_not_looked_for(tmp_path: Path) -> None:
    """With --elsewhere; by `apply` and by `agent add`, whose options are those of the document."""
    model = '{ provider = "openai", key_env = "NO_KEY", prices = { "gpt-" = { input = 1, output = 2 } } }'
    given = ["--preset", "codex", "--egress", "a.test", "--model", model, "--cache", "2000000", "--elsewhere"]
    made = command(tmp_path / "data", "agent", "add", "made", *given)
    listed = command(tmp_path / "data", "agent", "list")["agents"]

    assert made["model"]["prices"] == {"gpt-": {"input": 1.0, "output": 2.0}}
    assert listed[1] == made | {"organization_id": None}
    assert AgentOptions.model_validate({"preset": "codex"}).keeps_session
