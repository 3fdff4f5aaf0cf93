"""Every block of commands in docs/run: run word for word on a machine of its own, or listed with why it cannot be."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests import proxy as proxies
from tests.lab import Received, Respond, Step
from tests.program import ROOT
from tests.service.certificates import make_certificate
from tests.service.conftest import NEEDS_SANDBOX
from tests.service.database_link import DatabaseLink
from tests.service.forge.forges import GitHubServer, GitLabForge
from tests.service.git_hosts import GitHttpHost
from tests.service.postgres import NoPostgresError, cluster
from tests.service_process import make_repository
from tests.waiting import COLD_START_S, eventually

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


PAGES: Final = ROOT / "docs" / "run"
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: Final = {
    (page.stem, typed(body)[0]): typed(body)
    for page in sorted(PAGES.glob("*.md"))
    for language, body in FENCE.findall(page.read_text("utf-8"))
    if language in {"", "console"}
}
"""The commands of each block, by its page and its first command."""

SYSTEMD: Final = "there is no systemd here that runs; make container-check runs the units"
NOT_RUN: Final = {
    ("install", "apt install bubblewrap git python3-venv slirp4netns"): SYSTEMD,
    ("install", "pipx install '.[service]'"): "it needs a package index; test_wheel.py installs the wheel without",
    ("install", "cd deploy/container"): "there is no daemon of docker here; make container-check runs it",
    (
        "operations",
        "useradd --system --home-dir /var/lib/runwarden-watch --shell /usr/sbin/nologin runwarden-watch",
    ): SYSTEMD,
    ("upgrade", "systemctl stop runwarden-worker@1 runwarden-serve"): SYSTEMD,
}

QUICK_START: Final = (
    ("install", "export GITHUB_TOKEN=…"),
    ("install", "export RUNWARDEN_BASE_URL=http://127.0.0.1:8400/v1 RUNWARDEN_TOKEN=rwt_…"),
    ("install", "runwarden service apply setup.toml --data-dir data"),
)
FORGEJO: Final = "https://example.com/git/api/v1"
WHILE_IT_RUNS: Final = (
    ("agents", "runwarden agents list"),
    ("code-hosts", "runwarden service host connect --org acme --platform github --token-env GITHUB_TOKEN"),
    ("code-hosts", "runwarden gitlab onboard acme/tools"),
    (
        "code-hosts",
        f"runwarden service host connect --org acme --platform forgejo --api-url {FORGEJO} --token-env FORGEJO_TOKEN",
    ),
    ("events", "runwarden service events endpoints add https://ci.acme.example/runwarden --org acme --data-dir data"),
    ("models", "runwarden service usage --from 2026-11-01 --by agent --data-dir data"),
    ("models", "runwarden service org budget acme --day-usd 100 --day-tokens 50000000 --data-dir data"),
    ("troubleshooting", "runwarden doctor"),
    ("operations", "runwarden backup /srv/backups/console"),
    ("operations", "runwarden service audit list --org acme --since 30d --action token"),
    ("operations", "runwarden service prune --older-than 90d --dry-run      # only counts"),
    ("networks", "export HTTPS_PROXY=http://proxy.acme.example:3128 NO_PROXY=.acme.example,10.0.0.0/8"),
)
ON_POSTGRESQL: Final = (
    "operations",
    (
        "export RUNWARDEN_SERVICE_DATABASE=postgresql://runwarden@db.internal/runwarden"
        "   # password: ~/.pgpass or PGPASSWORD"
    ),
)
BACK_UP: Final = ("upgrade", "runwarden service backup /srv/backups/runwarden.tar.gz         # SQLite, while it runs")
DELETE: Final = (
    "operations",
    "runwarden service run delete RUN_ID        # asks, unless --yes; --force: even while it works",
)
RUN: Final = {*QUICK_START, *WHILE_IT_RUNS, ON_POSTGRESQL, BACK_UP, DELETE}
NAMES: Final = {
    **dict.fromkeys(("github.com", "api.github.com", "git.acme.example", "db.internal"), "127.0.0.1"),
    "ci.acme.example": "8.8.8.8",
}


def block_of_toml(page: str, word: str) -> str:
    blocks = re.findall(r"```toml\n(.*?)```", (PAGES / f"{page}.md").read_text("utf-8"), re.DOTALL)
    return str(next(block for block in blocks if word in block))


def test_every_block_of_commands_is_run_or_listed() -> None:
    """A new block fails here until it has its place in the story, or a reason."""
    assert {*BLOCKS} == RUN | NOT_RUN.keys()


@pytest.mark.parametrize("block", NOT_RUN)
def test_a_block_that_is_not_run_is_at_least_a_script(block: tuple[str, str]) -> None:
    """The shell can parse it, and what it installs from the source is there."""
    script = "\n".join(BLOCKS[block])
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert [path for path in re.findall(r"\bdeploy/[\w/.@-]+", script) if not (ROOT / path).exists()] == []


class Hosts:
    """GitHub, a GitHub Enterprise Server and a GitLab behind one address, as far as the pages use them."""

    def __init__(self, folder: Path, listener: socket.socket | None = None) -> None:
        self.certificate = make_certificate(folder / "tls", ",".join(f"DNS:{name}" for name in NAMES))
        self.bare = make_repository(folder / "hosted/acme/api", {"app.py": "password = 'hunter2'\n"})
        make_repository(folder / "hosted/acme/tools", {"app.py": "print()\n"})
        self.forge, self.gitlab = GitHubServer(), GitLabForge()
        tools = {"id": 43, "path_with_namespace": "acme/tools"}
        self.gitlab.projects = [tools | {"http_url_to_repo": "https://git.acme.example/acme/tools.git"}]
        self.git = GitHttpHost(folder / "hosted", "bot-token", self.certificate.server_context(), listener)
        self.git.fault = self._route

    def _route(self, request: Received) -> Step | None:
        if request.path.startswith("/acme/"):
            return None
        if request.path == "/rate_limit":
            return Respond(200, {"resources": {"core": {"remaining": 9}}})
        if request.path == "/api/v4/version":
            return Respond(200, {"version": "18.0.0"})
        if request.path.startswith("/api/v4"):
            return self.gitlab.serve(request)
        self.forge.branches.update(self.branches())
        return self.forge.serve(replace(request, target=request.target.removeprefix("/api/v3")))

    def branches(self) -> dict[str, str]:
        command = ["git", "-C", str(self.bare), "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return dict(line.split() for line in listed.splitlines())

    def environment(self, home: Path) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "SSL_CERT_FILE": str(self.certificate.file)}

    def close(self) -> None:
        for server in (self.git, self.forge, self.gitlab):
            server.close()


class Story:
    """Someone at a machine who types what the pages say."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.facts = {"GITHUB_TOKEN=…": "GITHUB_TOKEN=bot-token"}
        """The value of each placeholder."""

    def type(self, block: Sequence[str]) -> str:
        """Run the commands of a block; servers go on."""
        return "".join(map(self._line, block))

    def _line(self, line: str) -> str:
        for placeholder, value in self.facts.items():
            line = line.replace(placeholder, value)
        if re.match(r"runwarden (serve|service worker)\b", line):
            self.shell.begin(line)
            return ""
        # What asks wants the name typed again.
        return self.shell.run(line, f"{line.split()[4]}\n" if " delete " in line else "")


