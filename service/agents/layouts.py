"""Installed programs: finds a program, and the files and folders that it reads (npm and Python trees, too)."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.errors import ServiceError

_NODE_MODULES: Final = "node_modules"
_LONGEST_SHEBANG: Final = 512
_DEEPEST: Final = 4
"""The longest chain of interpreters that are scripts themselves."""


class NoProgramError(ServiceError):
    """A program is missing; the text says how to install it."""


@dataclass(frozen=True, slots=True)
class Program:
    """An installed program."""

    path: Path
    """The file to execute, with links resolved."""
    trees: tuple[Path, ...]
    """The paths that it reads, itself included."""
    search: tuple[Path, ...]
    """The folders of the interpreters that it finds by name."""

    @property
    def is_wrapper(self) -> bool:
        """Whether it is a script of the operator's, not one that npm installed: it may read its input to the end."""
        return _NODE_MODULES not in self.path.parts and bool(_shebang(self.path))


def find(name: str) -> Program:
    """Find a program, named by an absolute path or on the service's PATH.

    Raises:
        NoProgramError: It is not there.
    """
    found = shutil.which(name)
    if found is None:
        where = "" if "/" in name else " on the service's PATH"
        raise NoProgramError(
            f"the program {name!r} is not there{where}, or may not be executed: "
            "install it for the service's user, or correct its argv"
        )
    path = Path(found).resolve()
    search: list[Path] = []
    trees = dict.fromkeys(_trees(Path(found), search))
    return Program(path, tuple(trees), tuple(dict.fromkeys(search)))


def _trees(path: Path, search: list[Path], depth: int = 0) -> Iterator[Path]:
    real = path.resolve()
    # A virtual environment's interpreter is a link: the link's own folder shows which environment it belongs to.
    environment = next(
        (one for one in (path.parent.parent, real.parent.parent) if (one / "pyvenv.cfg").is_file()), None
    )
    if environment is not None:
        yield environment.resolve()
        # And the installation that the environment was made from.
        for line in (environment / "pyvenv.cfg").read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                folder = Path(value.strip())
                yield folder.parent
                # Its python may be a link into the installation proper, as uv and pyenv make them.
                yield (folder / "python3").resolve().parent.parent
    elif _NODE_MODULES in real.parts:
        # Packages are hoisted next to the one that needs them: the outermost folder holds all of them.
        yield Path(*real.parts[: real.parts.index(_NODE_MODULES) + 1])
    else:
        # A Python needs its library, which is next to its bin folder.
        yield real.parent.parent if real.name.startswith("python") else real
    interpreter = _interpreter(real, search)
    if interpreter is not None and depth < _DEEPEST:
        yield from _trees(interpreter, search, depth + 1)


def _interpreter(script: Path, search: list[Path]) -> Path | None:
    """Return the program that executes a script; None: it is not a script, or its interpreter is missing."""
    words = _shebang(script)
    if words and Path(words[0]).name == "env":
        named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        found = shutil.which(named)
        if found is None:
            raise NoProgramError(f"{script} needs {named!r}, which is not there: install it for the service's user")
        search.append(Path(found).parent)
        return Path(found)
    return Path(words[0]) if words else None


def _shebang(file: Path) -> list[str]:
    """Return the words of a script's first line, its interpreter first; empty: it is no script, or not readable."""
    try:
        with file.open("rb") as opened:
            line = opened.read(_LONGEST_SHEBANG).partition(b"\n")[0]
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
