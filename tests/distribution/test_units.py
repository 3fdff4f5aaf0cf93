"""The systemd units: what systemd itself makes of them; `make container-check` runs them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
UNITS: Final = ROOT / "deploy" / "systemd"
EXPOSURE: Final = {"runwarden-serve.service": 1.5, "runwarden-watch.service": 2.5, "runwarden-worker@.service": 3.5}
"""The most that `systemd-analyze security` may find, of 10; a worker's agents need namespaces and mounts."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze; Debian's package: systemd"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for unit in UNITS.iterdir():
        text = unit.read_text("utf-8").replace("/opt/runwarden/bin/runwarden", "/bin/true")
        (tmp_path / unit.name).write_text(text, "utf-8")
    return tmp_path


def analyze(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_systemd_finds_no_fault_in_the_units(folder: Path) -> None:
    """No unknown setting, no value out of range, nothing that refers to what is missing."""
    done = analyze("verify", *sorted(EXPOSURE), cwd=folder)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", sorted(EXPOSURE))
def test_a_unit_is_hardened(unit: str, folder: Path) -> None:
    """As far as its work allows; a setting that is dropped fails here."""
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE[unit] * 10:.0f}", unit, cwd=folder)

    assert done.returncode == 0, done.stdout[-2000:]
