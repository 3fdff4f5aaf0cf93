"""The demo: service and console together on one machine, without any configuration."""

import asyncio
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from app.api.requests import ContinueRun, CreateOrganization, StartAgent, StartRun, WriteRequest
from app.demo.service_process import DemoError, ServiceProcess, has_sandbox, wait_or_kill
from app.demo.world import (
    AGENTS,
    FIXER,
    LOG,
    REPOSITORIES,
    SERVICE,
    World,
    add_program,
    bare_path,
    build,
    check_program,
    port_of,
    resume,
    tasks,
)
from app.profiles import Profile, Settings
from storage.records import Repository

if TYPE_CHECKING:
    from app.engine.engine import Engine

Show = Callable[[Settings, Profile], int]
"""Shows a profile until the user quits; returns the exit code."""
PATIENCE_S: Final = 30.0
"""How long the demo waits for its first runs; on a slow machine they are then still working."""
POLL_S: Final = 0.2
MONTH_RUNS: Final = 1000
_LAB_S: Final = 60.0

FIRST_WRITES: Final[tuple[WriteRequest, ...]] = (
    StartRun(
        "Review the login fix before we merge it. Look at security first.",
        Repository.parse("acme/api"),
        "fix/login-timeout",
        {"ticket": "ACME-412"},
    ),
    StartRun("Is dark mode ready to merge?", Repository.parse("acme/web"), "agent/dark-mode"),
    # This repository does not exist, so the run fails.
    StartRun("Archive this repository.", Repository.parse("acme/retired")),
    StartRun("Look over the backup tool.", Repository.parse("gitlab:platform/tools"), "agent/backup-review"),
    CreateOrganization("ada@newcustomer.example"),
)
SECOND_TURN: Final = "And the tests? Which findings of your last review are still open?"
LAST_WRITES: Final[tuple[WriteRequest, ...]] = (
    StartAgent("security-review", "acme/api", "fix/login-timeout", {"instructions": "Can this leak a session?"}),
    StartRun("Review the billing code.", Repository.parse("acme/api")),
)


def run_demo(show: Show | None, *, keep: bool, folder: Path | None, agent: str = "") -> int:
    """Set up the demo, show it until the user quits, and remove it; return the process's exit code.

    Without `show`, the service executes a few runs and then waits for SIGINT or SIGTERM. Without a folder, the demo
    uses a new temporary one; a kept folder is resumed, with the runs that it has. `agent` is a program of the user's
    that becomes an agent.

    Raises:
        DemoError: The demo could not be set up; the message says what to do.
    """
    if agent:
        check_program(agent)
    if show is not None:
        # Import the console while the service starts: both take about the same time.
        threading.Thread(target=import_module, args=("app.console.app",), daemon=True).start()
    with (
        _ended_by_signals(),
        _folder(folder, keep=keep) as root,
        _world(root, is_live=show is not None, keep=keep) as world,
    ):
        if agent:
            add_program(world, agent)
            _say(f"Your own {agent} works here as the agent {agent}, with your key: at most $1 a run and $5 a day.")
        settings, profile = world.configuration()
        if show is None:
            if not world.is_resumed:
                _say("Executing a few runs on them…")
                from app.engine.engine import Engine

                async def work() -> None:
                    async with await Engine.open(settings, profile, actor="demo") as engine:
                        await execute(engine, agent)

                asyncio.run(work())
            repositories, service_dir = root / "repositories", root / SERVICE
            announcement = {
                "base_url": world.service.base_url,
                "token": (root / "token").read_text("utf-8"),
                "data_dir": str(service_dir),
                "repositories": [
                    {"name": repo.name, "path": str(bare_path(repo, repositories))} for repo in REPOSITORIES
                ],
                "agents": [*AGENTS],
                "outbox": str(service_dir / "outbox"),
            }
            print(json.dumps(announcement), flush=True)  # Scripts read this line first.
            status = world.service.process.wait()
            log = (root / LOG).read_text(errors="replace")
            raise DemoError(f"The demo's service exited unexpectedly, with status {status}.", log)
        with team_at_work(world, agent):
            return show(settings, profile)
    return 0  # A signal stopped a demo without a console, and everything was removed.


@contextmanager
def team_at_work(world: World, agent: str = "") -> Iterator[None]:
    """In this block a process starts runs (one by the user's own agent), interrupts a code host and runs a bot."""
    command = [sys.executable, "-P", "-m", "app.demo.live", str(world.folder), agent]
    with (world.folder / "live.log").open("ab") as log:
        team = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, start_new_session=True
        )
    assert team.stdin is not None
    try:
        # The process exits when this pipe closes, even if the demo is killed.
        team.stdin.write("\n" if world.is_resumed else f"{world.service.lab_token}\n")
        team.stdin.flush()
        yield
    finally:
        team.stdin.close()
        wait_or_kill(team)


