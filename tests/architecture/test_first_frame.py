"""What a start may import before the first frame; users would notice the wait for these modules."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRAME = "import app.__main__, app.start.first_frame"
EARLY = "import app.__main__, app.profiles, app.console, app.runs.screen_views"
FIRST = (
    "storage.cache.first_paint, app.console.app, app.runs.screen, app.profiles.engines,"
    " app.console.process, app.console.terminal"
)
SLOW = """httpx pydantic apscheduler sqlite_utils click plotext app.engine.engine app.api.client app.actions.actions
app.actions.screen_form app.console.keymap storage.ledger storage.cache.cache"""
COMMANDS = """
from app.__main__ import main
for line in ("--version", "--help", "config path", "config check", "profiles list", "runs list --help"):
    main(line.split())
"""
HELP = "from app.__main__ import main; main(['--help'])"


@pytest.mark.parametrize(
    ("program", "slow"),
    [
        (FRAME, "textual typing re pathlib json enum app.profiles"),
        (f"{EARLY}, {FIRST}", SLOW),
        (COMMANDS, "textual httpx pydantic apscheduler sqlite_utils rich sqlite3 asyncio tomlkit csv mcp"),
        (HELP, "pathlib json dataclasses signal msgspec app.profiles app.cli.output app.cli.exits"),
    ],
    ids=["the first frame", "the first picture", "what is at hand", "help"],
)
def test_slow_modules_are_imported_after_the_first_frame(tmp_path: Path, program: str, slow: str) -> None:
    """The toolkit, the network, the ledger, the forms and most libraries are imported after the first frame."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint('LOADED', *sys.modules)"],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "RUNWARDEN_BASE_URL": "http://127.0.0.1:9/v1", "RUNWARDEN_TOKEN": "token"},
        check=True,
        capture_output=True,
        text=True,
    )

    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "LOADED"
    assert set(loaded).isdisjoint(slow.split())
