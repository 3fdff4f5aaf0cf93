"""An installed program is found on PATH and works in the sandbox, however it is laid out; what is missing is said."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.store.agents import Agent
from tests.service_process import command

Make = Callable[..., Any]


def test_an_installed_program_works_in_the_sandbox(
    rehearse: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pipx lays it out: a link to a script in a virtual environment, which has the tool's module.

    Nothing of its folders is named in the configuration.
    """
    venv = tmp_path / "venvs" / "tool"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (next(venv.glob("lib/python*/site-packages")) / "made_tool.py").write_text("print('works')\n", "utf-8")
    (venv / "bin" / "tool").write_text(f"#!{venv}/bin/python\nimport made_tool\n", "utf-8")
    (venv / "bin" / "tool").chmod(0o755)
    (tmp_path / "on-path").mkdir()
    (tmp_path / "on-path" / "tool").symlink_to(venv / "bin" / "tool")
    monkeypatch.setenv("PATH", f"{tmp_path / 'on-path'}{os.pathsep}{os.environ['PATH']}")
    done = rehearse().turn(Agent("made", ("tool", "{instructions}")), "go")

    assert (done.failure, done.log) == (None, "works\n")


KEYED = {"provider": "openai", "key_env": "NO_KEY"}
GEMINI = {"provider": "gemini", "key_env": "K"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"argv": ["no-such-agent"]}, "the program 'no-such-agent' is not there on the service's PATH"),
    ({"argv": ["sh", "-c", "echo {instructions}"]}, "has to be a whole argument"),
    ({"model": KEYED}, "the variable NO_KEY is not set"),
    ({"readable": ["/"]}, "would show the agent the service's own data"),
    ({"network": True, "egress": ["a.example"]}, "network = true lets it reach everything"),
    ({"model": GEMINI | {"base_url": "http://a.example"}}, "use https"),
    ({"model": GEMINI | {"name": "g-x", "budget": {"run_usd": 1}}}, "g-x has no known price"),
    ({"model": GEMINI | {"headers": {"Authorization": "Bearer x"}}}, "Authorization is the service's own"),
]


def test_a_configuration_that_cannot_work_is_refused_with_its_cure(tmp_path: Path) -> None:
    file = tmp_path / "setup.json"
    for options, words in REFUSED:
        file.write_text(json.dumps({"agents": [{"name": "made", "argv": ["sh"]} | options]}), "utf-8")
        with pytest.raises(AssertionError, match=re.escape(words)):
            command(tmp_path / "data", "apply", str(file))