@pytest.fixture(params=["sqlite", "postgresql"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Story, Hosts, str]]:
    """A machine without anything but the program, an environment with the code host's token, and its hosts."""
    (folder := tmp_path / "new").mkdir()
    with ExitStack() as stack:
        on = stack.enter_context(closing(Machine(tmp_path / "machine", NAMES)))
        if request.param == "postgresql":
            try:
                database = stack.enter_context(cluster())
            except NoPostgresError as error:
                pytest.skip(str(error))
            database.create("runwarden")
            stack.enter_context(DatabaseLink(database.port, on.listen("127.0.0.1", 5432)))
        hosts = stack.enter_context(closing(Hosts(tmp_path, on.listen("127.0.0.1", 443))))
        environment = hosts.environment(tmp_path) | {"BROWSER": "true", "PGHOST": "db.internal", "PGUSER": "runwarden"}
        # The worker of the first block needs it as well, whichever of the two takes a turn.
        environment["GITHUB_TOKEN"] = "bot-token"
        shell = stack.enter_context(closing(Shell(on, folder, environment)))
        (folder / "setup.toml").write_text(block_of_toml("install", "quick start"), "utf-8")
        yield Story(shell), hosts, request.param


@NEEDS_SANDBOX
def test_the_pages_lead_from_nothing_to_a_pull_request_and_on(story: tuple[Story, Hosts, str], tmp_path: Path) -> None:
    """Word for word, except for what the pages leave open: a token, an address, a run's id, an organization's name.

    First a commit on a branch; on SQLite then everything else, with pull requests; at last back-up and restore.
    """
    reader, hosts, database = story
    shell = reader.shell
    begin = BLOCKS[QUICK_START[0]]
    if database == "postgresql":
        # Its worker takes the turn: nothing else is at work.
        reader.facts["10.0.0.5"] = "127.0.0.1"
        reader.type(BLOCKS[ON_POSTGRESQL])
        begin = begin[:-1]
    printed = reader.type(begin)
    found = re.search(r"rwt_[\w-]+", printed)
    assert found is not None, printed
    reader.facts["rwt_…"] = found[0]
    assert "completed" in reader.type(BLOCKS[QUICK_START[1]]), shell.logs()
    assert any(name.startswith("agent/review-what-is-there") for name in hosts.branches())
    run_id = re.search(r"run_\w+", reader.type([BLOCKS[QUICK_START[2]][2]]))
    assert run_id is not None
    reader.facts |= {"RUN_ID": run_id[0], "SLUG": "acme"}
    if database == "sqlite":
        type_everything_else(reader, hosts, tmp_path / "new")
    shell.run("export RUNWARDEN_SERVICE_DATA_DIR=data; mkdir -p /srv/backups")
    sqlite, postgresql = BLOCKS[BACK_UP][:2], BLOCKS[BACK_UP][2:]
    keep, restore = sqlite if database == "sqlite" else postgresql
    reader.type([keep])
    reader.type(BLOCKS[DELETE])
    shell.close()
    if database == "postgresql":
        shell.run("dropdb runwarden && createdb runwarden")
    shell.run("export RUNWARDEN_SERVICE_DATA_DIR=restored")
    reader.type([restore])

    assert run_id[0] in shell.run("runwarden service run list")


