"""Interpreters to install into: those that PATH and RUNWARDEN_PYTHONS name."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from app.cli.exits import EXTRAS

VARIABLE: Final = "RUNWARDEN_PYTHONS"
"""Further interpreters, or environments that hold our dependencies, separated like PATH."""
SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14")
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


def interpreters() -> Iterator[Interpreter]:
    """Every one that runs; those named by the variable go before those on PATH."""
    named = [program for program in os.environ.get(VARIABLE, "").split(os.pathsep) if program]
    on_path = [found for version in SUPPORTED if (found := shutil.which(f"python{version}"))]
    return (found for program in [sys.executable, *named, *on_path] if (found := ask(program)) is not None)


def interpreter(version: str, *, with_libraries: bool) -> Interpreter | str:
    """Return an interpreter of a version, or the reason why there is none."""
    reason = f"no Python {version} on PATH; name one in {VARIABLE}"
    for each in interpreters():
        if each.version == version and (each.libraries or not with_libraries):
            return each
        if each.version == version:
            reason = f"Python {version} lacks our dependencies; make wheel-check installs them"
    return reason
