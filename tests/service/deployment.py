"""A deployment: API processes and workers over one database, each of which can be killed, frozen and started again."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.service.processes import marked
from tests.service_process import command, demo_setup, launch

VARIABLE = "RUNWARDEN_SERVICE_DATABASE"


@dataclass
class Node:
    """One process of the service: what it is started with, and the process that runs at present."""

    arguments: list[str]
    data_dir: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[str] | None = None
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.data_dir / "serve.log").read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start the process and wait for the line it prints when it is ready."""
        self.process, self.ready = launch(self.data_dir, self.arguments, self.environment)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, not to what it started."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process with SIGKILL: nothing of it gets a chance to tidy up."""
        assert self.process is not None
        self.process.kill()
        self._collect()

    def stop(self) -> int:
        """End the process with SIGTERM and return its exit status."""
        if self.process is not None and self.process.poll() is None:
            # A frozen process would not hear it.
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        return self._collect()

    def _collect(self) -> int:
        assert self.process is not None
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
        return status


class Deployment:
    """Everything over one database; `machine` names the data folder, so that one name is one machine."""

    def __init__(self, folder: Path, database_url: str | None, settings: str, setup: dict[str, Any] | None) -> None:
        self._folder = folder
        self._settings = settings
        self.environment = {} if database_url is None else {VARIABLE: database_url}
        self.nodes: list[Node] = []
        document = demo_setup(folder) if setup is None else setup
        (folder / "setup.json").write_text(json.dumps(document), "utf-8")
        made = self.admin("apply", str(folder / "setup.json"))
        self.token = str(made["organizations"][0]["tokens"][0]["value"])
        self.repositories = {one["path"]: Path(one["url"]) for one in made["organizations"][0]["repositories"]}

    def machine(self, name: str) -> Path:
        """Return the data folder of a machine."""
        place = self._folder / name
        place.mkdir(exist_ok=True)
        (place / "service.toml").write_text(self._settings, "utf-8")
        return place

    def admin(self, *arguments: str, machine: str = "first") -> dict[str, Any]:
        """Run an administrating command on a machine and return its JSON."""
        return command(self.machine(machine), *arguments, environment=self.environment)

    def begin(self, *arguments: str, machine: str = "first") -> Node:
        """Start a process on a machine: `serve …` or `worker …`."""
        node = Node(list(arguments), self.machine(machine), self.environment)
        self.nodes.append(node)
        node.start()
        return node

    def api(self, machine: str = "first", *arguments: str) -> Node:
        """Start an API process without a worker."""
        return self.begin("serve", "--no-worker", "--port", "0", *arguments, machine=machine)

    def client(self, node: Node) -> httpx.Client:
        """Return a client of an API process."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=node.ready["base_url"], headers=headers, timeout=60, trust_env=False)

    def leftovers(self) -> list[str]:
        """Return processes and folders that a turn of any machine of this deployment has left."""
        found = [str(path) for path in self._folder.glob("*/work/*")]
        return found + marked(*(f"{name}={self._folder}{os.sep}" for name in ("RUNWARDEN_RESULT", "HOME")))


@contextlib.contextmanager
def deployment(
    folder: Path, database_url: str | None = None, *, settings: str = "", setup: dict[str, Any] | None = None
) -> Iterator[Deployment]:
    """Set a service up, and end all of its processes at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Deployment(folder, database_url, settings, setup)
    try:
        yield made
    finally:
        for node in made.nodes:
            node.stop()
