"""The image and the units, started by `make container-check` (takes minutes)."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.distribution.test_container_files import COMPOSE, FOLDER
from tests.program import ROOT
from tests.service.postgres import NoPostgresError, cluster
from tests.service_process import make_repository
from tests.waiting import eventually

pytestmark = pytest.mark.campaign
IMAGE: Final = "localhost/runwarden-check"
_SECURITY: Final = {"no-new-privileges:true": "no-new-privileges", "systempaths=unconfined": "unmask=ALL"}
"""What Docker names differently from podman."""
# The machine's own limits: a container may not raise them.
_LIMITS: Final = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
USER: Final = 10001
PORT: Final = 8400
DATA: Final = "/var/lib/runwarden"
SYSTEMD: Final = f"""
FROM {IMAGE}
USER root
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd
COPY systemd /etc/systemd/system
RUN systemctl enable runwarden-serve.service runwarden-worker@1.service
ENTRYPOINT []
CMD ["/lib/systemd/systemd"]
"""


class Podman:
    """podman, with the options that this machine needs."""

    def __init__(self) -> None:
        runtime = ["--runtime", "runc"] if shutil.which("runc") else []
        self._command = ["podman", *runtime, "--cgroup-manager", "cgroupfs"]
        self._started: list[str] = []

    def __call__(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"podman {arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def logs(self, name: str) -> str:
        done = subprocess.run([*self._command, "logs", name], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    def build(self, dockerfile: Path, tag: str, context: Path, *options: str) -> None:
        """Build an image with the machine's certificate authorities."""
        known = ("--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--isolation", "chroot", "--network", "host")
        self("build", "--format", "docker", *known, "--file", str(dockerfile), "--tag", tag, *options, str(context))

    def start(self, name: str, *options: str, command: Sequence[str] = (), image: str = IMAGE) -> None:
        self._started.append(name)
        self("rm", "--force", "--ignore", name)
        self("run", "--detach", "--name", name, "--network", "host", *_LIMITS, *options, image, *command)

    def run(self, *options: str, command: Sequence[str], image: str = IMAGE) -> str:
        return self("run", "--rm", "--network", "host", *_LIMITS, *options, image, *command)

    def clean(self) -> None:
        for name in self._started:
            self("rm", "--force", "--time", "5", "--ignore", "--volumes", name, check=False)


def options_of(service: str) -> list[str]:
    """Return podman's options for a service's confinement in compose.yaml."""
    said = COMPOSE["services"][service]
    options = ["--init"] if said["init"] else []
    options += ["--read-only"] if said["read_only"] else []
    options += [f"--cap-drop={name}" for name in said["cap_drop"]]
    options += [f"--tmpfs={place}" for place in said["tmpfs"]]
    for option in said["security_opt"]:
        options += ["--security-opt", _SECURITY.get(option, option)]
    return [*options, *(f"--device={name}" for name in said.get("devices", []))]


@pytest.fixture(scope="module")
def built() -> Podman:
    if shutil.which("podman") is None:
        pytest.skip("no podman; Debian's packages: podman runc catatonit")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"port {PORT} is in use")
    made = Podman()
    made.build(FOLDER / "Dockerfile", IMAGE, ROOT, "--ignorefile", str(FOLDER / "Dockerfile.dockerignore"))
    return made


@pytest.fixture
def podman(built: Podman) -> Iterator[Podman]:
    yield built
    built.clean()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    make_repository(folder / "repositories" / "acme" / "api", {"app.py": "print('hello')\n"})
    organization = {
        "name": "Acme",
        "entitlements": ["ServiceAPI"],
        "tokens": [{"alias": "check", "scopes": ["admin"]}],
        "hosts": [{"platform": "github", "probe": "git", "clone_url": f"{DATA}/repositories/{{path}}.git"}],
        "repositories": [{"name": "api", "platform": "github", "path": "acme/api"}],
    }
    (folder / "setup.json").write_text(json.dumps({"organizations": [organization]}), "utf-8")
    shutil.copy(FOLDER / "service.toml", folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)
    return folder


