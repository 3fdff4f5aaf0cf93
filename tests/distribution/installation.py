"""The wheel, built and installed as a person installs it, on the interpreters that PATH and RUNWARDEN_PYTHONS name."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from app.cli.exits import EXTRAS

ROOT: Final = Path(__file__).parents[2]
VARIABLE: Final = "RUNWARDEN_PYTHONS"
"""Further interpreters, or environments that hold our dependencies, separated like PATH."""
SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14")
THIS: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version that runs the tests."""
_ASK: Final = """
import json, sqlite3, sys, sysconfig
from importlib.util import find_spec
is_complete = all(find_spec(name) for name in sys.argv[1:])
libraries = sysconfig.get_path("purelib") if is_complete else ""
print(json.dumps(["%d.%d" % sys.version_info[:2], libraries, sqlite3.sqlite_version]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that runs."""

    program: str
    version: str
    libraries: str
    """Where its packages are, if our dependencies are among them; else empty."""
    sqlite: str


@cache
def ask(program: str) -> Interpreter | None:
    """Start an interpreter; None where it does not run: a version manager leaves names that lead nowhere."""
    needed = ("textual", *EXTRAS["service"])
    done = subprocess.run([program, "-I", "-c", _ASK, *needed], capture_output=True, text=True, check=False)
    return None if done.returncode else Interpreter(program, *json.loads(done.stdout))


def python_of(version: str, *, with_libraries: bool) -> Interpreter:
    """Return an interpreter of a version, those named by the variable before those on PATH; skip without one."""
    named = [program for program in os.environ.get(VARIABLE, "").split(os.pathsep) if program]
    on_path = [found for each in SUPPORTED if (found := shutil.which(f"python{each}"))]
    known = [found for program in [sys.executable, *named, *on_path] if (found := ask(program))]
    of_version = [found for found in known if found.version == version]
    for found in of_version:
        if found.libraries or not with_libraries:
            return found
    lacking = f"Python {version} lacks our dependencies; make wheel-check installs them"
    pytest.skip(lacking if of_version else f"no Python {version} on PATH; name one in {VARIABLE}")


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
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        self.environment = {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}

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
