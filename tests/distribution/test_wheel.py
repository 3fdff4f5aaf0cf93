"""The wheel, installed where no repository is: on every interpreter that can be had, outside of this folder."""

import json
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pytest

from app.cli.exits import EXTRAS
from tests.distribution.installation import ROOT, SUPPORTED, THIS, Installation, built, python_of
from tests.waiting import eventually

PACKAGES: Final = ("app", "widgets", "storage", "service")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def demo(installation: Installation) -> None:
    """Run the demo until its runs have ended, and take it down."""
    process = subprocess.Popen(
        [str(installation.bin / "runwarden"), "demo", "--no-console"],
        cwd=installation.home,
        env={**installation.environment, "TMPDIR": str(installation.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        assert line, process.communicate()[1]
        told = json.loads(line)
        eventually(lambda: not listed(told, "queued") and not listed(told, "working"), "every run has ended")
        assert len(listed(told, "completed")) >= 4
        assert len(listed(told, "failed")) == 1
    finally:
        process.send_signal(signal.SIGTERM)
        errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert [path for path in installation.home.iterdir() if "runwarden" in path.name] == []


def listed(told: dict[str, Any], status: str) -> list[Any]:
    request = urllib.request.Request(
        f"{told['base_url']}/external/runs?status={status}", headers={"Authorization": f"Bearer {told['token']}"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        runs: list[Any] = json.load(answer)["runs"]
        return runs


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """Samples of the demo, styles and migrations included: what is in the repository is installed."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("this folder is not a git repository")

    tracked = {name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()}
    with ZipFile(wheel) as archive:
        assert tracked - set(archive.namelist()) == set()
        assert "app/config.example.toml" in archive.namelist()


@pytest.mark.parametrize("version", [version for version in SUPPORTED if version != THIS])
def test_the_demo_works_from_the_wheel(version: str, wheel: Path, tmp_path: Path) -> None:
    """With the dependencies of an environment at hand: `make wheel-check` does it with installed ones.

    On the version that runs these tests, the demo's own ones do it (tests/demo).
    """
    python = python_of(version, with_libraries=True)
    installation = Installation(python, tmp_path)
    installation.pip("--no-compile", "--no-deps", "--no-index", str(wheel))
    installation.borrow(python.libraries)

    demo(installation)


def test_without_its_extra_a_command_says_the_cure(wheel: Path, tmp_path: Path) -> None:
    """Before it does anything: no traceback, and the name that a registry knows."""
    python = python_of(THIS, with_libraries=True)
    installation = Installation(python, tmp_path)
    installation.pip("--no-compile", "--no-deps", "--no-index", str(wheel))
    installation.borrow(python.libraries, tuple(name for extra in EXTRAS.values() for name in extra))

    for command, extra in (
        ("demo", "service"),
        ("serve", "service"),
        ("service", "service"),
        ("web", "web"),
        ("mcp", "mcp"),
    ):
        done = installation.run(command)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"pipx install --force 'runwarden-console[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("version", SUPPORTED)
def test_the_demo_works_as_people_install_it(version: str, wheel: Path, tmp_path: Path) -> None:
    """From the registry: bare it names the extra, with the extra it works."""
    installation = Installation(python := python_of(version, with_libraries=False), tmp_path)
    installation.pip(str(wheel))
    bare = installation.run("demo", "--no-console")
    assert (bare.returncode, "pipx install --force 'runwarden-console[service]'" in bare.stderr) == (2, True), bare

    begun = time.monotonic()
    installation.pip(f"{wheel}[service]")
    installed = time.monotonic()
    demo(installation)
    print(
        f"\nPython {version}, SQLite {python.sqlite}: dependencies {installed - begun:.0f} s, "
        f"demo until its runs had ended {time.monotonic() - installed:.0f} s"
    )
