"""The import contracts hold, and a breach of each is detected."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "widgets", "storage", "service")

BREACHES = {
    "app/sync/polling.py": "import app.engine.engine",
    "app/automations/rule.py": "import app.engine.engine",
    "app/results/diff.py": "import storage.cache",
    "storage/__init__.py": "import app.engine.text",
    "storage/records/run.py": "import pydantic",
    "widgets/__init__.py": "import app.engine.engine",
    "service/triggers/payloads.py": "import service.hosts",
    "service/agents/options.py": "import service.store.agents",
    "service/settings.py": "import app.engine.text",
    "app/demo/__init__.py": "import service.settings",
    "service/execution/turn.py": "import service.forge",
    "app/sync/runs.py": "import httpx",
}
"""One forbidden import for each contract."""


def test_a_breach_of_each_contract_is_caught(tmp_path: Path) -> None:
    """Each contract is broken by one of these imports, so none is ineffective; `make lint` checks the code itself."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "samples"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line in BREACHES.items():
        with (tmp_path / file).open("a", encoding="utf-8") as written:
            written.write(f"\n{line}\n")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config", tmp_path / "pyproject.toml"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "400"},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode != 0
    assert len(contracts) == len(BREACHES)
    assert [one["name"] for one in contracts if f"{one['name']} BROKEN" not in done.stdout] == [], done.stdout
