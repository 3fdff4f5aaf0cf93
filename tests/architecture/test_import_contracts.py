"""The picture of who may import whom is held, and a breach of it is seen."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "widgets", "storage", "service")

BREACHES = {
    "The picture: surfaces above the engine, the engine above what it runs, facts at the bottom": (
        "app/engine.py",
        "import app.console",
    ),
    "No two parts of the console import each other: screens post messages, and only the app knows every screen": (
        "app/console/base/screen.py",
        "import app.console.runs.screen",
    ),
    "Rules are only words: what carries them out is app.automations": ("app/rules/rule.py", "import app.engine"),
    "What a run did is read from git and the API: app.results touches neither cache nor ledger": (
        "app/results/diff.py",
        "import storage.cache",
    ),
    "Storage knows nothing above it": ("storage/__init__.py", "import app.text"),
    "The records are only words: they import nothing of ours but each other, and no library": (
        "storage/records/run.py",
        "import pydantic",
    ),
    "Widgets draw facts: they see the records, app.text and app.times, and nothing that does I/O": (
        "widgets/__init__.py",
        "import app.engine",
    ),
    "Deliveries are decided on from what they say and the database: service.triggers asks no one else": (
        "service/triggers/rules.py",
        "import service.hosts.http",
    ),
    "The service shares no code with the program: both are written from the spec": (
        "service/settings.py",
        "import app.text",
    ),
    "Nothing imports the service, or what it is built with: it is another process": (
        "app/demo/__init__.py",
        "import service.settings",
    ),
    "What runs agents knows no forge: its tokens are used by service.forge, outside of any turn": (
        "service/execution/turn.py",
        "import service.forge.client",
    ),
    "Each of these libraries has its home: nothing else imports it, nor does a new package": (
        "app/sync/runs.py",
        "import httpx",
    ),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", folder / "pyproject.toml"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "400"},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "samples"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_every_contract(tree: Path) -> None:
    """The code as it stands obeys the picture."""
    done = lint(tree)

    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_a_breach_of_each_contract_is_caught(tree: Path) -> None:
    """One forbidden import for each contract turns exactly that contract red: none of them is mere decoration."""
    for file, line in BREACHES.values():
        path = tree / file
        path.write_text(f"{path.read_text()}\n{line}\n")
    done = lint(tree)

    assert done.returncode != 0
    missed = [name for name in BREACHES if f"{name} BROKEN" not in done.stdout]
    assert missed == [], done.stdout


def test_every_contract_has_a_breach_that_proves_it() -> None:
    """A contract that is added without its proof is noticed."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

    assert {contract["name"] for contract in contracts} == set(BREACHES)
