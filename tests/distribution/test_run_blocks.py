"""The quick start of docs/run, typed word for word on an isolated machine, from nothing to a restored backup."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from tests.lab import Received, Respond, Step
from tests.program import ROOT
from tests.service.conftest import NEEDS_SANDBOX
from tests.service.forge.forges import GitHubServer
from tests.service.git_hosts import GitHttpHost
from tests.service.servers import make_certificate
from tests.service_process import make_repository
from tests.waiting import COLD_START_S, eventually

_CREATE: Final = ["unshare", "--map-user=1000", "--map-group=1000", "--mount", "--net", "--keep-caps", "bash", "-ec"]
_SETUP: Final = """
ip link set lo up
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
mount --bind "$1" /srv
mount --bind "$2" /etc/hosts
echo ready
exec sleep infinity
"""
_SEND: Final = """
import socket, sys
listener, channel = socket.create_server(("127.0.0.1", 443), backlog=256), socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(channel, [b"!"], [listener.fileno()])
"""


class Machine:
    """An isolated machine, whose commands see nothing of the real network, not even this machine's loopback."""

    def __init__(self, folder: Path) -> None:
        srv, hosts = folder / "srv", folder / "hosts"
        srv.mkdir(parents=True)
        hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *NAMES)), "utf-8")
        words = [*_CREATE, _SETUP, "setup", str(srv), str(hosts)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            pytest.skip(f"no namespace of its own: {self._process.communicate()[1].strip()[-300:]}")

    def inside(self, *words: str) -> list[str]:
        """Return the words of a command that runs these inside, as an ordinary user without capabilities."""
        enter = ["nsenter", "-t", str(self._process.pid), "--user", "--mount", "--net", "--preserve-credentials"]
        return [*enter, f"--wd={Path.cwd()}", "--", *words]

    def listen(self) -> socket.socket:
        """Return a socket that listens on its port 443, which servers outside may use."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = self.inside(sys.executable, "-c", _SEND, str(theirs.fileno()))
            subprocess.run(words, pass_fds=[theirs.fileno()], check=True)
            _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=descriptor)

    def close(self) -> None:
        """Remove it; its commands must have ended."""
        self._process.kill()
        self._process.communicate()


class Shell:
    """Commands typed one after the other on a machine; their exported variables persist."""

    def __init__(self, on: Machine, folder: Path, environment: Mapping[str, str]) -> None:
        self._on = on
        self._folder = folder
        self._environment = {name: value for name, value in environment.items() if value}
        self._servers: list[subprocess.Popen[str]] = []

    def run(self, line: str, stdin: str = "") -> str:
        """Run a command and return what it printed; it must succeed."""
        words = ["bash", "-c", f'cd "$1"\n{line}\nended=$?; env -0 > "$2"; exit $ended', "line"]
        kept = self._folder.parent / "environment"
        done = subprocess.run(
            self._on.inside(*words, str(self._folder), str(kept)),
            env=self._environment, input=stdin, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}{self.logs()[-3000:]}"
        entries = (entry.partition("=") for entry in kept.read_text("utf-8").split("\0")[:-1])
        self._environment = {name: value for name, _, value in entries if name not in {"PWD", "OLDPWD", "SHLVL", "_"}}
        return done.stdout

    def begin(self, line: str) -> subprocess.Popen[str]:
        """Start a server, and wait for the line that says it is ready."""
        log = self._folder.parent / f"server-{len(self._servers)}.log"
        with log.open("w") as err:
            words = self._on.inside("bash", "-c", f'cd "$1"; exec {line}', "line", str(self._folder))
            server = subprocess.Popen(words, env=self._environment, stdout=subprocess.PIPE, stderr=err, text=True)
        self._servers.append(server)
        assert server.stdout is not None
        assert server.stdout.readline(), f"$ {line}\n{log.read_text('utf-8')[-3000:]}"
        return server

    def logs(self) -> str:
        """Return the logs of all servers."""
        return "".join(file.read_text("utf-8") for file in sorted(self._folder.parent.glob("server-*.log")))

    def close(self) -> None:
        """Stop the servers."""
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.communicate(timeout=120)
        self._servers.clear()


def typed(block: str) -> Sequence[str]:
    """Return the commands of a page's block: those after a prompt, or all lines without one; no comments."""
    lines = block.replace("\\\n", " ").splitlines()
    behind = [line[2:] for line in lines if line.startswith(("$ ", "# "))]
    return behind or [line for line in lines if line.strip()]


PAGES: Final = ROOT / "docs" / "run"
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: Final = {
    (page.stem, typed(body)[0]): typed(body)
    for page in sorted(PAGES.glob("*.md"))
    for language, body in FENCE.findall(page.read_text("utf-8"))
    if language in {"", "console"}
}
"""The commands of each block, by its page and its first command."""

SERVE: Final = ("install", "export GITHUB_TOKEN=…")
START: Final = ("install", "export RUNWARDEN_BASE_URL=http://127.0.0.1:8400/v1 RUNWARDEN_TOKEN=rwt_…")
PROPOSE: Final = ("install", "runwarden service apply setup.toml --data-dir data")
BACK_UP: Final = ("upgrade", "runwarden service backup /srv/backups/runwarden.tar.gz         # SQLite, while it runs")
DELETE: Final = (
    "operations",
    "runwarden service run delete RUN_ID        # asks, unless --yes; --force: even while it works",
)
NAMES: Final = ("github.com", "api.github.com")


def block_of_toml(page: str, word: str) -> str:
    blocks = re.findall(r"```toml\n(.*?)```", (PAGES / f"{page}.md").read_text("utf-8"), re.DOTALL)
    return str(next(block for block in blocks if word in block))


class Host:
    """The parts of GitHub that the pages use."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self.certificate = make_certificate(folder / "tls", ",".join(f"DNS:{name}" for name in NAMES))
        self.bare = make_repository(folder / "hosted/acme/api", {"app.py": "password = 'hunter2'\n"})
        self.forge = GitHubServer()
        self.git = GitHttpHost(folder / "hosted", "bot-token", tls=self.certificate.server_context(), listener=listener)
        self.git.fault = self._route

    def _route(self, request: Received) -> Step | None:
        if request.path.startswith("/acme/"):
            return None
        if request.path == "/rate_limit":
            return Respond(200, {"resources": {"core": {"remaining": 9}}})
        self.forge.branches.update(self.branches())
        return self.forge.serve(request)

    def branches(self) -> dict[str, str]:
        command = ["git", "-C", str(self.bare), "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return dict(line.split() for line in listed.splitlines())

    def environment(self, home: Path) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "SSL_CERT_FILE": str(self.certificate.file)}

    def close(self) -> None:
        for server in (self.git, self.forge):
            server.close()


class Story:
    """A user at a machine who types the pages' commands."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.facts = {"GITHUB_TOKEN=…": "GITHUB_TOKEN=bot-token"}
        """The value of each placeholder."""

    def type(self, block: Sequence[str]) -> str:
        """Run the commands of a block; servers keep running."""
        return "".join(map(self._line, block))

    def _line(self, line: str) -> str:
        for placeholder, value in self.facts.items():
            line = line.replace(placeholder, value)
        if re.match(r"runwarden (serve|service worker)\b", line):
            self.shell.begin(line)
            return ""
        # A command that asks needs the name typed again.
        return self.shell.run(line, f"{line.split()[4]}\n" if " delete " in line else "")


@NEEDS_SANDBOX
def test_the_pages_lead_from_nothing_to_a_pull_request_and_on(tmp_path: Path) -> None:
    """Everything is typed word for word, except for placeholders: a token and a run's id.

    The pages create a commit on a branch, then a draft on GitHub, delete a run, and restore it from the backup.
    """
    (folder := tmp_path / "new").mkdir()
    setup = folder / "setup.toml"
    setup.write_text(block_of_toml("install", "quick start"), "utf-8")
    with ExitStack() as stack:
        on = stack.enter_context(closing(Machine(tmp_path / "machine")))
        host = stack.enter_context(closing(Host(tmp_path, on.listen())))
        # The worker of the first block needs it too.
        environment = host.environment(tmp_path) | {"BROWSER": "true", "GITHUB_TOKEN": "bot-token"}
        reader = Story(shell := stack.enter_context(closing(Shell(on, folder, environment))))
        found = re.search(r"rwt_[\w-]+", printed := reader.type(BLOCKS[SERVE]))
        assert found is not None, printed
        reader.facts["rwt_…"] = found[0]
        assert "completed" in reader.type(BLOCKS[START]), shell.logs()
        assert any(name.startswith("agent/review-what-is-there") for name in host.branches())

        with setup.open("a", encoding="utf-8") as file:
            file.write(block_of_toml("install", "proposer"))
        apply, propose, newest, look = BLOCKS[PROPOSE]
        reader.type([apply, propose])
        eventually(lambda: host.forge.changes and host.forge.statuses, "the pull request is opened", COLD_START_S)
        run_id = re.search(r"run_\w+", reader.type([newest]))
        assert run_id is not None
        reader.facts |= {"run_01J…": run_id[0], "RUN_ID": run_id[0], "SLUG": "acme"}
        opened = reader.type([look])
        (change,) = host.forge.changes
        assert (change.draft, change.base) == (True, "main")
        assert change.url in opened

        shell.run("export RUNWARDEN_SERVICE_DATA_DIR=data; mkdir -p /srv/backups")
        keep, restore, *_ = BLOCKS[BACK_UP]
        reader.type([keep])
        reader.type(BLOCKS[DELETE])
        shell.close()
        shell.run("export RUNWARDEN_SERVICE_DATA_DIR=restored")
        reader.type([restore])

        assert run_id[0] in shell.run("runwarden service run list")
