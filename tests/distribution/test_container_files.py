"""Dockerfile, compose.yaml, Caddyfile, CI and systemd units, read only; `make container-check` starts them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from service.settings import Settings
from tests.program import ROOT

FOLDER: Final = ROOT / "deploy" / "container"
UNITS: Final = ROOT / "deploy" / "systemd"
EXPOSURE: Final = {"runwarden-serve.service": 1.5, "runwarden-watch.service": 2.5, "runwarden-worker@.service": 3.5}
"""The highest exposure that `systemd-analyze security` may report, of 10; agents need namespaces and mounts."""
COMPOSE: Final[Mapping[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
SERVICES: Final = COMPOSE["services"]
DOCKERFILE: Final = (FOLDER / "Dockerfile").read_text("utf-8")


def linter(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        fix = "Debian's package: caddy" if name == "caddy" else "make .venv/.containers installs it"
        pytest.skip(f"no {name}; {fix}")
    return found


@pytest.mark.parametrize(
    "command",
    [
        "hadolint Dockerfile agent.Dockerfile",
        "check-jsonschema --builtin-schema vendor.compose-spec compose.yaml",
        "check-jsonschema --builtin-schema vendor.github-workflows ../../.github/workflows/ci.yml",
        "caddy validate --adapter caddyfile --config Caddyfile",
    ],
)
def test_container_files_pass_their_linters(command: str, tmp_path: Path) -> None:
    name, *arguments = command.split()
    # Caddy creates its certificate authority in its home.
    home = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    argv = [linter(name), *arguments]
    done = subprocess.run(argv, cwd=FOLDER, env=home, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_containers_are_confined_behind_a_proxy() -> None:
    """Only the proxy is reachable from outside, nothing runs as root, and agents need a sandbox.

    A container may write only to its data, and is stopped half a minute after the running turns' limit, or later.
    """
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    assert SERVICES["worker"]["deploy"]["replicas"] == 2
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    for name in ("api", "worker"):
        assert (SERVICES[name]["read_only"], SERVICES[name]["cap_drop"]) == (True, ["ALL"])
        assert "no-new-privileges:true" in SERVICES[name]["security_opt"]
    assert 'sandbox = "require"' in (FOLDER / "service.toml").read_text("utf-8")

    grace_s = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace_s >= Settings().execution.drain_s + 30


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze; Debian's package: systemd")
def test_units_have_no_fault_and_are_hardened(tmp_path: Path) -> None:
    """Units have no unknown setting and refer to nothing missing; removing a restriction fails this test."""
    for unit in UNITS.iterdir():
        text = unit.read_text("utf-8").replace("/opt/runwarden/bin/runwarden", "/bin/true")
        (tmp_path / unit.name).write_text(text, "utf-8")

    def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["systemd-analyze", "--no-pager", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = analyze("verify", *sorted(EXPOSURE))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for unit, exposure in EXPOSURE.items():
        done = analyze("security", "--offline=true", f"--threshold={exposure * 10:.0f}", unit)
        assert done.returncode == 0, done.stdout[-2000:]
