"""The wheel, built and installed as a person installs it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from tests.distribution.pythons import Interpreter, interpreter

ROOT: Final = Path(__file__).parents[2]
THIS: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version that runs the tests."""


def built(folder: Path) -> Path:
    """Build the wheel there."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Installation:
    """An environment of its own, in a home that is empty, used from a folder that is not ours."""

    def __init__(self, python: Interpreter, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        subprocess.run([python.program, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        (self.libraries,) = folder.glob("venv/lib/python*/site-packages")

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.home), "LANG": "C.UTF-8"}

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet", *arguments]
        done = subprocess.run(command, cwd=self.home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def unpack(self, wheel: Path) -> None:
        """What pip does in a second and a half."""
        with ZipFile(wheel) as archive:
            archive.extractall(self.libraries)
        program = self.bin / "runwarden"
        program.write_text(
            f"#!{self.bin}/python\nimport sys\nfrom app.__main__ import main\nsys.exit(main())\n", "utf-8"
        )
        program.chmod(0o755)

    def borrow(self, libraries: str, without: tuple[str, ...] = ()) -> None:
        """Take the dependencies from elsewhere, as though some of them were not installed."""
        hide = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
        (self.libraries / "borrowed.pth").write_text(f"{libraries}\n{hide}", "utf-8")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "runwarden"), *arguments]
        return subprocess.run(command, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False)


def python_of(version: str, *, with_libraries: bool) -> Interpreter:
    found = interpreter(version, with_libraries=with_libraries)
    if isinstance(found, str):
        pytest.skip(found)
    return found
