"""Containers by podman: the image built, and its services started as compose.yaml says, with no registry of images."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "container"
COMPOSE: Final[Mapping[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
IMAGE: Final = "localhost/runwarden-check"
BASE: Final = "docker.io/library/python:3.13-slim-bookworm"
STAND_IN: Final = "localhost/runwarden-check-base"
"""Debian with its own Python, made by debootstrap, where the base cannot be pulled."""
_SECURITY: Final = {"no-new-privileges:true": "no-new-privileges", "systempaths=unconfined": "unmask=ALL"}
"""What Docker calls otherwise than podman."""
# The machine's own limits: a container may not raise them.
_LIMITS: Final = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")


class NoContainersError(Exception):
    """Containers cannot be had here; the text says why."""


class Podman:
    """podman, with the options that this machine needs."""

    def __init__(self) -> None:
        if shutil.which("podman") is None:
            raise NoContainersError("no podman; Debian's packages: podman runc catatonit debootstrap")
        runtime = ["--runtime", "runc"] if shutil.which("runc") else []
        self._command = ["podman", *runtime, "--cgroup-manager", "cgroupfs"]
        self._started: list[str] = []

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """Run one command of podman and return what it printed on stdout."""
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"podman {arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def logs(self, name: str) -> str:
        """Return all that a container has printed."""
        done = subprocess.run([*self._command, "logs", name], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    def build(self, dockerfile: Path, tag: str, context: Path, *options: str) -> None:
        """Build an image; the machine's certificate authorities are those of the build."""
        known = ("--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--isolation", "chroot", "--network", "host")
        self("build", "--format", "docker", *known, "--file", str(dockerfile), "--tag", tag, *options, str(context))

    def base(self) -> str:
        """Return the base to build on: as the Dockerfile names it, else the stand-in."""
        for image in (BASE, STAND_IN):
            if self("images", "--quiet", image):
                return image
        if subprocess.run([*self._command, "pull", "--quiet", BASE], capture_output=True, check=False).returncode == 0:
            return BASE
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            raise NoContainersError(f"{BASE} cannot be pulled, and debootstrap is missing or not run by root")
        return self._stand_in()

    def _stand_in(self) -> str:
        # Not below TMPDIR: debootstrap refuses a place that is mounted without devices.
        folder = Path("/var/tmp/runwarden-check-base")
        shutil.rmtree(folder, ignore_errors=True)
        include = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", include, "bookworm", str(folder)], check=True)
        archive = folder.with_suffix(".tar")
        subprocess.run(["tar", "--create", "--file", str(archive), "--directory", str(folder), "."], check=True)
        self("import", str(archive), STAND_IN)
        shutil.rmtree(folder)
        archive.unlink()
        return STAND_IN

    def start(self, name: str, *options: str, command: Sequence[str] = (), image: str = IMAGE) -> None:
        """Start a container in the background, on this machine's network."""
        self._started.append(name)
        self("rm", "--force", "--ignore", name)
        self("run", "--detach", "--name", name, "--network", "host", *_LIMITS, *options, image, *command)

    def run(self, *options: str, command: Sequence[str], image: str = IMAGE) -> str:
        """Run a container to its end and return what it printed."""
        return self("run", "--rm", "--network", "host", *_LIMITS, *options, image, *command)

    def clean(self) -> None:
        """Remove what was started."""
        for name in self._started:
            self("rm", "--force", "--time", "5", "--ignore", "--volumes", name, check=False)


def options_of(service: str) -> list[str]:
    """Return podman's options for what compose.yaml says about a service's confinement."""
    said = COMPOSE["services"][service]
    options = ["--init"] if said["init"] else []
    options += ["--read-only"] if said["read_only"] else []
    options += [f"--cap-drop={name}" for name in said["cap_drop"]]
    options += [f"--tmpfs={place}" for place in said["tmpfs"]]
    for option in said["security_opt"]:
        options += ["--security-opt", _SECURITY.get(option, option)]
    return [*options, *(f"--device={name}" for name in said.get("devices", []))]