def type_everything_else(reader: Story, hosts: Hosts, folder: Path) -> None:
    """With the page's agent, a draft on GitHub, and one on a GitHub Enterprise Server; then all other blocks."""
    shell, setup = reader.shell, folder / "setup.toml"
    apply, propose, newest, look = BLOCKS[QUICK_START[2]]
    with setup.open("a", encoding="utf-8") as file:
        file.write(block_of_toml("install", "proposer"))
    reader.type([apply, propose])
    eventually(lambda: hosts.forge.changes and hosts.forge.statuses, "the pull request is opened", COLD_START_S)
    run_id = re.search(r"run_\w+", reader.type([newest]))
    assert run_id is not None
    reader.facts["run_01J…"] = run_id[0]
    opened = reader.type([look])
    (change,) = hosts.forge.changes
    assert (change.draft, change.base) == (True, "main")
    assert change.url in opened

    # Otherwise the next run would link to it, since it changes the same files.
    change.state = "closed"
    # As the page says: the lines `hosts` and `repositories` are replaced, and the document is applied again.
    private = re.sub(r"(?m)^(hosts|repositories) = .*\n", "", block_of_toml("install", "quick start"))
    private += block_of_toml("install", "api/v3")
    setup.write_text(private + block_of_toml("install", "proposer"), "utf-8")
    reader.type([apply, propose])
    eventually(lambda: len(hosts.forge.changes) == 2, "the second pull request is opened", COLD_START_S)

    shell.run("export RUNWARDEN_SERVICE_DATA_DIR=data ANTHROPIC_API_KEY=none GITLAB_TOKEN=bot-token")
    gitlab = "--platform gitlab --api-url https://git.acme.example/api/v4 --token-env GITLAB_TOKEN"
    shell.run(f"runwarden service host connect --org acme {gitlab}")
    (folder / "agents.toml").write_text(block_of_toml("agents", "Examines one aspect"), "utf-8")
    shell.run("runwarden service apply agents.toml --elsewhere")
    for key in WHILE_IT_RUNS:
        reader.type(BLOCKS[key])


@NEEDS_SANDBOX
def test_a_proxy_that_wants_a_login_is_way_out_enough(tmp_path: Path) -> None:
    """From the fetch to the pull request, on a machine that has IPv6 alone, and looks up no name but the proxy's."""
    (folder := tmp_path / "new").mkdir()
    setup = block_of_toml("install", "quick start") + block_of_toml("install", "proposer")
    (folder / "setup.toml").write_text(setup, "utf-8")
    with ExitStack() as stack:
        address = "ip addr add fd00::2/128 dev lo nodad"
        on = stack.enter_context(closing(Machine(tmp_path / "machine", {"proxy.corp": "fd00::2"}, address)))
        hosts = stack.enter_context(closing(Hosts(tmp_path)))
        listener = on.listen("fd00::2", 3128)
        proxy = stack.enter_context(proxies.running(proxies.Proxy(hosts.git.server.port), listener))
        environment = hosts.environment(tmp_path) | {"GITHUB_TOKEN": "bot-token"}
        environment["HTTPS_PROXY"] = "http://user:p%40w@proxy.corp:3128"
        shell = stack.enter_context(closing(Shell(on, folder, environment)))
        found = re.search(r"rwt_[\w-]+", shell.run("runwarden service apply setup.toml --data-dir data"))
        assert found is not None
        shell.begin("runwarden serve --data-dir data --host ::1 --port 8400")
        shell.run(f"export RUNWARDEN_BASE_URL=http://[::1]:8400/v1 RUNWARDEN_TOKEN={found[0]}")
        shell.run("runwarden agents start proposer -R acme/api 'Review the login.' --wait")
        eventually(lambda: hosts.forge.changes, "the pull request is opened", COLD_START_S, saw=shell.logs)

    assert {*proxy.asked} == {f"CONNECT {name}:443 HTTP/1.1" for name in ("github.com", "api.github.com")}
