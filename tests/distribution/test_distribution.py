"""The distribution's name and extras come from one constant and are the same everywhere."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

import service
from app.cli.exits import EXTRAS, CommandFailedError, require_extra
from app.version import DISTRIBUTION
from service.store.database import Database, DatabaseError

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OTHERS_NAME: Final = re.compile(
    r"runwarden\[|\b(?:pipx?|uv|tool) (?:install|inject)(?:\s+-\S+)*\s+['\"]?runwarden(?![-\w])"
)
"""Instructions to install `runwarden` from a package registry; the package of that name is not ours."""
TEXTS: Final = {".py", ".md", ".toml", ".yaml", ".yml", ".service", ".txt", ""}


def test_every_part_uses_the_same_distribution_name() -> None:
    """The program and the service share no code except this name.

    The distribution called runwarden belongs to others.
    """
    assert {DISTRIBUTION, service.DISTRIBUTION} == {PROJECT["name"]}

    places = ("app", "widgets", "storage", "service", "docs", "deploy", "bench", "tests", ".ci")
    files = [path for place in places for path in (ROOT / place).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        if path.suffix in TEXTS and path != Path(__file__) and "__pycache__" not in path.parts
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if OTHERS_NAME.search(line)
    ]

    assert found == []


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_every_dependency_of_an_extra_is_checked(extra: str) -> None:
    """A new dependency in an extra is checked before its command starts."""
    names = {re.split(r"[^\w-]", line)[0] for line in PROJECT["optional-dependencies"][extra]}

    modules = {"bc-detect-secrets": "detect_secrets", "markdown-it-py": "markdown_it", "agent-client-protocol": "acp"}

    assert {modules.get(name, name.replace("-", "_")) for name in names} <= set(EXTRAS[extra])


def test_a_release_lists_every_pinned_package_with_its_hashes() -> None:
    """The list has the format that vulnerability scanners read."""
    pins = (ROOT / "requirements" / "service.txt").read_text("utf-8")
    command = [sys.executable, ".ci/sbom.py", "0.1.0", "requirements/service.txt"]
    listed = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    assert {each["name"] for each in listed["components"]} == set(re.findall(r"(?m)^([\w.-]+)(?:\[\w+\])?==", pins))
    assert sum(len(each["hashes"]) for each in listed["components"]) == pins.count("--hash=sha256:")
    assert listed["metadata"]["component"]["name"] == DISTRIBUTION


def test_adding_an_extra_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suggested command names the installed extras too, since a forced installation has no others.

    The same holds for PostgreSQL, before a connection.
    """
    monkeypatch.setattr("app.cli.exits.EXTRAS", {"service": ("click",), "mcp": ("not_installed",)})

    with pytest.raises(CommandFailedError, match=re.escape("pipx install --force '.[service,mcp]'")):
        require_extra("mcp")

    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(DatabaseError, match=re.escape("pipx install --force '.[service,postgres]'")):
        Database("postgresql://runwarden@127.0.0.1:1/none")
