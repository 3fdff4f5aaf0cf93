"""A real service as a process on a free loopback port, with generated repositories."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, TimeoutExpired
from typing import IO, Any, Final

from click.testing import CliRunner

from service.cli import main
from service.execution.sandbox import find
from service.settings import DataFolder, ExecutionSettings
from tests.lab import free_port
from tests.program import Program

READY_S: Final = 120.0
STOP_S: Final = 120.0
PROGRAM: Final = "from service.cli import main; main(prog_name='runwarden service')"
_MADE: Final = tempfile.TemporaryDirectory(prefix="runwarden-made-")
"""Templates that are made once and copied: repositories by content, and a database with its tables."""
GIT_ENVIRONMENT: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A Developer",
    "GIT_AUTHOR_EMAIL": "developer@example.invalid",
    "GIT_COMMITTER_NAME": "A Developer",
    "GIT_COMMITTER_EMAIL": "developer@example.invalid",
}

# It writes its task into a file, so that a test can read the contract from the commit. Its instructions control it:
# "wait FILE" ends when the file exists, "fail" exits with 3, "nothing" changes nothing, anything else is noted.
SCRIBE: Final = """
import json, os, pathlib, sys, time
task = json.load(sys.stdin)
words = task["instructions"].split()
print("scribe at work on turn", task["turn"], flush=True)
if words[0] == "wait":
    while not pathlib.Path(words[1]).exists():
        time.sleep(0.02)
if words[0] == "fail":
    print("scribe gives up", file=sys.stderr)
    sys.exit(3)
if words[0] != "nothing":
    folder = pathlib.Path("notes")
    folder.mkdir(exist_ok=True)
    (folder / f"{task['run_id']}-{task['turn']}.json").write_text(json.dumps(task, indent=1))
result = {"summary": f"did {words[0]}", "commit_message": f"scribe: {task['instructions'][:40]}"}
pathlib.Path(os.environ["RUNWARDEN_RESULT"]).write_text(json.dumps(result))
"""


def git(*arguments: str, cwd: Path, stdin: str = "") -> str:
    """Run git without any user's configuration, and return its output."""
    result = subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env={**os.environ, **GIT_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
        input=stdin,
    )
    return result.stdout.rstrip("\n")


def make_repository(
    folder: Path, files: Mapping[str, str], branches: Mapping[str, Mapping[str, str]] | None = None
) -> Path:
    """Make a bare repository with one commit on main, and one more commit for each further branch."""
    # One stream creates everything, since single commits would take most of a second.
    stream = [commit_stream("main", "First commit", files)]
    for name, more in (branches or {}).items():
        stream.append(commit_stream(name, f"Work on {name}", more, "refs/heads/main"))
    bare = folder.with_suffix(".git")
    shutil.copytree(_repository_of("".join(stream)), bare, copy_function=_replace, dirs_exist_ok=True)
    return bare


def _replace(source: str, target: str) -> None:
    # Git's objects are read-only: only root could overwrite those of an earlier call.
    Path(target).unlink(missing_ok=True)
    shutil.copy2(source, target)


def put_hook(repository: Path, name: str, script: str) -> Path:
    """Let a repository run a shell script as one of its hooks."""
    hook = repository / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{script}\n")
    hook.chmod(0o755)
    return hook


@cache
def _repository_of(stream: str) -> Path:
    folder = Path(tempfile.mkdtemp(dir=_MADE.name))
    git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", ".", cwd=folder)
    git("fast-import", "--quiet", cwd=folder, stdin=stream)
    return folder


@cache
def _tables() -> Path:
    folder = Path(tempfile.mkdtemp(dir=_MADE.name))
    result = refused_start(folder, "migrate")
    assert result.returncode == 0, result.stderr
    return DataFolder(folder).database_file


