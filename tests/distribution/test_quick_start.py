"""The quick start of docs/service.md, typed as it stands; only addresses, the port and the place are another."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

from tests import program
from tests.distribution.containers import ROOT
from tests.service_process import make_repository

GUIDE: Final = (ROOT / "docs" / "service.md").read_text("utf-8").partition("## Quick start")[2].partition("\n## ")[0]
COMMANDS: Final = [shlex.split(line[2:], comments=True) for line in GUIDE.splitlines() if line.startswith("$ ")]


def test_the_quick_start_ends_with_a_commit(tmp_path: Path) -> None:
    """Each command works, in its order: what is installed aside, from the document to the run's branch."""
    repository = make_repository(tmp_path / "acme" / "api", {"app.py": "password = 'hunter2'\n"})
    setup = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert setup is not None
    (tmp_path / "setup.toml").write_text(setup[1].replace("https://github.com/acme/api.git", str(repository)), "utf-8")
    install, apply, serve, _export, *rest = COMMANDS
    environment = {**os.environ, "HOME": str(tmp_path), "GITHUB_TOKEN": "ghp_none"}

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        done = program.run(words[1:], environment, stdin="", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    assert install[:2] == ["pipx", "install"]
    token = re.search(r"rwt_[\w-]+", run(apply).stdout)
    assert token is not None
    serving = program.Program([*serve[1:-1], "0"], environment, cwd=tmp_path)
    try:
        assert serving.stdout is not None
        environment["RUNWARDEN_BASE_URL"] = json.loads(serving.stdout.readline())["base_url"]
        environment["RUNWARDEN_TOKEN"] = token[0]
        said = [run(words).stdout for words in rest]
    finally:
        serving.terminate()
        serving.communicate()

    assert "completed" in said[0] + said[1]
    branches = subprocess.run(["git", "-C", repository, "branch"], capture_output=True, text=True, check=True).stdout
    assert "agent/review-what-is-there" in branches
