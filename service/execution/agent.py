"""The agent's process: a task on its standard input, a deadline over its head, and nothing of it left at the end."""

import contextlib
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from service.execution import processes
from service.execution.sandbox import PACKAGE_ROOT, Sandbox
from service.execution.workspace import Workspace
from service.store.agents import Agent

_CHUNK: Final = 65_536
_GLANCE_S: Final = 0.25
_LAST_WORDS_S: Final = 0.05
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ")


class AgentFailedError(Exception):
    """The agent could not be started, failed, or ran out of time; the text says which."""


class InterruptedTurn(Exception):
    """The service stops; the turn belongs to whoever recovers it."""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """An agent with everything it needs to start."""

    agent: Agent
    workspace: Workspace
    objects: Path
    sandbox: Sandbox

    def argv(self) -> list[str]:
        """Return the command, inside its sandbox."""
        argv = [sys.executable if part == "{python}" else part for part in self.agent.argv]
        return self.sandbox.wrap(argv, self.workspace, self.objects, network=self.agent.network)

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the agent: the allow-list and what the contract adds."""
        allowed = (*_PASSED_ON, *self.agent.environment)
        given = {name: os.environ[name] for name in allowed if name in os.environ}
        home = str(self.workspace.home)
        if self.agent.argv[0] == "{python}":
            # Safe path: the checkout is the working folder, and its modules must never be imported for ours.
            given |= {"PYTHONPATH": str(PACKAGE_ROOT), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return given | {
            "HOME": home,
            "TMPDIR": home,
            "PYTHONUNBUFFERED": "1",
            "GIT_DIR": str(self.workspace.history),
            "GIT_WORK_TREE": str(self.workspace.tree),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "RUNWARDEN_RESULT": str(self.workspace.result_file),
        }


def run(command: AgentCommand, log: IO[bytes], output_bytes: int, stopping: threading.Event) -> None:
    """Run an agent to its end, its output into the log.

    Raises:
        AgentFailedError: It could not start, exited with another status than 0, or passed its time limit.
        InterruptedTurn: `stopping` was set while it ran.
    """
    with command.workspace.task_file.open("rb") as task:
        try:
            process = subprocess.Popen(
                command.argv(),
                stdin=task,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=command.workspace.tree,
                env=command.environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise AgentFailedError(f"the agent's command cannot be started: {error}; correct its argv") from error
    try:
        _watch(process, command.agent.timeout_s, _capped(log, output_bytes), stopping)
    finally:
        processes.kill_group(process.pid)
        processes.kill_marked(f"RUNWARDEN_RESULT={command.workspace.result_file}")
        process.wait()
    if process.returncode:
        raise AgentFailedError(f"the agent exited with status {process.returncode}; its last lines are in the log")


def _watch(
    process: subprocess.Popen[bytes], timeout_s: float, write: Callable[[bytes], None], stopping: threading.Event
) -> None:
    deadline = time.monotonic() + timeout_s
    output = process.stdout
    if output is None:
        raise AgentFailedError("the agent's output cannot be read")
    os.set_blocking(output.fileno(), False)
    with output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if stopping.is_set():
                raise InterruptedTurn
            if time.monotonic() > deadline:
                raise AgentFailedError(f"the agent passed its time limit of {timeout_s:g} s and was ended")
            # Looked at before reading: output that is there when the process has ended is all there will be.
            ended = process.poll() is not None
            ready = selector.select(_LAST_WORDS_S if ended else _GLANCE_S) if selector.get_map() else []
            chunk = output.read(_CHUNK) if ready else b""
            if chunk:
                write(chunk)
            elif ended:
                # A child in a session of its own may hold the pipe open for ever; the agent itself is done.
                return
            elif ready:
                selector.unregister(output)
            elif not selector.get_map():
                _glance(process)


def _glance(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment for a process that closed its output before it ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GLANCE_S)


def _capped(log: IO[bytes], limit: int) -> Callable[[bytes], None]:
    left = limit

    def write(chunk: bytes) -> None:
        nonlocal left
        if left <= 0:
            return
        log.write(chunk[:left])
        left -= len(chunk)
        if left <= 0:
            log.write(f"\n[output beyond {limit} bytes was dropped]\n".encode())
        log.flush()

    return write