def client_of(made: str) -> httpx.Client:
    token = json.loads(made)["organizations"][0]["tokens"][0]["value"]
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{PORT}", headers=headers, trust_env=False, timeout=60)


def execute_a_run(client: httpx.Client) -> None:
    """Start a run and wait until it is completed."""
    repository = {"platform": "github", "data": {"owner": "acme", "repo": "api"}}
    run = {"instructions": "Review it.", "repository": repository}
    assert client.post("/v1/external/runs", json=run).status_code == 201

    def ended(status: str) -> bool:
        return len(client.get("/v1/external/runs", params={"status": status}).json()["runs"]) == 1

    eventually(lambda: ended("completed") or ended("failed"), "the run has ended")
    assert ended("completed")


def test_one_api_and_two_workers_execute_runs(podman: Podman, data: Path) -> None:
    """The containers are confined as compose.yaml says: not as root, with agents in a sandbox; SIGTERM drains."""
    names = ["check-api", "check-worker-1", "check-worker-2"]
    try:
        with cluster() as database:
            url = f"RUNWARDEN_SERVICE_DATABASE={database.create('runwarden')}"
            api, worker = ([f"--volume={data}:{DATA}", "--env", url, *options_of(name)] for name in ("api", "worker"))
            made = podman.run(*api, command=["service", "apply", f"{DATA}/setup.json", "--json"])
            podman.start(names[0], *api, command=COMPOSE["services"]["api"]["command"])
            for name in names[1:]:
                podman.start(name, *worker, command=COMPOSE["services"]["worker"]["command"])
            for name in names[1:]:
                eventually(lambda name=name: '{"worker"' in podman.logs(name), "the worker is ready")  # type: ignore[misc]
            eventually(lambda: '{"base_url"' in podman.logs(names[0]), "the service is ready")

            execute_a_run(client_of(made))
            podman("healthcheck", "run", names[0])
            assert podman("exec", names[0], "id", "--user").strip() == str(USER)
            # Whether agents may have a network depends on the machine's /dev/net/tun.
            assert all("sandbox: bubblewrap (works here" in podman.logs(name) for name in names[1:])
            podman("stop", "--time", "60", *names)
            assert podman("inspect", "--format", "{{.State.ExitCode}}", *names).split() == ["0", "0", "0"]
            assert all("drained" in podman.logs(name) for name in names[1:])
    except NoPostgresError as error:
        pytest.skip(str(error))


def test_systemd_runs_the_units(podman: Podman, data: Path, tmp_path: Path) -> None:
    """With all restrictions the units become ready, a turn runs in its sandbox, and stopping drains."""
    shutil.copytree(ROOT / "deploy" / "systemd", tmp_path / "systemd")
    (tmp_path / "Dockerfile").write_text(SYSTEMD, "utf-8")
    podman.build(tmp_path / "Dockerfile", f"{IMAGE}-systemd", tmp_path)
    cgroups, volume = "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw", f"--volume={data}:{DATA}"
    podman.start("check-systemd", "--systemd=always", "--privileged", cgroups, volume, image=f"{IMAGE}-systemd")
    units = ["runwarden-serve.service", "runwarden-worker@1.service"]

    def told(*command: str) -> str:
        return podman("exec", "check-systemd", *command, check=False)

    eventually(lambda: told("systemctl", "is-active", *units).split() == ["active", "active"], "both units are active")
    # In the container's own /dev, as udev would create it; there is no udev here.
    told("chmod", "0666", "/dev/net/tun")
    told("systemctl", "restart", units[1])
    runwarden = ["runuser", "-u", "runwarden", "--", "/opt/runwarden/bin/runwarden"]
    made = told(*runwarden, "service", "apply", f"{DATA}/setup.json", "--data-dir", DATA, "--json")
    execute_a_run(client_of(made))
    told("systemctl", "stop", *units)

    journal = told("journalctl", "--no-pager", "--output=cat", "--unit", units[1])
    assert told("systemctl", "show", "--property=Result", "--value", *units).split() == ["success", "success"]
    assert "sandbox: bubblewrap (works here)" in journal
    assert "drained" in journal
