"""A machine of a test's own: its network, some of its folders, and an ordinary user, in namespaces of the kernel."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

_CREATE: Final = ["unshare", "--map-user=1000", "--map-group=1000", "--mount", "--net", "--keep-caps", "bash", "-ec"]
_SETUP: Final = """
ip link set lo up
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
mount --bind "$1" /srv
mount --bind "$2" /etc/hosts
eval "$3"
echo ready
exec sleep infinity
"""
_SEND: Final = """
import socket, sys
address, port, channel = sys.argv[1], int(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))
family = socket.AF_INET6 if ":" in address else socket.AF_INET
listener = socket.create_server((address, port), family=family, backlog=256)
socket.send_fds(channel, [b"!"], [listener.fileno()])
"""


class Machine:
    """The commands that are run there see nothing of the real network: not even this machine's loopback."""

    def __init__(self, folder: Path, names: Mapping[str, str], setup: str = "") -> None:
        """`names`: all that it can look up. `setup`: commands of a shell that may change its network and mounts."""
        self.srv = folder / "srv"
        self.srv.mkdir(parents=True)
        hosts = folder / "hosts"
        lines = {"localhost": "127.0.0.1"} | dict(names)
        hosts.write_text("".join(f"{address} {name}\n" for name, address in lines.items()), "utf-8")
        words = [*_CREATE, _SETUP, "setup", str(self.srv), str(hosts), setup]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            pytest.skip(f"no namespace of its own: {self._process.communicate()[1].strip()[-300:]}")

    def inside(self, *words: str) -> list[str]:
        """Return the words of a command that runs these there, as an ordinary user without capabilities."""
        enter = ["nsenter", "-t", str(self._process.pid), "--user", "--mount", "--net", "--preserve-credentials"]
        return [*enter, f"--wd={Path.cwd()}", "--", *words]

    def listen(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens there; servers out here may use it."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            words = self.inside(sys.executable, "-c", _SEND, address, str(port), str(theirs.fileno()))
            subprocess.run(words, pass_fds=[theirs.fileno()], check=True)
            _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=descriptor)

    def close(self) -> None:
        """End it; its commands must have ended."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def machine(folder: Path, names: Mapping[str, str], setup: str = "") -> Iterator[Machine]:
    """Make one; where the kernel allows none, the test is skipped."""
    with contextlib.closing(Machine(folder, names, setup)) as made:
        yield made


class Shell:
    """Commands that are typed one after the other on a machine; what they export stays."""

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
        """Start a server, and wait until it has printed the line that says that it is ready."""
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
        """End the servers."""
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.communicate(timeout=120)
        self._servers.clear()


def typed(block: str) -> Sequence[str]:
    """Return the commands of a block of a page: behind a prompt, or all lines if there is no prompt; no comments."""
    lines = block.replace("\\\n", " ").splitlines()
    behind = [line[2:] for line in lines if line.startswith(("$ ", "# "))]
    return behind or [line for line in lines if line.strip()]