def lay_tables(data_dir: Path) -> None:
    """Copy an empty database with its tables, if there is none: creating them takes half of a first start."""
    file = DataFolder(data_dir).database_file
    if not file.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        shutil.copy(_tables(), file)


def commit_stream(branch: str, message: str, files: Mapping[str, str], onto: str = "", more: str = "") -> str:
    """A commit as git's fast-import reads it; `more` are further lines of it."""
    lines = f"commit refs/heads/{branch}\ncommitter A Developer <developer@example.invalid> 1735689600 +0000\n"
    lines += _data(message) + (f"from {onto}\n" if onto else "") + more
    return lines + "".join(f"M 100644 inline {path}\n{_data(text)}" for path, text in files.items()) + "\n"


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


@cache
def sandbox_works() -> bool:
    return not find(ExecutionSettings(agent_network="host")).is_missing


def settle_sandbox(file: Path) -> None:
    """Let agents run without bubblewrap if it does not work, unless the settings choose."""
    text = file.read_text("utf-8") if file.exists() else ""
    if "sandbox = " in text or sandbox_works():
        return
    head = "[execution]\n"
    choice = f'{head}sandbox = "none"\n'
    file.write_text(text.replace(head, choice, 1) if head in text else f"{text}\n{choice}", "utf-8")


