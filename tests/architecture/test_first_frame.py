"""What a start may import before the first picture: each of these would be seen as a wait."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRAME = "import app.__main__, app.start.first_frame"
EARLY = "import app.__main__, app.config, app.console, app.console.runs.views"
FIRST = (
    "storage.cache.first_paint, app.console.app, app.console.runs.screen, app.console.engines,"
    " app.console.terminal.process, app.console.terminal.terminal"
)
CONSOLE = f"{EARLY}, {FIRST}"
SLOW = {
    "httpx",
    "pydantic",
    "apscheduler",
    "sqlite_utils",
    "click",
    "plotext",
    "app.engine",
    "app.api.client",
    "app.actions",
    "app.console.forms",
    "app.console.keys.keymap",
    "storage.ledger",
    "storage.cache.cache",
}


def imported(program: str) -> set[str]:
    """The modules that a program leaves imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("program", [EARLY, CONSOLE])
def test_what_takes_long_is_imported_after_the_first_picture(program: str) -> None:
    """The network, the schedule, the ledger, the forms, the command line, and what the cache needs to write."""
    assert imported(program) & SLOW == set()


def test_the_first_frame_needs_next_to_nothing() -> None:
    """Neither the toolkit nor the heavier half of the standard library is imported before it."""
    assert imported(FRAME).isdisjoint({"textual", "typing", "re", "pathlib", "json", "enum", "app.config"})
