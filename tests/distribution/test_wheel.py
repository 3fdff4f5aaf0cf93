"""The wheel works without the repository, on every available interpreter."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import httpx
import pytest

from tests.program import ROOT
from tests.waiting import COLD_START_S, eventually

PACKAGES: Final = ("app", "widgets", "storage", "service")
VARIABLE: Final = "RUNWARDEN_PYTHONS"
"""Further interpreters, or environments with our dependencies, separated like PATH."""
SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14")


def python_of(version: str) -> str:
    """Return an interpreter of a version, preferring those of the variable to those on PATH; skip without one."""
    named = [program for program in os.environ.get(VARIABLE, "").split(os.pathsep) if program]
    on_path = [found for each in SUPPORTED if (found := shutil.which(f"python{each}"))]
    for program in [sys.executable, *named, *on_path]:
        # Version managers leave names on PATH that do not run.
        done = subprocess.run([program, "-I", "--version"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.startswith(f"Python {version}."):
            return program
    pytest.skip(f"no Python {version} on PATH; name one in {VARIABLE}")


class Installation:
    """An environment with an empty home, used from a folder outside the repository."""

    def __init__(self, python: str, folder: Path) -> None:
        self.bin = folder / "venv" / "bin"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        self.environment = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet", *arguments]
        done = subprocess.run(command, cwd=self.home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "runwarden"), *arguments]
        return subprocess.run(command, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (built := os.environ.get("RUNWARDEN_WHEEL")) is not None:  # A release checks the file that it publishes.
        return Path(built)
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def demo(installation: Installation) -> None:
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
        address, headers = f"{told['base_url']}/external/runs", {"Authorization": f"Bearer {told['token']}"}
        with httpx.Client(headers=headers, trust_env=False, timeout=60) as client:
            completed = lambda: client.get(address, params={"status": "completed"}).json()["runs"]  # noqa: E731
            eventually(lambda: len(completed()) >= 4, "four runs are completed", COLD_START_S, saw=completed)
    finally:
        process.send_signal(signal.SIGTERM)
        errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert [path for path in installation.home.iterdir() if "runwarden" in path.name] == []


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    """All files of the repository's packages are installed, including samples, styles and migrations."""
    command = ["git", "ls-files", "-z", *PACKAGES]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("this folder is not a git repository")

    tracked = {name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()}
    with ZipFile(wheel) as archive:
        assert tracked - set(archive.namelist()) == set()
        assert "app/config.example.toml" in archive.namelist()
        (scripts,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "runwarden = app.__main__:main" in archive.read(scripts).decode()


@pytest.mark.campaign
@pytest.mark.parametrize("version", SUPPORTED)
def test_the_demo_works_as_people_install_it(version: str, wheel: Path, tmp_path: Path) -> None:
    """Without the extra, the demo's error names it; with the extra, the demo works."""
    installation = Installation(python_of(version), tmp_path)
    installation.pip(str(wheel))
    bare = installation.run("demo", "--no-console")
    assert (bare.returncode, "pipx install --force '.[service]'" in bare.stderr) == (2, True), bare

    begun = time.monotonic()
    installation.pip(f"{wheel}[service]")
    installed = time.monotonic()
    demo(installation)
    took_s = time.monotonic() - installed
    print(f"\nPython {version}: installed in {installed - begun:.0f} s, demo {took_s:.0f} s")
