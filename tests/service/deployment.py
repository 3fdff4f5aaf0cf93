"""API processes and workers over one database, each of which can be killed, frozen and started again."""

import contextlib
import json
import os
from collections.abc import Iterator
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final

from service.settings import DataFolder
from service.store.database import Database
from tests.service.conftest import Api
from tests.service_process import Node, command, demo_setup, lay_tables

VARIABLE = "RUNWARDEN_SERVICE_DATABASE"
_NUMBERS: Final = count(100)


class Deployment:
    """A deployment over one database; `machine` names a data folder, so one name is one machine."""

    def __init__(self, folder: Path, database_url: str | None, settings: str, setup: dict[str, Any] | None) -> None:
        self._folder = folder
        self.settings = settings
        self.environment = {} if database_url is None else {VARIABLE: database_url}
        self.nodes: list[Node] = []
        if database_url is None:
            lay_tables(self.machine("first"))
        document = demo_setup(folder) if setup is None else setup
        (folder / "setup.json").write_text(json.dumps(document), "utf-8")
        applied = self.admin("apply", str(folder / "setup.json"))
        self.organizations = applied["organizations"]
        self.organization = self.organizations[0]
        self.repositories = {
            repository["path"]: Path(repository["url"]) for repository in self.organization["repositories"]
        }

    def machine(self, name: str) -> Path:
        place = self._folder / name
        place.mkdir(exist_ok=True)
        (place / "service.toml").write_text(self.settings, "utf-8")
        return place

    def admin(self, *arguments: str, machine: str = "first") -> dict[str, Any]:
        return command(self.machine(machine), *arguments, environment=self.environment)

    def begin(self, *arguments: str, machine: str = "first") -> Node:
        """Start a process on a machine: `serve …` or `worker …`."""
        node = Node(list(arguments), self.machine(machine), self.environment)
        node.start()
        self.nodes.append(node)
        return node

    def api(self, machine: str = "first") -> Node:
        return self.begin("serve", "--no-worker", "--port", "0", machine=machine)

    def client(self, node: Node) -> Api:
        return Api(node, self.organization)

    @cached_property
    def database(self) -> Database:
        """The database for a look at it, closed at the end."""
        return Database(self.environment.get(VARIABLE) or DataFolder(self.machine("first")).database_url)

    def close(self) -> None:
        if "database" in vars(self):
            self.database.close()
        for node in self.nodes:
            node.stop()

    def leftovers(self, machine: str = "*") -> list[str]:
        """Return folders that turns left on a machine, and processes that they left on any machine."""
        folders = [str(path) for path in self._folder.glob(f"{machine}/work/*")]
        return folders + running(marks=tuple(f"{name}={self._folder}{os.sep}" for name in ("RUNWARDEN_RESULT", "HOME")))


@contextlib.contextmanager
def deployment(
    folder: Path, database_url: str | None = None, *, settings: str = "", setup: dict[str, Any] | None = None
) -> Iterator[Deployment]:
    """Set a service up, and stop all of its processes at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(Deployment(folder, database_url, settings, setup)) as started:
        yield started


def long_sleep() -> str:
    """Return seconds to sleep that identify their process on the machine, even with another suite running."""
    return f"{os.getpid()}{next(_NUMBERS)}"


def running(*words: str, naming: str = "", marks: tuple[str, ...] = ("",)) -> list[str]:
    """Return the command lines that contain all the words, with one of the marks in their environment."""
    matching = []
    for entry in Path("/proc").glob("[0-9]*"):
        line = _read(entry / "cmdline")
        if set(words) <= set(line.split("\0")) and naming in line.replace("\0", " "):
            matching += [line.replace("\0", " ")] * any(mark in _read(entry / "environ") for mark in marks)
    return matching


def _read(file: Path) -> str:
    """Return a file's text, or nothing if the process has ended or is not ours."""
    try:
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