@dataclass
class Node:
    """A process of the service: its arguments, and the process that is running now."""

    arguments: list[str]
    data_dir: Path
    environment: Mapping[str, str]
    process: Program = field(init=False)
    ready: dict[str, Any] = field(init=False)
    """Its ready line."""

    @property
    def printed(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def base_url(self) -> str:
        return str(self.ready["base_url"])

    @property
    def log(self) -> str:
        return (self.data_dir / "serve.log").read_text("utf-8", "replace")

    def start(self) -> None:
        settle_sandbox(self.data_dir / "service.toml")
        arguments = [*self.arguments, "--data-dir", str(self.data_dir)]
        with (self.data_dir / "serve.log").open("ab") as log:
            streams = (DEVNULL, PIPE, log.fileno())
            self.process = Program(arguments, {**os.environ, **self.environment}, code=PROGRAM, streams=streams)
        answered, _, _ = select.select([self.printed], [], [], READY_S)
        line = self.printed.readline() if answered else ""
        if not line:
            self.kill()
            raise AssertionError(f"{arguments} did not start: {self.log[-3000:]}")
        self.ready = json.loads(line)

    def admin(self, *arguments: str) -> dict[str, Any]:
        """Run a command on the data folder, and return what it printed."""
        return command(self.data_dir, *arguments, environment=self.environment)

    def kill(self) -> None:
        """Kill the process with SIGKILL, so that it cannot clean up."""
        self.process.kill()
        self.ended()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """Stop the process with SIGTERM, even a frozen one, and return its exit status."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        try:
            return self.process.wait(STOP_S)
        except TimeoutExpired as error:
            self.process.kill()
            raise AssertionError(f"{self.arguments} does not end: {self.log[-3000:]}") from error
        finally:
            self.process.close()


@dataclass
class RunningService(Node):
    """A running service."""

    setup: dict[str, Any]
    """The output of `apply`."""

    @property
    def lab_token(self) -> str:
        """The token for /_lab of a service started with --lab."""
        return str(self.ready.get("lab_token", ""))

    @property
    def organization(self) -> dict[str, Any]:
        """The first organization: its id, name, slug, tokens and repositories, as `apply` printed them."""
        return dict(next(iter(self.setup["organizations"]), {"tokens": [], "repositories": []}))

    @property
    def admin_token(self) -> str:
        """A token of scope admin; its organization has both entitlements."""
        return next((token["value"] for token in self.organization["tokens"] if "admin" in token["scopes"]), "")

    @property
    def repositories(self) -> dict[str, Path]:
        """The bare repositories by path (`acme/api`, `acme/web`)."""
        return {repository["path"]: Path(repository["url"]) for repository in self.organization["repositories"]}

    @property
    def outbox(self) -> Path:
        return self.data_dir / "outbox"

    def restart(self) -> None:
        port = self.base_url.removesuffix("/v1").rpartition(":")[2]
        self.arguments = ["serve", "--port", port, *self.arguments[3:]]
        self.start()


def command(data_dir: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command of `python -m service` with `--json` on a data folder and return what it printed.

    It runs in this process: the same code, without half a second of imports each time.
    """
    line = [*arguments, "--data-dir", str(data_dir), "--json"]
    result = CliRunner(catch_exceptions=False).invoke(main, line, env=environment)
    if result.exit_code:
        raise AssertionError(f"{arguments} exited with {result.exit_code}: {result.stdout}{result.stderr}")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def demo_setup(folder: Path) -> dict[str, Any]:
    """Return the default set-up of `start_service`: one partner organization, two repositories."""
    api = make_repository(
        folder / "repositories" / "acme" / "api",
        {"README.md": "# api\n", "src/app.py": "def answer():\n    return 42\n"},
        {"fix/login": {"src/login.py": "def login(user):\n    # TODO: check the password\n    return True\n"}},
    )
    web = make_repository(folder / "repositories" / "acme" / "web", {"index.html": "<p>hello</p>\n"})
    script = folder / "scribe.py"
    script.write_text(SCRIBE, "utf-8")
    git_host = {"probe": "git", "clone_url": f"{folder}/repositories/{{path}}.git"}
    hosts = [
        {"platform": "github", **git_host},
        {"platform": "gitlab", "host": "gitlab.example", "group": "acme", **git_host},
    ]
    repositories = [
        {"name": "api", "platform": "github", "path": "acme/api", "url": str(api)},
        {"name": "web", "platform": "github", "path": "acme/web", "url": str(web)},
        {"name": "tools", "platform": "gitlab", "path": "acme/tools", "url": str(web)},
    ]
    organization = {
        "name": "Acme",
        "slug": "acme",
        "entitlements": ["ServiceAPI", "CreateOrganizations"],
        "tokens": [{"alias": "tests", "scopes": ["admin"]}],
        "hosts": hosts,
        "repositories": repositories,
    }
    offers = [
        {"code": "PARTNER", "kind": "partner"},
        {"code": "PUBLIC", "kind": "public"},
        {"code": "OLD", "kind": "partner", "retired": True},
    ]
    # A plain run uses the scribe too, since the built-in reviewer takes four times as long.
    agents = [{"name": name, "argv": ["{python}", str(script)]} for name in ("scribe", "reviewer")]
    return {"organizations": [organization], "offers": offers, "agents": agents}


def start_service(
    folder: Path,
    *,
    setup: dict[str, Any] | None = None,
    settings: str | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> RunningService:
    """Set a service up under `folder` and start it.

    `setup` replaces the demo document (`apply` format), `settings` is the text of service.toml, `arguments` go to
    `serve`. Agents there: `scribe` (quick; see SCRIBE), also in the place of `reviewer`, which does plain runs.
    """
    document = demo_setup(folder) if setup is None else setup
    data_dir = folder / "service"
    data_dir.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        (data_dir / "service.toml").write_text(settings, "utf-8")
    file = folder / "setup.json"
    file.write_text(json.dumps(document), "utf-8")
    lay_tables(data_dir)
    applied = command(data_dir, "apply", str(file), environment=environment)
    service = RunningService(["serve", "--port", str(free_port()), *arguments], data_dir, environment or {}, applied)
    service.start()
    return service


def refused_start(data_dir: Path, *arguments: str, **environment: str) -> CompletedProcess[str]:
    """Run `serve`, or the command given, until it exits by itself."""
    line = [*(arguments or ("serve", "--port", "0")), "--data-dir", str(data_dir)]
    return Program(line, {**os.environ, **environment}, code=PROGRAM).completed()