class _Interrupted(BaseException):
    """SIGTERM or SIGINT: clean up the demo."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, _: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)  # A second signal must not interrupt the clean-up.
        raise _Interrupted(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    except _Interrupted:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _folder(folder: Path | None, *, keep: bool) -> Iterator[Path]:
    was_there = folder is not None and folder.exists()
    try:
        root = Path(tempfile.mkdtemp(prefix="runwarden-demo-")) if folder is None else folder
        root.mkdir(parents=True, exist_ok=True)
        is_empty = not any(root.iterdir())
    except OSError as error:
        name = "A temporary folder" if folder is None else str(folder)
        raise DemoError(f"{name} cannot be made: {error.strerror}. Name a folder with --folder.") from error
    if not is_empty and not _is_kept(root):
        raise DemoError(f"{root} is not empty, and no demo was kept in it. Name a new folder with --folder.")
    root = root.resolve()
    keep = keep or _is_kept(root)
    try:
        yield root
    finally:
        if keep:
            text = f"Everything is kept in {root}; the repositories are in {root / 'repositories'}."
            if _is_kept(root):
                program, port = program_here(), port_of(root)
                kept, data_dir, config = (
                    shlex.quote(str(path)) for path in (root, root / SERVICE, root / "config.toml")
                )
                text += (
                    f"\nReopen it: {program} demo --folder {kept}"
                    f"\nIts service alone: {program} serve --data-dir {data_dir} --port {port}"
                    f"\nSnapshot: {program} --config {config}"
                )
            _say(text)
        else:
            shutil.rmtree(root, ignore_errors=True)
            if was_there:
                root.mkdir(exist_ok=True)


def _is_kept(root: Path) -> bool:
    return (root / "config.toml").exists() and (root / SERVICE).is_dir()


def program_here() -> str:
    """The command for this program in this folder; in a checkout it is usually not on PATH."""
    beside = Path(sys.executable).with_name("runwarden")
    on_path = shutil.which("runwarden")
    if not beside.exists() or (on_path is not None and Path(on_path).resolve() == beside.resolve()):
        return "runwarden"
    folder = Path.cwd()
    return shlex.quote(str(beside.relative_to(folder) if beside.is_relative_to(folder) else beside))


@contextmanager
def _world(root: Path, *, is_live: bool, keep: bool) -> Iterator[World]:
    is_kept = _is_kept(root)
    lines = [
        f"Starting the demo that was kept in {root}…" if is_kept else "Creating four repositories and a service…",
        "Its agents are scripted stand-ins: no model, no account. The service, the repositories and the commits are",
        f"real ({root / 'repositories'}).",
    ]
    if is_live and not is_kept:
        end = "kept" if keep else "deleted when you leave; --keep keeps it (make demo KEEP=1)"
        lines.append(f"The month of history is made up by the service's lab. All of it is {end}.")
    config = shlex.quote(str(root / "config.toml"))
    lines.append(f"From another terminal, while it runs: {program_here()} --config {config} runs list")
    _say("\n".join(lines))
    try:
        world = resume(root) if is_kept else build(root, is_live=is_live)
    except subprocess.CalledProcessError as error:
        raise DemoError(f"git could not make the demo's repositories: {error.stderr.strip()}") from error
    except FileNotFoundError as error:
        raise DemoError("The demo needs git, and found none on PATH. Install it, then try again.") from error
    except OSError as error:
        raise DemoError(f"The demo cannot be built in {root}: {error.strerror}. Name another --folder.") from error
    try:
        if is_live and not is_kept:
            seed_month(world.service)
        page = world.service.base_url.removesuffix("/v1")
        _say(f"In a browser: {page}/, with the token in {root / 'token'}")
        if not has_sandbox(root / SERVICE):
            _say(
                "Without a sandbox: bubblewrap is not installed or does not work here, so these scripts run with your\n"
                "rights. Add no other agents to this demo."
            )
        yield world
    finally:
        world.service.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def execute(engine: "Engine", own: str = "") -> None:
    """Execute the first runs through the ledger, as the forms do; `own` is the user's own agent, empty for none."""
    for name in filter(None, (own, FIXER)):
        await engine.actions.submit(StartAgent(name, "acme/api", inputs={"instructions": tasks()["acme-api"][0]}))
    first = [await engine.actions.submit(request) for request in FIRST_WRITES]
    begun = {action.result_id for action in first}
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            await engine.runs.refresh()
            while begun & {row.run_id for row in await engine.cache.active_runs()}:
                await asyncio.sleep(POLL_S)
                await engine.runs.refresh()
    conversation = await engine.cache.detail(first[0].result_id or "")
    if conversation is not None and conversation.is_final:
        run = conversation.run
        await engine.actions.submit(ContinueRun(run.run_id, SECOND_TURN, run.repository))
    for request in LAST_WRITES:
        await engine.actions.submit(request)
    await engine.refresh()


def seed_month(service: ServiceProcess) -> None:
    """Let the lab make up the last month of a team's runs."""
    order = {"organization": "acme", "runs": MONTH_RUNS, "span": "30d", "rhythm": "team", "agents": [*AGENTS]}
    ask_lab(service.base_url, service.lab_token, "/runs", order | {"repositories": len(REPOSITORIES)})


def ask_lab(base_url: str, token: str, path: str, order: dict[str, Any]) -> None:
    """Send a command to the lab of this demo's service, which is not part of the API."""
    request = urllib.request.Request(  # noqa: S310 — the address is the demo's own
        f"{base_url.removesuffix('/v1')}/_lab{path}",
        json.dumps(order).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_LAB_S):
        pass
